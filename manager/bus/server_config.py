"""What a bus server is configured with, alone or as one of a cluster: it knows the fleet's authority, and speaks TLS only.

Accounts are told to a new server only. One that has run holds what leaders have told it since, with who was revoked.
Each account has a place in the store, as nats-server 2.9.10 takes up those that have one before it listens. Others it takes
up when their first client comes; if two come at once it may do so twice, and then hosts and managers, each in another
instance of an account, never hear of each other, or JetStream stays off (nats-server issue 2874).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cwdp.errors import BusError
from cwdp.shared.identity.credential import write_secret
from manager.identity.authority import Authority

CLUSTER = "cwdp"
STORE_BYTES = 1 << 34
"""At most; 10,000 hosts' documents of 0.1 MB are 1 GB, and those that were replaced go some time later."""

NOT_EMPTY = "account"
"""A file in an account's place in the store: the server removes those that are empty when it starts."""

GREETING_S = 15
"""How long a client may take to speak TLS and to show its credential: an agent of a host that is very busy takes long."""

PING_INTERVAL, PINGS_UNANSWERED = "5s", 2
"""Who is silent for so long is left; a server that was cut off is refused by those that still hold its old connections."""

RESOLVER_INTERVAL = "5s"
"""How often servers of a cluster compare what they hold of accounts."""


@dataclass(frozen=True)
class Cluster:
    """A server's place in a cluster.

    Attributes:
        server: its name, unlike all others'; a tag of it, too, by which streams are placed on it.
        listen: HOST:PORT at which the other servers reach it.
        routes: where it reaches them, as the same; its own may be among them.
    """

    server: str
    listen: str
    routes: Sequence[str]

    @property
    def host(self) -> str:
        """By which the others know its certificate."""
        return self.listen.rpartition(":")[0].removeprefix("[").removesuffix("]")


def write_config(
    listen: str,
    directory: Path,
    authority: Authority,
    cluster: Cluster | None = None,
    *,
    home: Path | None = None,
) -> Path:
    """Write a server's configuration and certificate; the configuration's path.

    Args:
        listen: HOST:PORT for its clients.
        directory: the server's own, for what it keeps too; made if need be.
        authority: whose fleet it serves.
        cluster: its place in one; None for a server alone.
        home: where the directory will lie on the server's machine; where it is written unless given.

    Raises:
        BusError, IdentityError: it cannot be written.
    """
    accounts, path = directory / "accounts", directory / "nats-server.conf"
    places = [directory / "jetstream" / "jetstream" / account for account in authority.accounts]
    try:
        for each in (*places, accounts):
            each.mkdir(parents=True, exist_ok=True)
        for place in places:
            (place / NOT_EMPTY).touch()
        key, certificate = authority.server_certificate(cluster.host if cluster else None)
        write_secret(directory / "server.key", key)
        (directory / "server.pem").write_text(certificate)
        (directory / "root.pem").write_text(authority.root)
        path.write_text(_text(listen, directory, home or directory, authority, cluster))
    except OSError as error:
        raise BusError(
            f"cannot write below {directory}: {error.strerror}",
            "give a directory that the manager may write with `--state-dir DIR`",
        ) from error
    return path


def _text(listen: str, directory: Path, home: Path, authority: Authority, cluster: Cluster | None) -> str:
    def quoted(name: str) -> str:
        return json.dumps(str(home / name))

    tls = (
        f"cert_file: {quoted('server.pem')}, key_file: {quoted('server.key')}, ca_file: {quoted('root.pem')}"
    )
    resolver = f"type: full, dir: {quoted('accounts')}, interval: {json.dumps(RESOLVER_INTERVAL)}"
    new = {
        key: token
        for key, token in authority.account_tokens({}).items()
        if not (directory / "accounts" / f"{key}.jwt").exists()
    }
    preload = ", ".join(f"{key}: {json.dumps(token)}" for key, token in new.items())
    lines = {
        "listen": json.dumps(listen),
        "pid_file": quoted("nats-server.pid"),
        "tls": f"{{ {tls}, timeout: {GREETING_S} }}",
        "authorization": f"{{ timeout: {GREETING_S} }}",
        "ping_interval": json.dumps(PING_INTERVAL),
        "ping_max": str(PINGS_UNANSWERED),
        "operator": json.dumps(authority.operator_token()),
        "system_account": authority.system_account,
        "resolver": f"{{ {resolver} }}",
        "resolver_preload": f"{{ {preload} }}",
        "jetstream": f"{{ store_dir: {quoted('jetstream')}, max_file_store: {STORE_BYTES} }}",
    }
    if cluster is not None:
        routes = json.dumps([f"nats-route://{route}" for route in cluster.routes])
        inside = f"name: {json.dumps(CLUSTER)}, listen: {json.dumps(cluster.listen)}, routes: {routes}"
        lines["server_name"] = json.dumps(cluster.server)
        lines["server_tags"] = json.dumps([cluster.server])
        lines["cluster"] = f"{{ {inside}, tls: {{ {tls}, timeout: 5 }} }}"
    return "".join(f"{key}: {value}\n" for key, value in lines.items())
