"""Windows of a host of a swarm as messages: those that its agent would make, of paths that are numbered already."""

import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cwdp.agent.probing.windows import PATHS_TOLD_S, ROWS_A_MESSAGE
from cwdp.shared.bus.messages import WindowReport
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.windows import table_number


class ToldWindows:
    """What `cwdp.agent.probing.windows.WindowReports` tells, a third of the work.

    Args:
        host: its name.
        nics: its interfaces.
        paths: TOLD_PATHs of all that it may tell of, sorted as agents tell them.
        now_s: reads a clock that only goes forward.
    """

    def __init__(
        self, host: str, nics: Sequence[str], paths: np.ndarray, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._host, self._nics, self._paths, self._now_s = host, list(nics), paths, now_s
        self._is_told, self._is_used = (np.zeros(len(paths), bool) for _ in range(2))
        self._places = np.zeros(len(paths), np.uint32)
        self._said, self._number = b"", 0
        self._told_s = -math.inf

    def of(self, rows: np.ndarray, boot_id: str) -> Iterator[WindowReport]:
        """PLACED_ROWs by their places in `paths`, in that order, as messages of bounded size."""
        for start in range(0, len(rows), ROWS_A_MESSAGE):
            yield self._report(rows[start : start + ROWS_A_MESSAGE], boot_id)

    def _report(self, rows: np.ndarray, boot_id: str) -> WindowReport:
        path, now_s = np.ascontiguousarray(rows["path"]), self._now_s()
        tell = now_s >= self._told_s + PATHS_TOLD_S or not self._is_told[path].all()
        if tell:
            self._told_s = now_s
            self._tell(path)
        self._is_used[path] = True
        rows["path"] = self._places[path]
        return WindowReport(
            host=self._host,
            boot_id=boot_id,
            nics=self._nics,
            table=self._number,
            paths=self._said if tell else b"",
            rows=row_bytes(rows),
        )

    def _tell(self, path: np.ndarray) -> None:
        """Have a table of the paths that have been told of since the last one, and some more."""
        self._is_used[path] = True
        if not np.array_equal(self._is_used, self._is_told):
            self._is_told = self._is_used
            self._places = np.cumsum(self._is_told, dtype=np.uint32) - np.uint32(1)
            self._said = row_bytes(self._paths[self._is_told])
            self._number = table_number(self._said)
        self._is_used = np.zeros(len(self._paths), bool)
