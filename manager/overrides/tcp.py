"""What operators want of TCP connections: each is steered at both its ends, and each direction has a path of its own."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from msgspec import Struct

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.tcp import Port, SteerTcp, TcpKey, tcp_key
from manager.overrides.steering import SourcePort
from manager.overrides.store import OverrideTable

EndKey = tuple[str, TcpKey]
"""A host, and a connection as that host has it."""


class TcpEnd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One end of a connection, and by which path and backup its segments leave from there."""

    host: str
    nic: str
    addr: str
    port: Port
    sport: SourcePort
    backup_sport: SourcePort | None = None

    @property
    def name(self) -> str:
        """As `cwdp tcp` shows it."""
        return f"{nic_id(self.host, self.nic)}:{self.port}"

    @property
    def path(self) -> str:
        """For people."""
        return f"{self.sport}" if self.backup_sport is None else f"{self.sport} (backup {self.backup_sport})"


class TcpOverride(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one connection's segments are to go: those from the end that the operator named first, and those back."""

    near: TcpEnd
    far: TcpEnd

    @property
    def host(self) -> str:
        """The host of the end named first."""
        return self.near.host

    @property
    def nic(self) -> str:
        """The NIC of the end named first."""
        return self.near.nic

    @property
    def ends(self) -> tuple[TcpEnd, TcpEnd]:
        """Both."""
        return self.near, self.far

    @property
    def name(self) -> str:
        """As `cwdp tcp` shows the connection."""
        return f"{self.near.name} - {self.far.name}"

    @property
    def key(self) -> tuple[Any, ...]:
        """What there is one override for at most: the connection, whichever end is named first."""
        return tuple(sorted((end.host, end.nic, end.addr, end.port) for end in self.ends))

    def __str__(self) -> str:
        return f"TCP {self.name} leaves from {self.near.path}, and comes back from {self.far.path}"

    def messages(self) -> list[tuple[str, SteerTcp]]:
        """For the documents of both hosts."""
        return [(end.host, _message(end, other)) for end, other in (self.ends, self.ends[::-1])]


class TcpTable(OverrideTable[TcpOverride]):
    """Every override for a TCP connection."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, TcpOverride)

    def all(self, host: str = "") -> list[TcpOverride]:
        """Those that a host is an end of, or all, in order."""
        return [one for one in super().all() if host in ("", one.near.host, one.far.host)]

    def messages(self) -> dict[str, list[SteerTcp]]:
        """What each host is to be told."""
        by_host: defaultdict[str, list[SteerTcp]] = defaultdict(list)
        for override in self.all():
            for host, message in override.messages():
                by_host[host].append(message)
        return dict(by_host)

    def by_end(self) -> dict[EndKey, SteerTcp]:
        """What each end is to be told, by its host and connection."""
        return {
            (host, tcp_key(message)): message
            for override in self.all()
            for host, message in override.messages()
        }


def _message(end: TcpEnd, other: TcpEnd) -> SteerTcp:
    return SteerTcp(
        nic=end.nic,
        local_addr=end.addr,
        remote_addr=other.addr,
        local_port=end.port,
        remote_port=other.port,
        sport=end.sport,
        backup_sport=end.backup_sport,
        flow_label=":" in end.addr,
        override=True,
    )
