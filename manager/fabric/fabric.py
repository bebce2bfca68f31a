"""The fabric as the manager knows it: hears traces, decides which to believe, and gives out routes. No I/O.

Times are seconds of the manager's monotonic clock.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cwdp.shared.bus.messages import TraceReport
from manager.fabric.completion import LinkNumbers, complete
from manager.fabric.routes import PackedPaths, PathName, Routes
from manager.fabric.traces import Claims, TraceStore
from manager.fabric.votes import Judgement, judge

LIES_ROWS = 3
LIES_SHARE = 0.1
LIES_LAST_S = 45.0
"""Longer than agents take to trace all paths anew and to tell of them again: what is new is no lie."""
FORGIVE_S = 60.0
UNUSED_LINKS = 4_096


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
        claims = self.store.claims()
        names = self.store.names
        aside = frozenset(names.number(host) for host in self.aside)
        judged = judge(claims, len(names.of), aside)
        self._count_lies(claims, judged)
        found = complete(claims, judged, names.of, self.store.path_name, self._numbers)
        if len(self._numbers.of) > 2 * np.count_nonzero(np.bincount(found[found >= 0])) + UNUSED_LINKS:
            self._numbers = LinkNumbers()
            found = complete(claims, judged, names.of, self.store.path_name, self._numbers)
        crossed = np.full((self.store.capacity, found.shape[1]), -1, np.int32)
        crossed[claims.row] = found
        self._publish(PackedPaths(dict(self.store.pairs), crossed, self.store.rows_of_pairs()))
        self._changes = self.store.changes

    def _publish(self, paths: PackedPaths) -> None:
        before = self.routes.paths
        links = tuple(self._numbers.of)
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
