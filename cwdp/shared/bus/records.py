"""Rows that travel in bulk: fixed layouts, little-endian, within a message as `cwdp.shared.bus.packing` turns them.

Addresses are packed as in `cwdp.shared.addresses`. `direction` is 0 for packets that left a NIC, 1 for those that came.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.addresses import address_bytes, bytes_address

Delays = NDArray[np.int64]

EGRESS, INGRESS = 0, 1
DIRECTIONS = ("egress", "ingress")
NAK_KINDS = (
    "rnr",
    "psn_sequence",
    "invalid_request",
    "remote_access",
    "remote_operation",
    "other",
)
"""By the syndrome of the AETH (IBTA 9.7.5.2.2), in the order of `naks`."""

QP_COUNTERS = (
    "packets",
    "bytes",
    "ce_marks",
    "cnps",
    "acks",
    "psn_retransmitted",
    "psn_gaps",
    "psn_reordered",
)

QP_ROW = np.dtype(
    [
        ("addr", "u1", (16,)),
        ("qpn", "<u4"),
        ("direction", "u1"),
        ("reserved", "u1"),
        ("sport", "<u2"),
        ("slice", "<u4"),
        ("naks", "<u4", (len(NAK_KINDS),)),
        *((name, "<u8") for name in QP_COUNTERS),
        ("age_ns", "<u8"),
    ]
)
"""One direction of a queue pair: the other end's address, the destination QPN, totals, and how long ago it was seen."""

SAMPLE_ROW = np.dtype(
    [
        ("time_ns", "<i8"),
        ("addr", "u1", (16,)),
        ("qpn", "<u4"),
        ("psn", "<u4"),
        ("bound_ns", "<u4"),
        ("sport", "<u2"),
        ("direction", "u1"),
        ("reserved", "u1"),
    ]
)
"""A data packet as it passed one end, on the common timeline; `psn` is opcode << 24 | PSN."""

BURST_ROW = np.dtype(
    [
        ("addr", "u1", (16,)),
        ("qpn", "<u4"),
        ("direction", "u1"),
        ("reserved", "u1", (3,)),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("packets", "<u8"),
        ("bytes", "<u8"),
        ("ce_marks", "<u4"),
        ("resent", "<u4"),
        ("naks", "<u4"),
        ("bound_ns", "<u4"),
    ]
)
"""Data packets of one direction of a queue pair with no gap between them, on the common timeline, by the other end's address
and the destination QPN. `end_ns` is known to a jiffy of the host (1 to 10 ms). `packets` are of data, `bytes` of all IP packets.
What is counted is so until the next burst began, or this one was closed: packets marked CE, those that left again or arrived
again, and NAKs, all in this direction."""

VERBS_ROW = np.dtype(
    [
        ("addr", "u1", (16,)),
        ("qpn", "<u4"),
        ("lqpn", "<u4"),
        ("pid", "<u4"),
        ("sport", "<u2"),
        ("actuator", "u1"),
        ("flags", "u1"),
    ]
)
"""A queue pair that the verbs shim has told of: the other end's address, the destination QPN, its own, the process, the source
port (0: its device's choice), the place in `cwdp.shared.bus.messages.ACTUATORS` of what can move it, and VERBS_... flags."""

VERBS_BY_TABLE, VERBS_REFUSED = 1, 2
"""Its port is of the agent's table; its last move came to nothing."""

WINDOW_NS = 100_000_000
NO_DELAY_NS = -(2**31)
LARGEST_NS = 2**31 - 1
WINDOW_DELAYS = ("fwd_min_ns", "fwd_mean_ns", "rev_min_ns", "rev_mean_ns")
LONGEST_ROW = 16
"""Windows that one WINDOW_ROW may be of."""


WINDOW_ROW = np.dtype(
    [
        ("window", "<i8"),
        ("dst_addr", "u1", (16,)),
        ("sport", "<u2"),
        ("reply_sport", "<u2"),
        ("sent", "<u2"),
        ("lost", "<u2"),
        *((name, "<i4") for name in WINDOW_DELAYS),
        ("bound_ns", "<u4"),
        ("nic", "u1"),
        ("further", "u1"),
        ("reserved", "<u2"),
    ]
)
"""Probes of one path that left in one window, number `timeline // WINDOW_NS`: how many, how many were lost, and
their one-way delays there and back, NO_DELAY_NS where there is none. `nic` is the source's place in the message's
list. Windows in which nothing was lost or queued are told together, and in a large fleet all
in which nothing was lost: a row is of `further` ones too."""

KEY_BYTES = 21
_PATH = slice(8, 28)


def told_delays(fwd_ns: Delays, rev_ns: Delays) -> tuple[Delays, Delays]:
    """Delays there and back as rows have them: int64 of one shape.

    What is too large is clipped. But where one way is as much too long as the other is too short, two timelines are far
    apart, and the lowest 32 bits are told, which are whole again once it is known how far.
    """
    opposite = (fwd_ns < 0) != (rev_ns < 0)
    apart = opposite & (np.abs(np.where(opposite, fwd_ns + rev_ns, 0)) <= LARGEST_NS)
    fwd_ns, rev_ns = (
        np.where(apart, within_32_bits(each), np.clip(each, NO_DELAY_NS + 1, LARGEST_NS))
        for each in (fwd_ns, rev_ns)
    )
    return fwd_ns, rev_ns


def within_32_bits(delay_ns: Delays) -> Delays:
    """The lowest 32 bits of delays, never NO_DELAY_NS: int64 of any shape."""
    told_ns = ((delay_ns - NO_DELAY_NS) & (2**32 - 1)) + NO_DELAY_NS
    return np.asarray(told_ns + (told_ns == NO_DELAY_NS), np.int64)


def as_bytes(rows: NDArray[np.void]) -> NDArray[np.void]:
    """The same rows without their fields: numpy copies these some twenty times as fast, and need not work out what type fits them all."""
    return rows.view(f"V{rows.dtype.itemsize}")


def taken(rows: NDArray[np.void], places: slice | NDArray[np.intp] | NDArray[np.bool_]) -> NDArray[np.void]:
    """As `rows[places]`, in a tenth of the time."""
    found: NDArray[np.void] = as_bytes(rows)[places].view(rows.dtype)
    return found


def together(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Rows of one layout from several parts, of which there is one at least, one's behind another's."""
    found: NDArray[np.void] = np.concatenate([as_bytes(rows) for rows in parts]).view(parts[0].dtype)
    return found


def qp_keys(rows: NDArray[np.void]) -> NDArray[np.bytes_]:
    """What tells QP_ROWs or BURST_ROWs of one NIC apart (address, QPN, direction), to sort and compare; shape (rows,)."""
    return _keys(rows, slice(0, KEY_BYTES))


def path_keys(rows: NDArray[np.void]) -> NDArray[np.bytes_]:
    """What tells WINDOW_ROWs of one NIC's paths apart (address and ports), to sort and compare; shape (rows,)."""
    return _keys(rows, _PATH)


def _keys(rows: NDArray[np.void], part: slice) -> NDArray[np.bytes_]:
    """Some bytes of each row as one value, shape (rows,)."""
    flat = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
    keys: NDArray[np.bytes_] = np.ascontiguousarray(flat[:, part]).view(f"S{part.stop - part.start}").ravel()
    return keys


def qp_as_json(row: np.void) -> dict[str, Any]:
    """A QP_ROW for programs; its age as of when it was read."""
    return {
        "direction": DIRECTIONS[row["direction"]],
        "peer_addr": shown_address(row["addr"].tobytes()),
        "qpn": int(row["qpn"]),
        "sport": int(row["sport"]),
        "slice": int(row["slice"]),
        **{name: int(row[name]) for name in QP_COUNTERS},
        "naks": dict(zip(NAK_KINDS, row["naks"].tolist(), strict=True)),
    }


def packed_address(text: str) -> bytes:
    """An address as rows have it.

    Raises:
        ValueError: it is none.
    """
    return address_bytes(ip_address(text))


def shown_address(packed: bytes) -> str:
    """An address of a row as people write it."""
    return str(bytes_address(packed))
