"""The counters of a subnet's ports, read over and over; ports that do not tell theirs are left alone for a while."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.asking import Asker
from cwdp.ib.counters import Reading, Told, ask_class, ask_counters, counts_wide, reading
from cwdp.ib.sweep import End

PORTS_AT_A_TIME = 128
"""So few that it takes no longer than a second if a link goes at that moment and all behind it is asked for in vain."""

TRIES = 1
QUIET_S, MOST_MISSED = 30.0, 3
"""A port that has not told its counters so often one after the other is not asked for so long."""


@dataclass(frozen=True)
class _Batch:
    """Requests that are ready, and where the answer to each belongs."""

    made: Any
    places: NDArray[np.intp]

    @property
    def rows(self) -> NDArray[np.intp]:
        """The port that each request is about."""
        return self.places // 2


class Counting:
    """Of one subnet.

    Args:
        asker: by which it is asked.
        ends: the port of each row.
        wide: of nodes whether they count all with 64 bits, as far as they have told; what they tell is added.
    """

    def __init__(self, asker: Asker, ends: Sequence[End], wide: dict[int, bool]) -> None:
        self._asker, self._ends, self._wide = asker, ends, wide
        self._is_wide: NDArray[np.bool_] = np.zeros(len(ends), bool)
        self._batches: list[_Batch] = []
        self._missed = np.zeros(len(ends), np.int64)
        self._quiet_until_s = np.full(len(ends), -np.inf)

    def reach(self, lids: NDArray[np.int64]) -> None:
        """By which LID the node of each port is asked from now on; 0 for ports that are not, shape (ports,)."""
        rows = np.flatnonzero(lids)
        self._ask_classes({self._ends[row].guid: int(lids[row]) for row in rows.tolist()})
        self._is_wide = np.array([self._wide.get(end.guid, False) for end in self._ends], bool)
        self._batches = [
            self._batch(rows[at : at + PORTS_AT_A_TIME], lids) for at in range(0, len(rows), PORTS_AT_A_TIME)
        ]

    def read(self, now_s: float) -> Reading:
        """Of all ports, in the order of the subnet's; of those that are not reached nothing is known."""
        told, is_due = Told(len(self._ends)), self._quiet_until_s <= now_s
        for batch, due in self._due(is_due):
            answers = self._asker.ask_again(batch.made, TRIES, due)
            told.take(batch.places, answers.data, answers.came)
            rows = np.unique(batch.rows[due])
            has_told = told.came[rows].any(axis=1)
            self._missed[rows] = np.where(has_told, 0, self._missed[rows] + 1)
            self._quiet_until_s[rows[self._missed[rows] >= MOST_MISSED]] = now_s + QUIET_S
            if 2 * np.count_nonzero(has_told) < len(rows):
                break
        return reading(told, now_s, self._is_wide)

    def _due(self, is_due: NDArray[np.bool_]) -> Iterator[tuple[_Batch, NDArray[np.intp]]]:
        """Batches, and which of their requests are to be asked."""
        for batch in self._batches:
            due = np.flatnonzero(is_due[batch.rows])
            if len(due):
                yield batch, due

    def _batch(self, rows: NDArray[np.intp], lids: NDArray[np.int64]) -> _Batch:
        ports = [
            (row, int(lids[row]), self._ends[row].port, bool(self._is_wide[row])) for row in rows.tolist()
        ]
        requests, places = ask_counters(ports)
        return _Batch(self._asker.prepare(requests), places)

    def _ask_classes(self, lids: Mapping[int, int]) -> None:
        """What nodes can count, of those of which it is not known, by their LIDs."""
        guids = [guid for guid in lids if guid not in self._wide]
        told = self._asker.ask_again(self._asker.prepare([ask_class(lids[guid]) for guid in guids]), TRIES)
        for guid, data in zip(guids, told.each(), strict=True):
            if data is not None:
                self._wide[guid] = counts_wide(data)
