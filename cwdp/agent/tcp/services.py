"""Which TCP connections belong to which named service: the section `[tcp]` of the agent's configuration."""

import re
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from cwdp.agent.tcp.diag import PortRange
from cwdp.errors import ConfigError
from cwdp.shared.bus.servers import server_urls

SSH_PORT = 22
MANAGEMENT_PORTS = (4222, 6222, 9464, 9465)
"""The bus, its servers among themselves, the manager's API and its page, by default."""

SSH_UNITS = ("ssh.service", "sshd.service", "ssh.socket", "sshd.socket")
MOST_SERVICES, MOST_PORTS, MOST_CGROUPS, MOST_PIDS = 64, 64, 16, 64
MOST_RANGES = 256
"""Of all services; the kernel is asked for each."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
HIGHEST_PORT = 65_535


class TcpService(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Connections with one of `ports` at either end, of a cgroup at or below one of `cgroups`, or of one of some processes.

    Attributes:
        ports: numbers, and ranges such as "10000-10099".
        cgroups: paths in the hierarchy of version 2, with `*` for any name of one level.
        pids: the processes.
    """

    ports: Annotated[list[int | str], Meta(max_length=MOST_PORTS)] = []
    cgroups: Annotated[list[str], Meta(max_length=MOST_CGROUPS)] = []
    pids: Annotated[list[Annotated[int, Meta(ge=2)]], Meta(max_length=MOST_PIDS)] = []


class TcpConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Connections of these services are measured; of others nothing is known."""

    service: Annotated[dict[str, TcpService], Meta(min_length=1, max_length=MOST_SERVICES)]


class Service(Struct, frozen=True, kw_only=True):
    """A service as it is looked for; `ports` are ranges, both ends included."""

    name: str
    ports: list[PortRange] = msgspec.field(default_factory=list)
    cgroups: list[str] = msgspec.field(default_factory=list)
    pids: list[int] = msgspec.field(default_factory=list)


def services(config: TcpConfig, bus: str) -> list[Service]:
    """The services of a configuration.

    Args:
        config: the section.
        bus: the URLs of its servers.

    Raises:
        ConfigError: a service names nothing, something that is no such thing, or what is never touched.
    """
    refused = refused_ports(bus)
    found = [_service(name, one, refused) for name, one in config.service.items()]
    count = sum(len(service.ports) for service in found)
    if count > MOST_RANGES:
        raise ConfigError(
            f"[tcp.service] names {count} ports and ranges", f"name at most {MOST_RANGES}, in ranges"
        )
    return found


def refused_ports(bus: str) -> dict[int, str]:
    """Ports whose connections are never looked at, whoever has them, and whose they are."""
    ports = dict.fromkeys(MANAGEMENT_PORTS, "cwdp's own")
    ports |= {urlsplit(url).port or MANAGEMENT_PORTS[0]: "the bus's" for url in server_urls(bus)}
    return ports | {SSH_PORT: "ssh's"}


def is_ssh(cgroup: PurePosixPath) -> bool:
    """Whether a cgroup is ssh's own."""
    return any(part in SSH_UNITS or part.startswith(("ssh@", "sshd@")) for part in cgroup.parts)


def _service(name: str, told: TcpService, refused: dict[int, str]) -> Service:
    where = f"[tcp.service.{name}]"
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: {name!r} is no name for a service", "use up to 32 letters, digits, _ . and -"
        )
    if not (told.ports or told.cgroups or told.pids):
        raise ConfigError(f"{where} names no connections", "give it ports, cgroups or pids")
    ports = [_range(where, port) for port in told.ports]
    for low, high in ports:
        _require_free(where, low, high, refused)
    for cgroup in told.cgroups:
        _check_cgroup(where, cgroup)
    return Service(name=name, ports=ports, cgroups=told.cgroups, pids=told.pids)


def _range(where: str, told: int | str) -> PortRange:
    low = high = told if isinstance(told, int) else 0
    if isinstance(told, str):
        match = _RANGE.fullmatch(told)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < low <= high <= HIGHEST_PORT:
        raise ConfigError(
            f"{where}: {told!r} is no port and no range of ports", 'for instance 5201, or "10000-10099"'
        )
    return low, high


def _require_free(where: str, low: int, high: int, refused: dict[int, str]) -> None:
    for port, whose in sorted(refused.items()):
        if low <= port <= high:
            raise ConfigError(
                f"{where}: port {port} is {whose}, which is never touched", "leave it out of ports"
            )


def _check_cgroup(where: str, cgroup: str) -> None:
    path = PurePosixPath(cgroup)
    if not path.is_absolute() or ".." in path.parts or "**" in path.parts:
        raise ConfigError(
            f"{where}: {cgroup!r} is no path of a cgroup",
            "begin at the root, for instance /system.slice/x.service",
        )
    if len(path.parts) == 1:
        raise ConfigError(f"{where}: the root cgroup is every connection of the host", "name the services")
    if is_ssh(path):
        raise ConfigError(f"{where}: {cgroup} is ssh's, which is never touched", "leave it out of cgroups")
