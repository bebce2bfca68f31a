"""What the agent and the process that looks at TCP connections tell each other."""

import msgspec
from msgspec import Struct

from cwdp.agent.tcp.services import Service
from cwdp.shared.verbs import Program

COUNTERS = (
    "tcp_reads",
    "tcp_read_failed",
    "tcp_refused",
    "tcp_other_address",
    "tcp_unlisted",
    "tcp_closed",
    "tcp_programs_unlisted",
)
STATES = ("tcp_connections", "tcp_read_us")
"""What of the process's numbers are no totals."""


class TcpOrder(Struct, frozen=True, kw_only=True):
    """What to look for: connections of services, from the addresses of NICs, but for refused ports; how often at most."""

    services: list[Service]
    refused_ports: list[int] = msgspec.field(default_factory=list)
    nics: dict[str, list[str]] = msgspec.field(default_factory=dict)
    interval_s: float = 0.25


class NicRows(Struct, frozen=True, kw_only=True):
    """`cwdp.shared.connections.TCP_ROW`s of connections from a NIC's addresses, as a message has them; and how many are left out."""

    nic: str
    rows: bytes
    unlisted: int = 0


class TcpWord(Struct, frozen=True, kw_only=True):
    """What was seen at `at_ns`, CLOCK_MONOTONIC; see `cwdp.shared.connections.TcpReport`."""

    at_ns: int
    nics: list[NicRows]
    programs: list[Program]
    in_full: bool
    counters: dict[str, int]
