"""Reading what the dataplane writes into rings by number: its decisions, and the data packets it stamped."""

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi


class Ring:
    """What is written from now on.

    The dataplane writes record n, counted from 1, at index n modulo the size: its number first 0, then its fields,
    then its number. Nobody waits for a reader: what was not read before the ring came round is lost, and counted.

    Args:
        records: shape (a power of two,), with a field `number`.
        head: a view of the number of the last record begun, shape (1,).

    Attributes:
        lost: records that were written over before they were read.
    """

    def __init__(self, records: NDArray[np.void], head: NDArray[np.uint64]) -> None:
        self.lost = 0
        self._records = records
        self._head = head
        self._read = int(head[0])

    def take(self) -> NDArray[np.void]:
        """The records written since the last call, in the order of their numbers."""
        size = len(self._records)
        head = int(self._head[0])
        first = max(self._read + 1, head - size + 1)
        numbers = np.arange(first, head + 1, dtype=np.uint64)
        index = (numbers % np.uint64(size)).astype(np.intp)
        records = self._records[index]
        seen = records["number"]
        unfinished = np.flatnonzero(seen < numbers)
        stop = int(unfinished[0]) if len(unfinished) else len(numbers)
        whole = (seen == numbers) & (self._records["number"][index] == numbers)
        taken: NDArray[np.void] = records[:stop][whole[:stop]]
        now_read = first + stop - 1
        self.lost += now_read - self._read - len(taken)
        self._read = now_read
        return taken


class SyncedRing(Ring):
    """Of records whose times are on the timeline.

    Attributes:
        unsynced: records of while this host was not on it, which are of no use.
    """

    def __init__(self, records: NDArray[np.void], head: NDArray[np.uint64]) -> None:
        super().__init__(records, head)
        self.unsynced = 0

    def take(self) -> NDArray[np.void]:
        """Those of the records that are of use."""
        taken: NDArray[np.void] = super().take()
        synced = taken["bound_ns"] != abi.BOUND_UNSYNCED
        self.unsynced += int(np.count_nonzero(~synced))
        of_use: NDArray[np.void] = taken[synced]
        return of_use
