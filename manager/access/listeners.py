"""The manager's TCP listeners: plain HTTP on loopback, HTTPS everywhere else.

People may show a certificate of the fleet's authority in the TLS handshake; who shows one of another is not let through it.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web

from cwdp.errors import ConfigError
from cwdp.shared.identity.credential import write_secret
from manager.access.roles import Role
from manager.config import ManagerConfig, TlsSettings, host_port
from manager.identity.authority import Authority

FILE = "https.pem"
"""In the state directory: the key and the certificate that the authority has signed."""


@dataclass(frozen=True)
class Listener:
    """Where the manager listens.

    Attributes:
        host, port: the address.
        tls: None on loopback.
        names: by which browsers may reach it, besides addresses.
        others: what who shows nothing is.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    names: tuple[str, ...] = ()
    others: Role = Role.NONE

    @property
    def url(self) -> str:
        """Where it is reached."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{shown}:{self.port}/"

    @property
    def cookie(self) -> str:
        """The name of its sessions' cookie; browsers send cookies to all ports of a host, and over TLS only those `__Host-`."""
        return f"cwdp-{self.port}" if self.tls is None else f"__Host-cwdp-{self.port}"

    def is_own(self, host: str) -> bool:
        """Whether it may be asked for by a host name: foreign sites' names may lead here too, through a viewer's browser."""
        if host in ("localhost", self.host, *self.names):
            return True
        try:
            ip_address(host)
        except ValueError:
            return False
        return True

    def site(self, runner: web.AppRunner) -> web.TCPSite:
        """To start listening by."""
        return web.TCPSite(runner, self.host, self.port, ssl_context=self.tls)


def listeners(config: ManagerConfig, authority: Authority) -> tuple[Listener | None, Listener | None]:
    """Where the API is served on TCP, and where the page is; None for nowhere.

    Raises:
        ConfigError: an address is none, or has no certificate that could be for it.
        IdentityError: the certificate cannot be written.
    """
    asked = {"listen": config.listen or "", "page": config.page}
    where = {option: host_port(text, f"--{option}") for option, text in asked.items() if text}
    beyond = {option: host for option, (host, _) in where.items() if not is_loopback(host)}
    context = _context(config, authority, beyond) if beyond else None
    others = Role.VIEWER if config.roles.loopback == "viewer" else Role.NONE

    def made(option: str) -> Listener | None:
        if option not in where:
            return None
        host, port = where[option]
        if option in beyond:
            return Listener(host, port, context, config.tls.names)
        return Listener(host, port, None, config.tls.names, others)

    return made("listen"), made("page")


def is_loopback(host: str) -> bool:
    """Whether only who is on this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(config: ManagerConfig, authority: Authority, beyond: dict[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=authority.root)
    if config.tls.certificate or config.tls.key:
        _load_own(context, config.tls)
        return context
    key, certificate = authority.listener_certificate(_names(beyond, config.tls))
    path = Path(config.state_dir) / FILE
    write_secret(path, key + certificate)
    context.load_cert_chain(path)
    return context


def _names(beyond: dict[str, str], settings: TlsSettings) -> Sequence[str]:
    """What the certificate is for."""
    for option, host in beyond.items():
        if _is_any(host) and not settings.names:
            raise ConfigError(
                f"{option}: {host} is every address of this machine, and the certificate must be for some name",
                f"give the names and addresses by which it is reached as `names` under [tls], or one address as {option}",
            )
    return list(dict.fromkeys([*(host for host in beyond.values() if not _is_any(host)), *settings.names]))


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _load_own(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if not (settings.certificate and settings.key):
        raise ConfigError(
            "[tls] has a certificate without a key, or a key without a certificate",
            "give both files, or neither: then the fleet's authority signs one",
        )
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"[tls]: {settings.certificate} and {settings.key} cannot be used: {error.strerror or error}",
            "they are a certificate with those between it and its authority, and its key, in PEM, readable by the manager",
        ) from error
