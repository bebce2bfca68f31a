"""Which path each queue pair takes, kept for as long as neither the routes nor its port change."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import NOWHERE, PathName, Routes
from manager.placement.flows import QpName
from manager.planner.candidates import Candidates
from manager.planner.steering_state import SteeringState

_PLACE = np.dtype(
    [
        ("generation", "<i8"),
        ("port", "<i8"),
        ("pair", "<i8"),
        ("path", "<i8"),
        ("way", "<i8"),
        ("choices", "<i8"),
        ("has_choice", "?"),
    ]
)

_FOUND = ("pair", "path", "way", "choices", "has_choice")

Indices = NDArray[np.intp]


class Places:
    """Where some queue pairs are.

    Attributes:
        pair: the pair of the candidates' path set, -1 where no path is known; shape (n,).
        path: the candidate that each is on, -1 where that is not known; shape (n,).
        way: alike for those from one NIC to one address, and for no others; shape (n,).
        choices: the number of the choices that each has, -1 where no path is known; shape (n,).
        has_choice: whether there is more than one candidate; shape (n,).
        crossed: the numbers of all links on the way, -1 behind the last, shape (n, most links).
    """

    def __init__(self, rows: NDArray[np.void], crossed: NDArray[np.int32]) -> None:
        self.pair, self.path, self.way = rows["pair"], rows["path"], rows["way"]
        self.choices, self.has_choice, self.crossed = rows["choices"], rows["has_choice"], crossed


class Located:
    """Finds queue pairs by the routes and the ports that they leave with."""

    _candidates: Candidates
    _ways: dict[tuple[str, str], int]
    _places: NDArray[np.void]
    _crossed: NDArray[np.int32]

    def __init__(self) -> None:
        self._dead, self._dead_sets = np.zeros(0, dtype=bool), 0
        self._forget(Candidates(Routes()))

    def find(
        self,
        candidates: Candidates,
        steering: SteeringState,
        names: Sequence[QpName],
        rows: Indices,
        port: NDArray[np.int64],
    ) -> Places:
        """Where queue pairs are.

        Args:
            candidates: of the routes that are known now.
            steering: what is remembered of them; the same one each time.
            names: of each.
            rows: where they stand in there, shape (names,).
            port: the source port of each, shape (names,).
        """
        if candidates is not self._candidates:
            self._follow(candidates)
        self._grow(len(steering.generation))
        places = self._places[rows]
        moved = (places["port"] != port) | (places["generation"] != steering.generation[rows])
        if moved.any():
            self._look(names, rows, port, steering.generation[rows], np.flatnonzero(moved))
            places = self._places[rows]
        return Places(places, self._crossed[rows])

    def number_dead(self, dead: NDArray[np.bool_]) -> int:
        """A number of the links that are dead now, another one than before where these are others; shape (links + 1,)."""
        if not np.array_equal(dead, self._dead):
            self._dead, self._dead_sets = dead, self._dead_sets + 1
        return self._dead_sets

    def _look(
        self,
        names: Sequence[QpName],
        rows: Indices,
        port: NDArray[np.int64],
        generation: NDArray[np.int64],
        chosen: Indices,
    ) -> None:
        """Look up some of the queue pairs."""
        paths, places = [], []
        for i, sport in zip(chosen.tolist(), port[chosen].tolist(), strict=True):
            src, dst_addr = names[i].src, names[i].dst_addr
            choices = self._candidates.of(src, dst_addr)
            way = self._ways.setdefault((src, dst_addr), len(self._ways))
            if choices is None:
                places.append((NOWHERE, NOWHERE, way, NOWHERE, False))
            else:
                path, pair = choices.by_port.get(sport, NOWHERE), self._candidates.pair(choices)
                places.append((pair, path, way, choices.number, len(choices.paths) > 1))
            paths.append(PathName(src, dst_addr, sport))
        found = np.zeros(len(chosen), _PLACE)
        found["generation"], found["port"] = generation[chosen], port[chosen]
        for name, column in zip(_FOUND, zip(*places, strict=True), strict=True):
            found[name] = column
        self._places[rows[chosen]] = found
        crossed = self._candidates.routes.crossed(paths)
        wider = crossed.shape[1] - self._crossed.shape[1]
        if wider > 0:
            self._crossed = np.pad(self._crossed, ((0, 0), (0, wider)), constant_values=NOWHERE)
        self._crossed[rows[chosen]] = NOWHERE
        self._crossed[rows[chosen], : crossed.shape[1]] = crossed

    def _follow(self, candidates: Candidates) -> None:
        """Go by other candidates from now on, and look those up anew that may have other paths."""
        if candidates.follows != self._candidates.number:
            self._forget(candidates)
            return
        self._candidates = candidates
        is_other = np.array([pair in candidates.changed for pair in self._ways], dtype=bool)
        if is_other.any():
            self._places["port"][is_other[self._places["way"]]] = NOWHERE

    def _forget(self, candidates: Candidates) -> None:
        """Look all of them up anew, by these."""
        self._candidates = candidates
        self._ways = {}
        self._places = np.zeros(0, _PLACE)
        self._crossed = np.zeros((0, 1), np.int32)

    def _grow(self, count: int) -> None:
        more = count - len(self._places)
        if more > 0:
            self._places = np.concatenate([self._places, np.zeros(more, _PLACE)])
            self._crossed = np.pad(self._crossed, ((0, more), (0, 0)), constant_values=NOWHERE)
