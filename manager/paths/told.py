"""The paths that hosts have told of, by which rows of windows name them. No I/O."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import WindowReport
from cwdp.shared.bus.windows import table_number, told_paths, window_rows


class ToldPaths:
    """The latest table of each host: its number, and the paths."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[int, NDArray[np.void]]] = {}

    def rows(self, report: WindowReport) -> NDArray[np.void] | None:
        """WINDOW_ROWs of a report; None where its table was lost on the way: its host tells it again in a second.

        Raises:
            ValueError: the bytes are no rows, or no paths.
        """
        if report.paths:
            self._tables[report.host] = table_number(report.paths), told_paths(report.paths)
        number, paths = self._tables.get(report.host, (None, None))
        if paths is None or number != report.table:
            return None
        return window_rows(paths, report.rows)

    def keep(self, hosts: Collection[str]) -> None:
        """Forget all other hosts."""
        self._tables = {host: table for host, table in self._tables.items() if host in hosts}
