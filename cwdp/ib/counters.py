"""Counters of ports: how they are asked for and read, and by how much they have grown. Pure.

IBTA Architecture Specification, volume 1, 16.1.3.5 (PortCounters) and 16.1.4.11 (PortCountersExtended). Those of 32 bits and less
stand still at their most; those of 64 bits go on. PortXmitWait has 64 bits, behind the data in PortCountersExtended, where the
device's ClassPortInfo (16.1.4.1) says so: elsewhere anything may stand there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.umad import MadClass, Request
from cwdp.shared.ib.counters import DATA, ERRORS, NAMES, WAIT, Growth

CLASS_PORT_INFO, PORT_COUNTERS, PORT_COUNTERS_EXTENDED = 0x01, 0x12, 0x1D
HAS_MORE_COUNTERS = 1 << 1
"""In CapabilityMask2: errors and waiting are counted with 64 bits too."""

WIDE_WAIT = np.dtype({"names": [WAIT], "formats": [">u8"], "offsets": [168], "itemsize": 192})
SMALL = np.dtype(
    {
        "names": [*ERRORS, WAIT],
        "formats": [">u2", "u1", "u1", ">u2", ">u2", ">u2", ">u2", ">u2", ">u4"],
        "offsets": [4, 6, 7, 8, 10, 12, 14, 22, 40],
        "itemsize": 192,
    }
)  # fmt: skip
LARGE = np.dtype(
    {
        "names": list(DATA),
        "formats": [">u8"] * 4,
        "offsets": [8, 16, 24, 32],
        "itemsize": 192,
    }
)
MOST = np.array(
    [2 ** (8 * of[name].itemsize) - 1 for of in (SMALL, LARGE) for name in of.names or ()], np.uint64
)
"""Of each counter."""

_WAIT = NAMES.index(WAIT)


@dataclass(frozen=True)
class Reading:
    """Counters of many ports.

    Attributes:
        at_s: a monotonic clock.
        values: in the order of `NAMES`, shape (ports, counters).
        known: whether a port told them, those of 64 bits apart, shape (ports, 2).
        wide: whether waiting is counted with 64 bits, shape (ports,).
    """

    at_s: float
    values: NDArray[np.uint64]
    known: NDArray[np.bool_]
    wide: NDArray[np.bool_]


def ask_class(lid: int) -> Request:
    """For `counts_wide`: what the node that owns a LID can count."""
    return Request(MadClass.PERFORMANCE, CLASS_PORT_INFO, 0, lid)


def counts_wide(data: bytes | None) -> bool:
    """Whether a device says that it counts waiting with 64 bits; CapabilityMask2 are the upper 27 bits of its word."""
    return data is not None and bool(int.from_bytes(data[4:8]) >> 5 & HAS_MORE_COUNTERS)


def ask_counters(lid: int, port: int) -> tuple[Request, Request]:
    """For `reading`: both attributes of a port of the node that owns a LID."""
    select = bytes((0, port))
    return (
        Request(MadClass.PERFORMANCE, PORT_COUNTERS, 0, lid, select),
        Request(MadClass.PERFORMANCE, PORT_COUNTERS_EXTENDED, 0, lid, select),
    )


def reading(told: Sequence[bytes | None], at_s: float, wide: NDArray[np.bool_] | None = None) -> Reading:
    """Of answers to `ask_counters`, two for each port.

    Args:
        told: the answers.
        at_s: a monotonic clock.
        wide: whose devices count waiting with 64 bits, shape (ports,); None for nobody's.
    """
    empty = bytes(SMALL.itemsize)
    known = np.array([data is not None for data in told], bool).reshape(-1, 2)
    parts = [
        np.frombuffer(b"".join(data or empty for data in told[i::2]), of)
        for i, of in enumerate((SMALL, LARGE))
    ]
    columns = [part[name].astype(np.uint64) for part in parts for name in part.dtype.names or ()]
    values = np.stack(columns, axis=1)
    wide = np.zeros(len(values), bool) if wide is None else wide
    waits = np.frombuffer(b"".join(data or empty for data in told[1::2]), WIDE_WAIT)[WAIT]
    values[wide, _WAIT] = waits[wide]
    return Reading(at_s, values, known, wide)


def growth(before: Reading, after: Reading) -> Growth:
    """By how much counters have grown; one that is smaller than it was has begun anew, from 0."""
    is_small = np.arange(len(NAMES)) < len(SMALL.names or ())
    of_small = np.broadcast_to(is_small, after.values.shape).copy()
    of_small[after.wide, _WAIT] = False
    known = np.where(of_small, *((before.known[:, i] & after.known[:, i])[:, None] for i in (0, 1)))
    known[before.wide != after.wide, _WAIT] = False
    was_reset = after.values < before.values
    grown = np.where(was_reset, after.values, after.values - np.where(was_reset, 0, before.values))
    stuck = known & of_small & (after.values == MOST)
    took_s = after.at_s - before.at_s
    per_s = np.where(known & ~stuck, grown / took_s if took_s > 0 else np.nan, np.nan)
    return Growth(per_s, stuck)
