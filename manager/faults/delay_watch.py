"""Follows queues that stand: a link that carries less than its like, a host that is slow to send or to receive.

A queue stands at a healthy link too, when more comes than it can carry; then it carries as much as its like do. No I/O.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink, Routes, is_nic
from manager.faults.finding import Finding, Kind, Subject, cable, direction
from manager.links.busy import Busy
from manager.links.inference import QueueInference
from manager.links.loads import UNLIKE, LinkLoads, lower_median_bps, tiers

STANDS_WINDOWS = 5
SEEN_WINDOWS, SEEN_OWN_WINDOWS, SEEN_NEAR_WINDOWS = 3, 12, 18
"""So many windows must say so of a link between switches, of a NIC's: the loads that it goes by are those of a moment.

A host that stops for a second is not slow; but the planner may have emptied a link between switches by then. The last is
for one of those that carries nearly what it should: while queue pairs come and go, loads are told too late for a few windows.
"""

NEAR_SHARE = 0.5
"""Of what its like can; a link that carries less cannot be taken for a well one."""

REMEMBERED_WINDOWS = 600
"""So long what windows said counts that were too few."""

OVER_WINDOWS = 30
UNKNOWN_WINDOWS = 6_000
"""So long a link is called slow of which nothing is seen any more: the planner tries one again within ten minutes."""

SLOW_SHARE = 0.7
"""A link whose queue stands while it carries less than this share of what its like can."""

IDLE_SHARE = 0.1
"""An own queue of a NIC that sends or receives less than this share is its host's doing."""

LEAST_SHARE = 0.05
"""Between switches, other traffic may be why a queue stands where less than this share flows."""

LEAST_SLOW_NS = 100_000.0

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Slow:
    """Something that delays what it should not, by the queue of a link.

    Attributes:
        load_bps: what the link carries while it has a queue.
        is_near: whether that is nearly what it should be.
    """

    kind: Kind
    subject: Subject
    link: DirectedLink
    load_bps: float
    evidence: str
    is_near: bool = False

    @property
    def needed(self) -> int:
        """How many windows must say so."""
        between = SEEN_NEAR_WINDOWS if self.is_near else SEEN_WINDOWS
        return SEEN_OWN_WINDOWS if _is_own(self.link) else between

    @property
    def cable(self) -> str:
        """What names the cause: one link is slow for one reason, whichever way and however much crosses it."""
        return cable(self.link).name


@dataclass(kw_only=True)
class _Seen:
    """What windows have said of one direction of a link.

    Attributes:
        slow: how many said that something is slow.
        well: how many have said otherwise since.
        silent: since how many none has said either.
        carried_bps: what it carried when it was last seen to be slow.
    """

    slow: int = 0
    well: int = 0
    silent: int = 0
    carried_bps: float = 0.0

    def see(self, load_bps: float) -> None:
        """One more says so."""
        self.slow, self.well, self.silent = self.slow + 1, 0, 0
        self.carried_bps = load_bps

    def doubt(self) -> None:
        """One more says otherwise."""
        self.well, self.silent = self.well + 1, 0


@dataclass(kw_only=True)
class _Followed:
    finding: Finding
    links: list[DirectedLink]


def _everything(_: Slow) -> bool:
    """Where there is no other manager."""
    return True


class DelayWatch:
    """The standing queues of one fleet.

    What is slow stays so until it is seen to be well: a host when its queue empties, a link when it carries more than it
    did. A link that is empty tells nothing, and the planner empties one that is slow.

    Args:
        open_finding: announces one and returns its finding.
        add_to_finding: announces that the other direction of the same link is slow too.
        close_finding: announces that it is over.

    Attributes:
        decides: whether to name what is slow, or leave that to another manager.
    """

    def __init__(
        self,
        open_finding: Callable[[Slow], Finding],
        add_to_finding: Callable[[Finding, Slow], None],
        close_finding: Callable[[Finding], None],
    ) -> None:
        self._open, self._add, self._close = open_finding, add_to_finding, close_finding
        self.decides: Callable[[Slow], bool] = _everything
        self._links, self._busy = _Links(Routes()), Busy(Routes())
        self._followed: dict[str, _Followed] = {}
        self._seen: dict[DirectedLink, _Seen] = {}

    def step(self, queues: QueueInference, loads: LinkLoads) -> None:
        """Look at the queues as they are now; `loads` are of the same links."""
        if loads.routes is not self._links.routes:
            self._use(loads.routes)
        self._busy.step(queues, loads)
        stands, queue_ns = queues.stands(STANDS_WINDOWS), queues.queue_ns[-STANDS_WINDOWS:]
        found = self._links.slow(stands, queue_ns, loads)
        often = self._links.slow_for_long(queues.busy() & ~stands, queue_ns, loads, self._busy)
        slow = {what.link: what for what in (*found, *often) if queues.shows_apart(what.link, STANDS_WINDOWS)}
        for link, what in slow.items():
            seen = self._seen.setdefault(link, _Seen())
            seen.see(what.load_bps)
            if seen.slow >= what.needed:
                self._find(what)
        for link in self._seen.keys() - slow.keys():
            self._seen[link].silent += 1
            if self._links.is_well(link, self._seen[link].carried_bps, stands, queues.queue_ns[-1], loads):
                self._seen[link].doubt()
        self._let_go()

    def _use(self, routes: Routes) -> None:
        before, self._busy = self._busy, Busy(routes)
        self._busy.carry_on(before)
        self._links = _Links(routes)

    def _find(self, slow: Slow) -> None:
        """Something is slow: a new cause, or one that is known."""
        followed = self._followed.get(slow.cable)
        if followed is None and not self.decides(slow):
            return
        if followed is None:
            self._followed[slow.cable] = _Followed(finding=self._open(slow), links=[slow.link])
        elif slow.link not in followed.links:
            followed.links.append(slow.link)
            self._add(followed.finding, slow)

    def _let_go(self) -> None:
        for name, followed in list(self._followed.items()):
            ways = [self._seen[link] for link in followed.links]
            if all(each.well > OVER_WINDOWS or each.silent > UNKNOWN_WINDOWS for each in ways):
                self._close(self._followed.pop(name).finding)
                for link in followed.links:
                    del self._seen[link]
        kept = {link for followed in self._followed.values() for link in followed.links}
        for link, seen in list(self._seen.items()):
            if link not in kept and (seen.well or seen.silent > REMEMBERED_WINDOWS):
                del self._seen[link]


class _Links:
    """The links of some routes, each held against its like."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self._tier = tiers(routes.links)
        self._number = {link: i for i, link in enumerate(routes.links)}

    def slow(self, stands: Mask, queue_ns: Floats, loads: LinkLoads) -> Iterator[Slow]:
        """What delays what it should not, by the queues of some windows, shape (windows, links)."""
        for i in np.flatnonzero(stands).tolist():
            link, delay_ns = self.routes.links[i], float(queue_ns[:, i].mean())
            if delay_ns < LEAST_SLOW_NS:
                continue
            like, load_bps, is_own = self._like(i), float(loads.load_bps[i]), _is_own(link)
            best_bps = _best(loads, like)
            waits = f"probes wait {delay_ns / 1e3:,.0f} us for it and it is never idle"
            least_bps = (IDLE_SHARE if is_own else LEAST_SHARE) * best_bps
            if not loads.is_sure[i]:
                continue
            if is_own and load_bps <= least_bps and not _any_stands(stands, like):
                yield _slow_host(link, load_bps, waits)
            elif least_bps < load_bps < SLOW_SHARE * best_bps:
                carries = f"it carries {load_bps / 1e6:,.0f} Mbit/s, others like it {best_bps / 1e6:,.0f}"
                back = self._number.get(DirectedLink(link.b, link.a))
                subject = cable(link) if back is not None and stands[back] else direction(link)
                is_near = load_bps >= NEAR_SHARE * best_bps
                yield Slow("slow", subject, link, load_bps, f"{waits}; {carries}", is_near)

    def slow_for_long(self, busy: Mask, queue_ns: Floats, loads: LinkLoads, of_late: Busy) -> Iterator[Slow]:
        """Links between switches whose queues come and go, and which can carry less than their like all the same.

        Args:
            busy: what has a queue now that comes and goes, shape (links,).
            queue_ns: the queues of some windows, shape (windows, links).
            loads: what links carry now.
            of_late: how busy they were, and with how much.
        """
        most_bps = of_late.most_bps()
        for i in np.flatnonzero(busy & loads.is_sure & np.isfinite(most_bps)).tolist():
            link, delay_ns = self.routes.links[i], float(np.nanmean(queue_ns[:, i]))
            best_bps = _best(loads, self._like(i))
            if _is_own(link) or delay_ns < LEAST_SLOW_NS or of_late.load_bps[i] <= LEAST_SHARE * best_bps:
                continue
            if most_bps[i] < SLOW_SHARE * best_bps:
                waits = f"probes wait {delay_ns / 1e3:,.0f} us for it and it is busy {of_late.share[i]:.0%} of the time"
                carries = (
                    f"it can carry {most_bps[i] / 1e6:,.0f} Mbit/s, others like it {best_bps / 1e6:,.0f}"
                )
                is_near = bool(most_bps[i] >= NEAR_SHARE * best_bps)
                yield Slow("slow", direction(link), link, float(most_bps[i]), f"{waits}; {carries}", is_near)

    def is_well(
        self, link: DirectedLink, carried_bps: float, stands: Mask, queue_ns: Floats, loads: LinkLoads
    ) -> bool:
        """Whether a link that delays nothing now is seen to be well; it carried `carried_bps` when it was slow.

        All traffic of a NIC goes over its link, so where that has no queue any more, it is. Of another link that is
        empty nobody knows. One that is not there any more is not at fault either.
        """
        i = self._number.get(link)
        if i is None:
            return True
        if _is_own(link):
            return not np.isnan(queue_ns[i])
        enough_bps = UNLIKE * carried_bps
        if stands[i]:
            enough_bps = min(enough_bps, SLOW_SHARE * _best(loads, self._like(i)))
        return bool(loads.is_sure[i] and loads.load_bps[i] >= enough_bps)

    def _like(self, i: int) -> Mask:
        """The other links of a link's tier, shape (links,)."""
        like = np.asarray(self._tier == self._tier[i])
        like[i] = False
        return like


def _is_own(link: DirectedLink) -> bool:
    """Whether a NIC has it for itself."""
    return is_nic(link.a) or is_nic(link.b)


def _best(loads: LinkLoads, like: Mask) -> float:
    """What one link of a tier carries now, or half of them have been seen to carry: one look may have seen too much."""
    full = loads.capacity_bps[like]
    full = full[np.isfinite(full)]
    often_bps = lower_median_bps(full) if len(full) else 0.0
    return max(float(loads.load_bps[like].max(initial=0.0)), often_bps)


def _any_stands(stands: Mask, like: Mask) -> bool:
    return bool(2 * np.count_nonzero(stands & like) >= np.count_nonzero(like))


def _slow_host(link: DirectedLink, load_bps: float, waits: str) -> Slow:
    nic = link.a if is_nic(link.a) else link.b
    kind: Kind = "slow_sender" if nic == link.a else "slow_receiver"
    evidence = f"{nic}: {waits}, with {load_bps / 1e6:,.0f} Mbit/s of queue pairs over it"
    return Slow(kind, Subject("host", nic.partition("/")[0]), link, load_bps, evidence)
