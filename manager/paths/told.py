"""The paths that hosts have told of, by which rows of windows name them. No I/O."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import WindowReport, nic_id
from cwdp.shared.bus.windows import placed_rows, table_number, told_paths


@dataclass(frozen=True, eq=False)
class HostPaths:
    """A table of paths as a host has told it, until it tells another one.

    Attributes:
        host: whose it is.
        told_nics: the list of NICs that came with it.
        nics: their fabric-wide names.
        said: its bytes.
        number: what it goes by.
        paths: WINDOW_ROWs of which nothing but the path is known, shape (paths,).
        has_nic: whether a path's NIC is in the list, shape (paths,).
        names_all_nics: whether that holds for all.
    """

    host: str
    told_nics: list[str]
    nics: list[str]
    said: bytes
    number: int
    paths: NDArray[np.void]
    has_nic: NDArray[np.bool_]
    names_all_nics: bool


class ToldPaths:
    """The latest table of each host."""

    def __init__(self) -> None:
        self._tables: dict[str, HostPaths] = {}

    def read(self, report: WindowReport) -> tuple[HostPaths, NDArray[np.void]] | None:
        """The table of a report, and its PLACED_ROWs; None where it was lost on the way: its host tells it again in a second.

        Most reports are by the table of the one before, which is the same object then.

        Raises:
            ValueError: the bytes are no rows, or no paths.
        """
        table = self._tables.get(report.host)
        if report.paths and (table is None or table.said != report.paths):
            table = self._tables[report.host] = _table(report, report.paths)
        if table is None or table.number != report.table:
            return None
        if table.told_nics != report.nics:
            table = self._tables[report.host] = _table(report, table.said)
        return table, placed_rows(report.rows, len(table.paths))

    def keep(self, hosts: Collection[str]) -> None:
        """Forget all other hosts."""
        self._tables = {host: table for host, table in self._tables.items() if host in hosts}


def _table(report: WindowReport, said: bytes) -> HostPaths:
    paths = told_paths(said)
    has_nic = paths["nic"] < len(report.nics)
    nics = [nic_id(report.host, nic) for nic in report.nics]
    return HostPaths(
        report.host, report.nics, nics, said, table_number(said), paths, has_nic, bool(has_nic.all())
    )
