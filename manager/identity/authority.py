"""The fleet's authority: the keys that say who may be on its bus, and the claims that they sign.

An operator (in the sense of NATS) signs three accounts: managers', hosts', and the servers' own. Hosts are users of
keys with a scope, whose permissions are the account's, so that a host's token says only which host of which pod it is.
(NATS decentralised JWT authentication.)
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import nkeys
from msgspec import Struct

from cwdp.errors import ConfigError, IdentityError
from cwdp.shared.bus.subjects import token
from cwdp.shared.identity import jwt
from cwdp.shared.identity.credential import JOINING_TAG, Credential, write_secret
from manager.identity import certificates, permissions

FILE = "authority.json"
HOST_DAYS = 30.0
DEFAULT_POD = "main"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NO_LIMIT = {
    "subs": -1,
    "data": -1,
    "payload": -1,
    "imports": -1,
    "exports": -1,
    "conn": -1,
    "leaf": -1,
    "wildcards": True,
}
_JETSTREAM = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}


class _Secrets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file holds: seeds of keys, and the certificate authority in PEM."""

    operator: str
    control: str
    fleet: str
    system: str
    hosts: str
    joiners: str
    root_key: str
    root_certificate: str


class Authority:
    """Signs for a fleet.

    Args:
        secrets: its keys.
    """

    def __init__(self, secrets: _Secrets) -> None:
        self._secrets = secrets
        names = ("operator", "control", "fleet", "system", "hosts", "joiners")
        self._keys = {name: nkeys.from_seed(getattr(secrets, name).encode()) for name in names}

    @classmethod
    def new(cls) -> Self:
        """A new fleet's."""
        operator = jwt.seed(jwt.new_key(nkeys.PREFIX_BYTE_OPERATOR))
        accounts = {
            name: jwt.seed(jwt.new_key(nkeys.PREFIX_BYTE_ACCOUNT))
            for name in ("control", "fleet", "system", "hosts", "joiners")
        }
        root_key, root_certificate = certificates.new_root()
        return cls(
            _Secrets(operator=operator, root_key=root_key, root_certificate=root_certificate, **accounts)
        )

    @classmethod
    def load(cls, directory: Path) -> Self:
        """A fleet's, as it was saved.

        Raises:
            IdentityError: there is none, or others may read it.
        """
        path = directory / FILE
        try:
            data, mode = path.read_bytes(), path.stat().st_mode
            if mode & 0o077:
                raise IdentityError(f"{path} can be read by others than its owner", f"run: chmod 600 {path}")
            return cls(msgspec.json.decode(data, type=_Secrets))
        except OSError as error:
            raise IdentityError(
                f"cannot read the fleet's authority {path}: {error.strerror}",
                "run `cwdp fleet init` once for the fleet, and copy its directory to each manager",
            ) from error
        except (msgspec.DecodeError, nkeys.NkeysError) as error:
            raise IdentityError(f"{path} is no authority: {error}", "restore it from a copy") from error

    @classmethod
    def load_or_new(cls, directory: Path) -> Self:
        """A fleet's, as it was saved; a new one, saved, where there is none.

        Raises:
            IdentityError: it cannot be read, or written.
        """
        if (directory / FILE).exists():
            return cls.load(directory)
        authority = cls.new()
        authority.save(directory)
        return authority

    def save(self, directory: Path) -> None:
        """Write it, for its owner only.

        Raises:
            IdentityError: it cannot be written.
        """
        write_secret(directory / FILE, msgspec.json.encode(self._secrets).decode() + "\n")

    @property
    def root(self) -> str:
        """The certificate that those of bus servers, managers' listeners and people are signed by, in PEM."""
        return self._secrets.root_certificate

    @property
    def control_key(self) -> nkeys.KeyPair:
        """What leaders sign documents and clock updates with."""
        return self._keys["control"]

    @property
    def accounts(self) -> tuple[str, str]:
        """The public keys of the managers' and the hosts' accounts."""
        return self._public("control"), self._public("fleet")

    @property
    def system_account(self) -> str:
        """The public key of the servers' own account."""
        return self._public("system")

    def server_certificate(self, host: str | None = None) -> tuple[str, str]:
        """A bus server's key and certificate, in PEM; `host` is by which others of its cluster reach it."""
        return certificates.new_server(self._secrets.root_key, self._secrets.root_certificate, host)

    def listener_certificate(self, names: Sequence[str]) -> tuple[str, str]:
        """A key and certificate, in PEM, for a manager that is reached by these names and addresses over HTTPS."""
        return certificates.new_listener(self._secrets.root_key, self._secrets.root_certificate, names)

    def client_certificate(self, public_key: str, *, name: str, role: str, days: float) -> str:
        """A certificate, in PEM, for who comes to a manager over HTTPS and has the key whose public half is given.

        Raises:
            ConfigError: that is no public key.
        """
        root_key, root = self._secrets.root_key, self._secrets.root_certificate
        return certificates.new_client(root_key, root, public_key, name=name, role=role, days=days)

    def operator_token(self) -> str:
        """What servers take as the root of all."""
        nats = {"type": "operator", "version": 2, "system_account": self.system_account}
        return self._sign({"sub": self._public("operator"), "name": "cwdp", "nats": nats}, "operator")

    def account_tokens(self, revoked: dict[str, int]) -> dict[str, str]:
        """What servers hold of each account, by its public key.

        Args:
            revoked: users' public keys, and until when tokens of theirs were signed that count no more.
        """
        control = {"limits": _NO_LIMIT | _JETSTREAM, "exports": permissions.exports()}
        return {
            self._public("control"): self._account("control", "CTRL", control),
            self._public("fleet"): self.fleet_token(revoked),
            self._public("system"): self._account("system", "SYS", {"limits": _NO_LIMIT}),
        }

    def fleet_token(self, revoked: dict[str, int]) -> str:
        """What servers hold of the hosts' account."""
        scopes = [
            {"kind": "user_scope", "key": self._public(name), "role": name, "template": template}
            for name, template in (
                ("hosts", permissions.HOST_TEMPLATE),
                ("joiners", permissions.JOINER_TEMPLATE),
            )
        ]
        fleet = {
            "limits": _NO_LIMIT,
            "imports": permissions.imports(self._public("control")),
            "signing_keys": scopes,
            "revocations": revoked,
        }
        return self._account("fleet", "FLEET", fleet)

    def host_token(self, public: str, host: str, pod: str, days: float = HOST_DAYS) -> str:
        """What says that a key is a host's.

        Raises:
            ConfigError: no such host can be.
        """
        return self._user("hosts", public, host, pod, days)

    def host_credential(self, host: str, pod: str = DEFAULT_POD, days: float = HOST_DAYS) -> Credential:
        """A whole credential with a new key, for who keeps the authority and the host's files both, as a lab does."""
        key = jwt.new_key(nkeys.PREFIX_BYTE_USER)
        return self._credential(self.host_token(jwt.public_key(key), token(host), pod, days), key)

    def joiner_credential(self, host: str, pod: str, days: float) -> Credential:
        """By which a host asks to be taken in, and can do nothing else.

        Raises:
            ConfigError: no such host can be.
        """
        key = jwt.new_key(nkeys.PREFIX_BYTE_USER)
        return self._credential(self._user("joiners", jwt.public_key(key), host, pod, days, JOINING_TAG), key)

    def manager_credential(self, name: str) -> Credential:
        """For a manager: it may do all that can be done in the managers' account."""
        return self._unlimited(name, "control")

    def system_credential(self) -> Credential:
        """For who tells servers what accounts are now."""
        return self._unlimited("cwdp-system", "system")

    def host_claims(self, text: str) -> dict[str, Any]:
        """What a host's token says.

        Raises:
            IdentityError: it is not one that this authority has signed for a host.
        """
        return jwt.verified(text, {self._public("hosts")})

    def _unlimited(self, name: str, account: str) -> Credential:
        key = jwt.new_key(nkeys.PREFIX_BYTE_USER)
        nats = {"type": "user", "version": 2, **_user_limits()}
        return self._credential(
            self._sign({"sub": jwt.public_key(key), "name": name, "nats": nats}, account), key
        )

    def _credential(self, text: str, key: nkeys.KeyPair) -> Credential:
        return Credential(text, jwt.seed(key), self.root, self._public("control"))

    def _user(self, scope: str, public: str, host: str, pod: str, days: float, *tags: str) -> str:
        for what, name in (("host", host), ("pod", pod)):
            if not _NAME.fullmatch(name) or (what == "pod" and name != name.lower()):
                raise ConfigError(
                    f"{name!r} cannot be the name of a {what}", "letters, digits, - and _, at most 128"
                )
        nats = {
            "type": "user",
            "version": 2,
            "issuer_account": self._public("fleet"),
            "tags": [f"pod:{pod}", *tags],
        }
        expires = int(time.time() + days * 86_400)
        return self._sign({"sub": public, "name": host, "exp": expires, "nats": nats}, scope)

    def _account(self, name: str, shown: str, nats: dict[str, Any]) -> str:
        claims = {"sub": self._public(name), "name": shown, "nats": {"type": "account", "version": 2, **nats}}
        return self._sign(claims, "operator")

    def _sign(self, claims: dict[str, Any], key: str) -> str:
        return jwt.sign(claims, self._keys[key])

    def _public(self, name: str) -> str:
        return jwt.public_key(self._keys[name])


def _user_limits() -> dict[str, Any]:
    return {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
