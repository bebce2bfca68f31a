"""What agents tell of TCP connections of named services."""

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from cwdp.shared.bus.messages import FromAgent
from cwdp.shared.verbs import Program

TCP_COUNTERS = ("bytes_sent", "bytes_acked", "bytes_received", "bytes_retransmitted")

TCP_ROW = np.dtype(
    [
        ("local_addr", "u1", (16,)),
        ("remote_addr", "u1", (16,)),
        ("local_port", "<u2"),
        ("remote_port", "<u2"),
        ("state", "u1"),
        ("service", "u1"),
        ("mss", "<u2"),
        ("pid", "<u4"),
        ("cwnd", "<u4"),
        ("rtt_us", "<u4"),
        ("min_rtt_us", "<u4"),
        ("retransmissions", "<u4"),
        ("delivery_rate", "<u8"),
        *((name, "<u8") for name in TCP_COUNTERS),
    ]
)
"""A connection by its ends, addresses packed as in `cwdp.shared.addresses`, ports those of the application; its state by the
kernel's number (`STATES`), its service by the place in the report's list, the process or 0, and of `struct tcp_info` what
has these names: `cwnd` in segments, `delivery_rate` in bytes a second, totals in bytes."""

STATES = {
    1: "established",
    4: "fin_wait_1",
    5: "fin_wait_2",
    7: "closed",
    8: "close_wait",
    9: "last_ack",
    11: "closing",
}
"""Those in which data may be under way (include/net/tcp_states.h), and closed."""

CLOSED = 7
KEY_BYTES = 36
"""Both addresses and both ports: what tells connections apart."""


class NicConnections(Struct, frozen=True, kw_only=True):
    """Connections from an address of a NIC: `TCP_ROW`s. `unlisted` counts those left out, as there are too many."""

    nic: str
    rows: bytes
    unlisted: int = 0


class TcpReport(FromAgent, frozen=True, kw_only=True):
    """Connections of named services that have done something since the last report, or are closed; `in_full` all there are.

    `at_ns` is of the host's CLOCK_MONOTONIC, when they were read. Those of a report belong to its `services`.
    """

    at_ns: Annotated[int, Meta(ge=0)]
    nics: list[NicConnections]
    services: Annotated[list[str], Meta(max_length=64)]
    programs: list[Program] = msgspec.field(default_factory=list)
    in_full: bool = False


def connection_keys(rows: NDArray[np.void]) -> NDArray[np.bytes_]:
    """What tells TCP_ROWs apart, to sort and compare; shape (rows,)."""
    octets = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), TCP_ROW.itemsize)
    return np.ascontiguousarray(octets[:, :KEY_BYTES]).view(f"S{KEY_BYTES}").reshape(-1)


def far_keys(keys: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
    """The same connections as their other ends name them; shape (rows,)."""
    octets = keys.astype(f"S{KEY_BYTES}").view(np.uint8).reshape(-1, KEY_BYTES)
    turned = [octets[:, 16:32], octets[:, :16], octets[:, 34:36], octets[:, 32:34]]
    return np.ascontiguousarray(np.concatenate(turned, axis=1)).view(f"S{KEY_BYTES}").reshape(-1)
