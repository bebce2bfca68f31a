"""What agents say of each edge and each path, as rows of one message: fits of clocks, losses and delays.

Sources and destinations are named once in a message, and rows give their places in these lists.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from cwdp.shared.bus.packing import row_bytes, rows_of
from cwdp.shared.bus.records import LARGEST_NS, NO_DELAY_NS

NEVER_NS = -(2**63)
NO_BOUND_NS = 2**32 - 1

Places = Annotated[list[str], Meta(max_length=65_536)]


class EdgeFit(Struct, frozen=True, kw_only=True):
    """One support-vector fit over one window, made by the initiator `src` (both are NIC names).

    When the initiator's clock shows `ref_local_ns`, the peer's shows
    `ref_local_ns + offset_base_ns + offset_ns`; the difference grows by `slope` per ns of the initiator's clock.
    In a `torn` fit the two clouds overlap, so a clock stepped or lied within the window; its numbers are void.
    Where a clock was found to have changed lately, the fit rests on what came after `since_local_ns`. It is `young` for
    some seconds, and `cut` as long as too little has come: its numbers are void. `apart` is how fast the clocks were seen
    to move apart then, and `own` that most of the initiator's edges were, so that it must have been its clock.
    """

    src: str
    dst: str
    ref_local_ns: int
    offset_base_ns: int
    offset_ns: float
    slope: float
    margin_ns: float
    sigma_offset_ns: float
    sigma_out_ns: float
    sigma_back_ns: float
    sigma_slope: float
    points: float
    pure_share: float
    torn: bool = False
    cut: bool = False
    young: bool = False
    own: bool = False
    apart: float = 0.0
    since_local_ns: int | None = None


FLOATS = (
    "offset_ns",
    "slope",
    "margin_ns",
    "sigma_offset_ns",
    "sigma_out_ns",
    "sigma_back_ns",
    "sigma_slope",
    "points",
    "pure_share",
    "apart",
)
FLAGS = ("torn", "cut", "young", "own")

FIT_ROW = np.dtype(
    [
        ("src", "<u2"),
        ("dst", "<u2"),
        *((name, "u1") for name in FLAGS),
        *((name, "<i8") for name in ("ref_local_ns", "offset_base_ns", "since_local_ns")),
        *((name, "<f8") for name in FLOATS),
    ]
)
"""An `EdgeFit`; `since_local_ns` is NEVER_NS for none."""


class PathStat(Struct, frozen=True, kw_only=True):
    """Probes of one path and their one-way delays on the common timeline, since the last report.

    Delays are None while either end is not synced. Between pods they hold how far the two timelines are apart. `fwd` is source to destination by `sport`, `rev` the
    way back by `reply_sport`. `bound_ns` is the sum of both hosts' clock bounds. `queued` counts pairs whose
    spacing changed on the way.
    """

    src: str
    dst: str
    sport: int
    reply_sport: int
    sent: int
    lost: int
    queued: int
    rtt_min_ns: int | None
    fwd_min_ns: int | None
    fwd_p50_ns: int | None
    fwd_p99_ns: int | None
    rev_min_ns: int | None
    rev_p50_ns: int | None
    rev_p99_ns: int | None
    bound_ns: int | None


COUNTS = ("sent", "lost", "queued")
DELAYS = (
    "fwd_min_ns",
    "fwd_p50_ns",
    "fwd_p99_ns",
    "rev_min_ns",
    "rev_p50_ns",
    "rev_p99_ns",
    "rtt_min_ns",
)

PATH_ROW = np.dtype(
    [
        ("src", "<u2"),
        ("dst", "<u2"),
        ("sport", "<u2"),
        ("reply_sport", "<u2"),
        *((name, "<u4") for name in COUNTS),
        *((name, "<i4") for name in DELAYS),
        ("bound_ns", "<u4"),
    ]
)
"""A `PathStat`; NO_DELAY_NS and NO_BOUND_NS stand for None."""


Ends = tuple[list[str], list[str], bytes]
"""The NICs that rows are from and to, and which of these each row has."""


class EdgeRows(Struct, frozen=True, kw_only=True):
    """Rows of edges or paths from some NICs to others, named as `HOST/IFNAME`."""

    srcs: Places = []
    dsts: Places = []
    rows: bytes = b""

    def read(self, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        """The rows.

        Raises:
            ValueError: the bytes are no whole number of rows, or one is of a NIC that is not named.
        """
        rows = rows_of(self.rows, dtype)
        if (rows["src"] >= len(self.srcs)).any() or (rows["dst"] >= len(self.dsts)).any():
            raise ValueError("a row is of a NIC that is not named")
        return rows

    def ends(self, rows: int, end_bytes: int) -> Ends:
        """What its rows, so many, are of, to tell whether another message is of the same.

        Equal bytes of all rows stand together (`cwdp.shared.bus.packing`), so those `end_bytes` that name a row do.
        """
        return self.srcs, self.dsts, self.rows[: end_bytes * rows]


def fit_rows(fits: Sequence[EdgeFit]) -> EdgeRows:
    """Fits for a message."""
    return _rows_of(fits, FIT_ROW, _fit_stored)


def path_rows(stats: Sequence[PathStat]) -> EdgeRows:
    """Statistics of paths for a message; what is too large is clipped."""
    return _rows_of(stats, PATH_ROW, _as_stored)


def _rows_of(
    measured: Sequence[Struct], dtype: np.dtype[np.void], stored: Callable[[str, Any], Any]
) -> EdgeRows:
    """From one structure a row; a name's place is that of its first appearance."""
    srcs, dsts = (_places(getattr(each, end) for each in measured) for end in ("src", "dst"))
    rows = np.zeros(len(measured), dtype)
    for end, places in (("src", srcs), ("dst", dsts)):
        rows[end] = [places[getattr(each, end)] for each in measured]
    for name in (dtype.names or ())[2:]:
        rows[name] = [stored(name, getattr(each, name)) for each in measured]
    return EdgeRows(srcs=list(srcs), dsts=list(dsts), rows=row_bytes(rows))


def _places(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def _fit_stored(_: str, value: float | None) -> float:
    return NEVER_NS if value is None else value


def _as_stored(name: str, value: int | None) -> int:
    if name in DELAYS:
        return NO_DELAY_NS if value is None else min(max(value, NO_DELAY_NS + 1), LARGEST_NS)
    return NO_BOUND_NS if value is None else min(value, NO_BOUND_NS - 1)
