"""A whole manager with its TCP listeners, in a thread of its own, and who comes to it with which credential."""

import asyncio
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from bus_fakes import authority, save_authority
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fakes import fleet
from waiting import until

from cwdp.cli.client import ManagerClient
from cwdp.cli.credentials import times_line
from manager.access.grants import Grant, digest
from manager.config import ManagerConfig, RoleSettings, TlsSettings
from manager.identity import certificates
from manager.identity.authority import Authority
from manager.service import Manager
from tools.free_ports import free_port

WAIT_S = 60.0
ROLES = ("metrics", "viewer", "operator", "administrator")

_T = TypeVar("_T")


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


class ServedManager:
    """A manager with a bus of its own, one host, and HTTPS on all addresses, until the block is left."""

    def __init__(self, path: Path, *, address: str = "0.0.0.0", loopback: Any = "none") -> None:
        self.port, self.page_port, bus_port = free_port(), free_port(), free_port()
        self.config = ManagerConfig(
            authority=save_authority(path / "state"),
            bus_listen=f"127.0.0.1:{bus_port}",
            listen=f"{address}:{self.port}",
            page=f"{address}:{self.page_port}",
            state_dir=str(path / "state"),
            socket=str(path / "sock"),
            roles=RoleSettings(loopback=loopback),
            tls=TlsSettings(names=("127.0.0.1", "localhost")),
        )
        self.is_tls = address != "127.0.0.1"
        self.authority_file = path / "authority.crt"
        self.authority_file.write_text(authority().root)
        self._sources = iter(range(2, 250))
        self.move()
        self._hosts = fleet(1, f"nats://127.0.0.1:{bus_port}")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="served-manager", daemon=True)

    def __enter__(self) -> Self:
        self.manager = Manager(self.config)
        self._thread.start()
        self._running = asyncio.run_coroutine_threadsafe(self._run(), self._loop)
        state = self.manager.state
        until(lambda: self._running.done() or (state.leads and state.members.hosts), "a manager with a host")
        assert not self._running.done(), self._running.exception()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self.manager.stop)
        self._running.result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        for host in self._hosts:
            host.start()
        try:
            await self.manager.run()
        finally:
            for host in self._hosts:
                await host.stop()

    def move(self) -> None:
        """Come from another address of this machine from now on."""
        self._source = f"127.0.0.{next(self._sources)}", 0

    def inside(self, work: Callable[[], _T]) -> _T:
        """Do something in the manager's own loop."""

        async def done() -> _T:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(WAIT_S)

    @property
    def local(self) -> str:
        """Where an administrator of this machine asks, once the manager leads: on a busy machine it may not for a while."""
        until(lambda: self.manager.state.leads and self.manager.lease.leads, "a leader")
        return f"unix://{self.config.socket}"

    def token(self, name: str, role: str, days: float = 1.0) -> str:
        """As an administrator of this machine makes one."""
        wanted = {"name": name, "role": role, "days": days}
        return str(ManagerClient(self.local).put("/v1/access", wanted)["token"])

    def certificate(self, path: Path, name: str, role: str) -> Path:
        """As an administrator of this machine makes one; the file with its key."""
        key, public = new_key()
        wanted = {"name": name, "role": role, "public_key": public}
        path.write_text(key + ManagerClient(self.local).put("/v1/access", wanted)["certificate"])
        path.chmod(0o600)
        return path

    def grant(self, token: str, *, issued_s: float, expires_s: float) -> None:
        """Have a token count as if it had been made at another time."""
        name = f"at-{digest(token.encode())[:8]}"
        made = Grant(
            name=name,
            role="administrator",
            kind="token",
            sha256=digest(token.encode()),
            issued_s=issued_s,
            expires_s=expires_s,
            by="a test",
        )
        self.inside(lambda: self.manager.grants.add(made))

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Of who knows the fleet's authority."""
        context = ssl.create_default_context(cafile=str(self.authority_file))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        certificate: Path | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        page: bool = False,
    ) -> Answer:
        """Ask by TCP, once the manager leads."""
        until(lambda: self.manager.state.leads and self.manager.lease.leads, "a leader")
        port = self.page_port if page else self.port
        connection = (
            http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=10, context=self.context(certificate), source_address=self._source
            )
            if self.is_tls
            else http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=self._source)
        )
        shown = {"Authorization": f"Bearer {token}"} if token is not None else {}
        try:
            connection.request(
                method, path, None if body is None else json.dumps(body), {**shown, **(headers or {})}
            )
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def say(self, text: bytes) -> bytes:
        """Send bytes as they are over TLS; all that comes back."""
        with (
            socket.create_connection(
                ("127.0.0.1", self.port), timeout=10, source_address=self._source
            ) as plain,
            self.context().wrap_socket(plain, server_hostname="127.0.0.1") as sent,
        ):
            sent.sendall(text)
            said = b""
            while part := sent.recv(65_536):
                said += part
        return said

    def refused(self) -> dict[str, int]:
        """How many callers have been refused, by reason."""
        return self.inside(lambda: dict(self.manager.callers.refusals.counts))


def new_key() -> tuple[str, str]:
    """A key and its public half, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return secret.decode(), public.decode()


def signed_certificate(
    path: Path, by: Authority, *, days: float = 1.0, skew: timedelta = certificates.SKEW
) -> Path:
    """A certificate for people that an authority has signed and no manager keeps; with its key."""
    key, public = new_key()
    before, certificates.SKEW = certificates.SKEW, skew
    try:
        signed = by.client_certificate(public, name="eve", role="administrator", days=days)
    finally:
        certificates.SKEW = before
    issued_s = time.time() + certificates.SKEW.total_seconds() - skew.total_seconds()
    path.write_text(times_line("eve", "administrator", issued_s, time.time() + days * 86_400) + key + signed)
    path.chmod(0o600)
    return path
