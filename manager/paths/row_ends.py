"""Which rows start at a NIC, and which end at an address. No I/O."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T")


class RowsAtEnds:
    """Rows by number; what no row starts or ends at takes no memory."""

    def __init__(self) -> None:
        self._from: defaultdict[str, set[int]] = defaultdict(set)
        self._to: defaultdict[str, set[int]] = defaultdict(set)

    def add(self, rows: Sequence[int], ends: Sequence[tuple[str, str]]) -> None:
        """Some rows lead from a NIC to an address each."""
        for row, (nic, address) in zip(rows, ends, strict=True):
            self._from[nic].add(row)
            self._to[address].add(row)

    def drop(self, row: int, nic: str, address: str) -> None:
        """It does no more."""
        for rows, end in ((self._from, nic), (self._to, address)):
            rows[end].discard(row)
            if not rows[end]:
                del rows[end]

    def from_nic(self, nic: str) -> AbstractSet[int]:
        """The rows that start at a NIC."""
        return self._from.get(nic, frozenset())

    def at(self, of: Mapping[str, _T]) -> Iterator[tuple[_T, NDArray[np.intp]]]:
        """What is given of each NIC and address, with the rows that start there, and then with those that end there."""
        for rows in (self._from, self._to):
            for end in of if len(of) < len(rows) else rows:
                if end in of and end in rows:
                    yield of[end], np.fromiter(rows[end], np.intp, len(rows[end]))


def grouped(
    rows: Sequence[int], ends: Sequence[tuple[str, str]], of: Mapping[str, _T]
) -> Iterator[tuple[_T, NDArray[np.intp]]]:
    """The same of some rows, whose NICs and addresses are given."""
    for which in range(2):
        by_end: defaultdict[str, list[int]] = defaultdict(list)
        for row, both in zip(rows, ends, strict=True):
            if both[which] in of:
                by_end[both[which]].append(row)
        for end, found in by_end.items():
            yield of[end], np.array(found, np.intp)
