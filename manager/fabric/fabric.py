"""The fabric as the manager knows it: hears traces, decides which to believe, and gives out routes. No I/O.

Times are seconds of the manager's monotonic clock.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import TraceReport
from manager.fabric.completion import LinkNumbers, complete, is_plain
from manager.fabric.further import Undoubted, further, undoubted
from manager.fabric.routes import PackedPaths, PathName, Routes
from manager.fabric.traces import Claims, TraceStore
from manager.fabric.votes import Judgement, judge

LIES_ROWS = 3
LIES_SHARE = 0.1
LIES_LAST_S = 45.0
"""Longer than agents take to trace all paths anew and to tell of them again: what is new is no lie."""
FORGIVE_S = 60.0
UNUSED_LINKS = 4_096
UNUSED_NAMES = 4_096
"""New names that come before all are looked at, and those that nothing has any more are forgotten."""
FURTHER_SHARE = 0.25
"""Where more paths than this have changed all are voted on."""


@dataclass(frozen=True)
class TrustChange:
    """A host that is set aside, or no more: what others contradict of what it says."""

    host: str
    is_aside: bool
    contradicted: int
    paths: int
    nic: None = None

    @property
    def kind(self) -> str:
        """Of the event that tells of it."""
        return "paths_set_aside" if self.is_aside else "paths_believed"

    @property
    def reason(self) -> str:
        """For people."""
        if self.is_aside:
            return f"others contradict {self.contradicted} of the {self.paths} paths that it tells of"
        return "others have not contradicted it for a while"


class Fabric:
    """What is known of the fabric.

    Attributes:
        routes: the latest snapshot.
        store: what agents said.
        aside: hosts whose word counts for nothing, since when.
    """

    def __init__(self) -> None:
        self.routes = Routes()
        self.store = TraceStore()
        self.aside: dict[str, float] = {}
        self._changes = -1
        self._accused: dict[str, float] = {}
        self._clean: dict[str, float] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._numbers = LinkNumbers()
        self._undoubted: Undoubted | None = None
        self._most_names = 0

    def know(self, nics: Mapping[str, str]) -> None:
        """Say which NIC (`HOST/IFNAME`) has each address."""
        self.store.know(nics)

    def hear(self, report: TraceReport, ifnames: Iterable[str], now_s: float) -> None:
        """A host traced paths from its NICs."""
        self.store.hear(report, ifnames, now_s)

    def step(
        self, now_s: float, is_ordered: Callable[[PathName], bool] = lambda _path: True
    ) -> list[TrustChange]:
        """Take in what was heard since; returns hosts that are set aside from now on, or forgiven."""
        self.store.expire(now_s, is_ordered)
        if self.store.changes != self._changes:
            self._rebuild()
        changes = self._set_aside(now_s)
        if changes:
            self._rebuild()
        return changes

    def _rebuild(self) -> None:
        touched, self.store.touched = self.store.touched, set()
        self._undoubted = None if touched is None else self._further(touched)
        crossed = self._voted() if self._undoubted is None else self._undoubted.crossed
        self._publish(PackedPaths(dict(self.store.pairs), crossed, self.store.rows_of_pairs()))
        self._changes = self.store.changes

    def _further(self, touched: Collection[int]) -> Undoubted | None:
        """All paths from what has changed since the last rebuild; None where that is not enough."""
        if self._undoubted is None or len(touched) > FURTHER_SHARE * len(self.store) or self.aside:
            return None
        rows = np.fromiter(touched, np.intp, len(touched))
        found = further(self._undoubted, rows, self.store, self._numbers)
        has_room = len(self.store.names.of) <= self._most_names
        return found if found is not None and has_room and not self._is_crowded(found.used) else None

    def _is_crowded(self, used: int) -> bool:
        """Whether too many links have a number, for so many that some path crosses."""
        return len(self._numbers.of) > 2 * used + UNUSED_LINKS

    def _voted(self) -> NDArray[np.int32]:
        """The links of each path, by row, from all claims."""
        claims = self.store.claims()
        names = self.store.names
        aside = frozenset(names.number(host) for host in self.aside)
        judged = judge(claims, len(names.of), aside)
        self._count_lies(claims, judged)
        found = complete(claims, judged, names.of, self.store.path_name, self._numbers)
        if self._is_crowded(int(np.count_nonzero(np.bincount(found[found >= 0])))):
            self._numbers = LinkNumbers()
            found = complete(claims, judged, names.of, self.store.path_name, self._numbers)
        width = int((found >= 0).sum(axis=1).max(initial=1))
        crossed = np.full((self.store.capacity, width), -1, np.int32)
        crossed[claims.row] = found[:, :width]
        self._most_names = 2 * len(names.of) + UNUSED_NAMES
        if judged.trusted.all() and is_plain(claims).all():
            self._undoubted = undoubted(crossed, self.store, self._numbers)
        return crossed

    def _publish(self, paths: PackedPaths) -> None:
        before = self.routes.paths
        links = tuple(self._numbers.of)
        links = self.routes.links if links == self.routes.links else links
        if (
            isinstance(before, PackedPaths)
            and before.pairs == paths.pairs
            and before.crossed.shape == paths.crossed.shape
            and np.array_equal(before.crossed, paths.crossed)
            and links[: len(self.routes.links)] == self.routes.links
        ):
            return
        self.routes = Routes(self.routes.version + 1, links, paths)

    def _count_lies(self, claims: Claims, judged: Judgement) -> None:
        names = self.store.names.of
        count = np.bincount(claims.host, minlength=len(names))
        lies = np.bincount(claims.host[judged.contradicted], minlength=len(names))
        self._counts = {names[i]: (int(lies[i]), int(count[i])) for i in np.flatnonzero(lies).tolist()}

    def _set_aside(self, now_s: float) -> list[TrustChange]:
        accused = {
            host
            for host, (lies, count) in self._counts.items()
            if lies >= LIES_ROWS and lies >= LIES_SHARE * count
        }
        self._accused = {host: self._accused.get(host, now_s) for host in accused}
        self._clean = {host: self._clean.get(host, now_s) for host in self.aside.keys() - accused}
        guilty = [host for host, since_s in self._accused.items() if now_s - since_s >= LIES_LAST_S]
        forgiven = [host for host, since_s in self._clean.items() if now_s - since_s >= FORGIVE_S]
        changed = [host for host in guilty if host not in self.aside] + forgiven
        for host in forgiven:
            del self.aside[host]
        self.aside |= {host: now_s for host in changed if host not in forgiven}
        return [
            TrustChange(host, host in self.aside, *self._counts.get(host, (0, 0))) for host in sorted(changed)
        ]
