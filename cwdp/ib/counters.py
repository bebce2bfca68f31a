"""Counters of ports: how they are asked for and read, and by how much they have grown. Pure.

IBTA Architecture Specification, volume 1, 16.1.3.5 (PortCounters) and 16.1.4.11 (PortCountersExtended). Those of 32 bits and less
stand still at their most; those of 64 bits go on. Of errors and waiting there are 64 bits, behind the data in PortCountersExtended,
where the device's ClassPortInfo (16.1.4.1) says so: then PortCounters is not asked for. Elsewhere anything may stand there.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.umad import DATA_BYTES, MadClass, Request
from cwdp.shared.ib.counters import DATA, ERRORS, NAMES, WAIT, Growth

CLASS_PORT_INFO, PORT_COUNTERS, PORT_COUNTERS_EXTENDED = 0x01, 0x12, 0x1D
HAS_MORE_COUNTERS = 1 << 1
"""In CapabilityMask2: errors and waiting are counted with 64 bits too."""

SMALL = np.dtype(
    {
        "names": [*ERRORS, WAIT],
        "formats": [">u2", "u1", "u1", ">u2", ">u2", ">u2", ">u2", ">u2", ">u4"],
        "offsets": [4, 6, 7, 8, 10, 12, 14, 22, 40],
        "itemsize": DATA_BYTES,
    }
)  # fmt: skip
LARGE = np.dtype(
    {
        "names": [*DATA, *ERRORS, WAIT],
        "formats": [">u8"] * 13,
        "offsets": [8, 16, 24, 32, 72, 80, 88, 96, 104, 112, 120, 160, 168],
        "itemsize": DATA_BYTES,
    }
)
"""Errors and waiting only of devices that say so."""

SMALL_MOST = np.array([2 ** (8 * SMALL[name].itemsize) - 1 for name in (*ERRORS, WAIT)], np.uint64)
"""Of each counter of `SMALL`."""

_SMALL, _LARGE = range(2)
_FROM_SMALL = slice(0, len(SMALL_MOST))
"""The columns of `NAMES` that a device may count with 32 bits or less."""


class Told:
    """What ports have told of their counters, PortCounters and PortCountersExtended of each.

    Args:
        ports: how many.

    Attributes:
        data: zeros where nothing has come, uint8, shape (ports, 2, `DATA_BYTES`).
        came: shape (ports, 2).
    """

    def __init__(self, ports: int) -> None:
        self.data = np.zeros((ports, 2, DATA_BYTES), np.uint8)
        self.came = np.zeros((ports, 2), bool)

    def take(self, places: NDArray[np.intp], data: NDArray[np.uint8], came: NDArray[np.bool_]) -> None:
        """Put down answers to what `ask_counters` made."""
        self.data.reshape(-1, DATA_BYTES)[places] = data
        self.came.reshape(-1)[places] = came


@dataclass(frozen=True)
class Reading:
    """Counters of many ports.

    Attributes:
        at_s: a monotonic clock.
        values: in the order of `NAMES`, shape (ports, counters).
        known: whether a port told them, data apart, shape (ports, 2).
        wide: whether errors and waiting are counted with 64 bits, shape (ports,).
    """

    at_s: float
    values: NDArray[np.uint64]
    known: NDArray[np.bool_]
    wide: NDArray[np.bool_]


def ask_class(lid: int) -> Request:
    """For `counts_wide`: what the node that owns a LID can count."""
    return Request(MadClass.PERFORMANCE, CLASS_PORT_INFO, 0, lid)


def counts_wide(data: bytes | None) -> bool:
    """Whether a device says that it counts errors and waiting with 64 bits; CapabilityMask2 are the upper 27 bits of its word."""
    return data is not None and bool(int.from_bytes(data[4:8]) >> 5 & HAS_MORE_COUNTERS)


def ask_counters(ports: Iterable[tuple[int, int, int, bool]]) -> tuple[list[Request], NDArray[np.intp]]:
    """What is to be asked of ports, and where `Told.take` is to put the answers.

    Args:
        ports: of each its row, the LID of its node, its number, and whether its device counts all with 64 bits.
    """
    requests, places = [], []
    for row, lid, number, is_wide in ports:
        attributes = [(_LARGE, PORT_COUNTERS_EXTENDED)]
        if not is_wide:
            attributes.append((_SMALL, PORT_COUNTERS))
        for which, attribute in attributes:
            requests.append(Request(MadClass.PERFORMANCE, attribute, 0, lid, bytes((0, number))))
            places.append(2 * row + which)
    return requests, np.array(places, np.intp)


def reading(told: Told, at_s: float, wide: NDArray[np.bool_]) -> Reading:
    """Of what ports have told.

    Args:
        told: of all of them.
        at_s: a monotonic clock.
        wide: whose devices count all with 64 bits, shape (ports,).
    """
    small, large = (_columns(told.data[:, i], of) for i, of in enumerate((SMALL, LARGE)))
    known = told.came.copy()
    known[wide, _SMALL] = known[wide, _LARGE]
    values = np.stack([large[name] for name in NAMES], axis=1)
    narrow = ~wide
    values[narrow, _FROM_SMALL] = np.stack([small[name] for name in NAMES[_FROM_SMALL]], axis=1)[narrow]
    return Reading(at_s, values, known, wide)


def _columns(data: NDArray[np.uint8], of: np.dtype[np.void]) -> dict[str, NDArray[np.uint64]]:
    rows = data.view(of)[:, 0]
    return {name: rows[name].astype(np.uint64) for name in of.names or ()}


def growth(before: Reading, after: Reading) -> Growth:
    """By how much counters have grown; one that is smaller than it was has begun anew, from 0."""
    both = before.known & after.known
    known = np.repeat(both[:, _LARGE:], len(NAMES), axis=1)
    known[:, _FROM_SMALL] = (both[:, _SMALL] & (before.wide == after.wide))[:, None]
    was_reset = after.values < before.values
    grown = np.where(was_reset, after.values, after.values - np.where(was_reset, 0, before.values))
    stuck = np.zeros(after.values.shape, bool)
    stuck[:, _FROM_SMALL] = (after.values[:, _FROM_SMALL] == SMALL_MOST) & ~after.wide[:, None]
    stuck &= known
    took_s = after.at_s - before.at_s
    per_s = np.where(known & ~stuck, grown / took_s if took_s > 0 else np.nan, np.nan)
    return Growth(per_s, stuck)
