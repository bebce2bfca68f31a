"""The numbers of a host's rows, by what tells rows apart. No I/O."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 24
"""Those of a row, and the number of its NIC."""


@dataclass(frozen=True)
class KnownRows:
    """The rows of a host: sorted keys, and the number of each; shape (n,)."""

    keys: NDArray[np.bytes_]
    numbers: NDArray[np.intp]

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """The number of each key, -1 for one that is not there."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.intp)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.numbers[place], -1)

    def with_more(self, keys: NDArray[np.bytes_], numbers: NDArray[np.intp]) -> "KnownRows":
        """With further rows; a negative number is no row."""
        keys = np.concatenate([self.keys, keys[numbers >= 0]])
        numbers = np.concatenate([self.numbers, numbers[numbers >= 0]])
        order = np.argsort(keys, kind="stable")
        return KnownRows(keys[order], numbers[order])

    def without(self, numbers: NDArray[np.intp]) -> "KnownRows":
        """Without some rows."""
        kept = ~np.isin(self.numbers, numbers)
        return KnownRows(self.keys[kept], self.numbers[kept])


NO_ROWS = KnownRows(np.zeros(0, f"S{KEY_BYTES}"), np.zeros(0, np.intp))
