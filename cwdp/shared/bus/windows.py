"""Windows of probes as they travel: a host tells its paths now and then, and rows name their places among these.

What a path is takes more room than what became of its probes, and is the same from message to message.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import WindowReport
from cwdp.shared.bus.packing import row_bytes, rows_of
from cwdp.shared.bus.records import WINDOW_ROW

PATH = ("nic", "dst_addr", "sport", "reply_sport")
MEASURED = (
    "window",
    "sent",
    "lost",
    "fwd_min_ns",
    "fwd_mean_ns",
    "rev_min_ns",
    "rev_mean_ns",
    "bound_ns",
    "further",
)

TOLD_PATH = np.dtype([(name, WINDOW_ROW[name]) for name in PATH])
"""A path, by the columns of a WINDOW_ROW."""

PLACED_ROW = np.dtype([("path", "<u4"), *((name, WINDOW_ROW[name]) for name in MEASURED)])
"""A WINDOW_ROW whose path is told by its place in a table."""

_KEY = f"S{TOLD_PATH.itemsize}"


class PathTable:
    """The paths of a host, as told.

    Args:
        paths: TOLD_PATHs, each once, sorted as `paths_in` does.
    """

    def __init__(self, paths: NDArray[np.void]) -> None:
        self.paths = paths
        self._keys = _keys(paths)
        self.said = row_bytes(paths)
        self.number = table_number(self.said)

    def places(self, paths: NDArray[np.void]) -> NDArray[np.intp] | None:
        """Where paths are in it; None where one is not."""
        keys = _keys(paths)
        places = np.searchsorted(self._keys, keys)
        if len(keys) and (not len(self._keys) or (self._keys[places % len(self._keys)] != keys).any()):
            return None
        return places

    def report(
        self, host: str, nics: Sequence[str], rows: NDArray[np.void], places: NDArray[np.intp], *, tell: bool
    ) -> WindowReport:
        """Rows as a message, path by path, with the table itself or without."""
        order = np.argsort(places, kind="stable")
        placed, rows = np.zeros(len(rows), PLACED_ROW), _at(rows, order)
        placed["path"] = places[order]
        for name in MEASURED:
            placed[name] = rows[name]
        return WindowReport(
            host=host,
            nics=list(nics),
            table=self.number,
            paths=self.said if tell else b"",
            rows=row_bytes(placed),
        )


def table_number(said: bytes) -> int:
    """What a table of paths goes by: CRC-32 of its bytes."""
    return zlib.crc32(said)


def paths_of(rows: NDArray[np.void]) -> NDArray[np.void]:
    """The TOLD_PATH of each WINDOW_ROW."""
    paths = np.zeros(len(rows), TOLD_PATH)
    for name in PATH:
        paths[name] = rows[name]
    return paths


def each_once(paths: NDArray[np.void]) -> NDArray[np.void]:
    """TOLD_PATHs, each once, sorted."""
    return np.unique(_keys(paths)).view(TOLD_PATH)


def window_report(host: str, nics: Sequence[str], rows: NDArray[np.void]) -> WindowReport:
    """WINDOW_ROWs as a message that tells its paths itself."""
    paths = paths_of(rows)
    table = PathTable(each_once(paths))
    places = table.places(paths)
    assert places is not None
    return table.report(host, nics, rows, places, tell=True)


def told_paths(said: bytes) -> NDArray[np.void]:
    """The paths of a table, as WINDOW_ROWs of which nothing else is known.

    Raises:
        ValueError: the bytes are no whole number of paths.
    """
    paths = rows_of(said, TOLD_PATH)
    rows = np.zeros(len(paths), WINDOW_ROW)
    for name in PATH:
        rows[name] = paths[name]
    return rows


def placed_rows(said: bytes, paths: int) -> NDArray[np.void]:
    """PLACED_ROWs of a message whose table has so many paths.

    Raises:
        ValueError: the bytes are no whole number of rows, or a row is of a path that is not told.
    """
    placed = rows_of(said, PLACED_ROW)
    if len(placed) and placed["path"].max() >= paths:
        raise ValueError("a row is of a path that is not told")
    return placed


def _at(rows: NDArray[np.void], places: NDArray[np.integer[Any]]) -> NDArray[np.void]:
    """Rows at some places: as `rows[places]`, in a tenth of the time."""
    whole = np.ascontiguousarray(rows).view(f"V{rows.dtype.itemsize}")
    return whole.take(places).view(rows.dtype)


def _keys(paths: NDArray[np.void]) -> NDArray[np.bytes_]:
    return np.ascontiguousarray(paths).view(_KEY).reshape(-1)
