"""Who makes the others of a job wait. Pure.

All others wait for a straggler, so all have the same iterations. Where all begin an iteration by themselves, as in a ring, it
is late with what it sends first in it, and was idle for longer than others before that: what comes to it over a slow link makes it
late as well, and that is not its own doing. Where some begin when they are sent something, it takes longer than others in its role,
at an end or between others: in a tree from what it is sent to what it then sends; in a pipeline from when it is first sent something
of an iteration to when it first sends it on, as later microbatches come while it still computes. On one timeline all show in the
bursts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.clocksync.graph.robust import MAD_TO_SIGMA, MEDIAN_ERROR
from manager.jobs.bounds import Floats, Iterations, by_iteration
from manager.jobs.flows import BurstColumns, Flow, Ints, Places
from manager.jobs.kinds import SYMMETRIC, Communicator

LEAST_ITERATIONS = 6
LEAST_LATE_NS = 10_000_000
"""Ends of bursts are known to a jiffy."""

LEAST_SHARE = 0.02
"""Of a period."""

LEAST_PASSED_NS, LEAST_PASSED_SHARE = 1_000_000, 0.03
"""In a pipeline, of what others in the same role take: each microbatch is late by as much. Beginnings of bursts are known exactly."""

PASSING = ("pipeline", "chain")
LONG_GAP = 0.6
"""Of the longest gap between the beginnings of a flow's bursts in an iteration: those after one so long are the first of an iteration."""

SURE = 5.0
"""Standard errors of the median. It is looked at again and again, for each rank; how much one varies is known as well as how much the
others do, as of few iterations it may seem to vary little by chance."""


@dataclass(frozen=True)
class Lateness:
    """How much later than others a NIC is in an iteration, of those in its role; the median.

    Attributes:
        nic: as HOST/IFNAME.
        late_ns: negative where it is earlier.
        is_straggler: whether it is later than chance would have it.
        rank: of which rank that is known; empty where programs do not tell.
    """

    nic: str
    late_ns: int
    is_straggler: bool
    rank: str = ""


def lateness(iterations: Iterations, members: Sequence[Communicator]) -> list[Lateness]:
    """How late each NIC of a job is, the latest first; of those that tell enough.

    Args:
        iterations: of the job.
        members: who does what.
    """
    if len(iterations.starts_ns) <= LEAST_ITERATIONS:
        return []
    period_ns = float(np.diff(iterations.starts_ns).mean())
    times = _Times(iterations)
    found: list[Lateness] = []
    for communicator in members:
        is_passing = communicator.kind in PASSING
        known = times.of(communicator)
        late: list[Lateness] = []
        for role in times.roles(communicator):
            alike = {nic: known[nic] for nic in role if nic in known}
            least_ns = _least_passed_ns(alike) if is_passing else least_late_ns(period_ns)
            late += judged(alike, least_ns)
        if communicator.kind in SYMMETRIC:
            late = _by_themselves(late, times.idle(known), least_late_ns(period_ns))
        found += late
    return sorted(found, key=lambda one: (-one.late_ns, one.nic))


def _by_themselves(late: Sequence[Lateness], idle: Mapping[str, Floats], least_ns: float) -> list[Lateness]:
    """The same, where only those are stragglers that were idle for longer than others before they began."""
    slow = {each.nic for each in judged(idle, least_ns) if each.is_straggler}
    return [replace(one, is_straggler=one.is_straggler and one.nic in slow) for one in late]


class _Times:
    """What tells the lateness of the NICs of a job, by iteration; NaN where it is not known, shapes (iterations,)."""

    def __init__(self, iterations: Iterations) -> None:
        self._iterations, self._flows, self._bounds_ns = iterations, iterations.flows, iterations.bounds_ns
        self._place = {nic: i for i, nic in enumerate(iterations.flows.nics)}

    def of(self, communicator: Communicator) -> dict[str, Floats]:
        """When those of its members that send anything begin; how long they have what they pass on; or take for what is their own."""
        if communicator.kind in PASSING:
            return self._passed(communicator)
        members = [nic for nic in communicator.members if nic in self._senders]
        if communicator.kind in SYMMETRIC:
            return {nic: self._iterations.first_ns[self._place[nic]] for nic in members}
        return {nic: _own(self._sent[nic], self._came.get(nic), self._bounds_ns) for nic in members}

    def idle(self, nics: Iterable[str]) -> dict[str, Floats]:
        """How long all was over that each of some sent or was sent before it began the next iteration, in ns."""
        return {nic: self._iterations.idle_ns[self._place[nic]] for nic in nics}

    def roles(self, communicator: Communicator) -> list[list[str]]:
        """Members that can be compared."""
        if communicator.kind in SYMMETRIC:
            return [list(communicator.members)]
        at_end = [nic for nic in communicator.members if len(self._near[nic]) == 1]
        return [at_end, [nic for nic in communicator.members if nic not in at_end]]

    def _passed(self, communicator: Communicator) -> dict[str, Floats]:
        """In all directions together."""
        found = {}
        for nic in communicator.members:
            came, sent = ([flow for flow in self._firsts if flow[end] == nic] for end in (1, 0))
            is_end = len({flow.dst for flow in sent}) == 1
            ways = [(a, b) for a in came for b in sent if is_end or a.src != b.dst]
            if ways:
                took_ns = [_between(self._firsts[a], self._firsts[b], self._bounds_ns) for a, b in ways]
                found[nic] = np.sum(took_ns, axis=0)
        return found

    @cached_property
    def _senders(self) -> set[str]:
        return {flow.src for flow in self._flows.flows}

    @cached_property
    def _sent(self) -> dict[str, BurstColumns]:
        return self._flows.sent()

    @cached_property
    def _came(self) -> dict[str, BurstColumns]:
        return self._flows.came()

    @cached_property
    def _near(self) -> dict[str, set[str]]:
        near: defaultdict[str, set[str]] = defaultdict(set)
        for flow in self._flows.flows:
            near[flow.src].add(flow.dst)
            near[flow.dst].add(flow.src)
        return near

    @cached_property
    def _firsts(self) -> dict[Flow, Ints]:
        """When the first burst of each iteration began of each flow, shapes (n,)."""
        flows, count = self._flows, len(self._bounds_ns) - 1
        return {
            flow: _firsts(flows.left.of(i).start_ns, flows.arrived.of(i).start_ns, count)
            for i, flow in enumerate(flows.flows)
        }


def _firsts(left_ns: Ints, arrived_ns: Ints, iterations: int) -> Ints:
    """When the first burst of a flow in each iteration began, as either end tells, shape (n,)."""
    begins_ns = np.sort(np.concatenate([left_ns, arrived_ns]))
    gaps = np.diff(begins_ns)
    longest = float(np.median(np.sort(gaps)[-iterations:]))
    found: Ints = begins_ns[1:][gaps > LONG_GAP * longest]
    return found


def _between(came_ns: Ints, sent_ns: Ints, bounds_ns: Ints) -> Floats:
    """From the last that came to each that was sent, shape (iterations,)."""
    place = np.searchsorted(came_ns, sent_ns, "right") - 1
    took = (sent_ns - came_ns[place.clip(0)]).astype(np.float64) if len(came_ns) else np.zeros(len(sent_ns))
    return by_iteration(sent_ns[place >= 0], took[place >= 0], bounds_ns, np.fmin)


def _least_passed_ns(alike: Mapping[str, Floats]) -> float:
    """By less than this nobody is late who passes something on, of how long some in the same role have it."""
    known = [float(np.nanmedian(each)) for each in alike.values() if np.isfinite(each).any()]
    return max(LEAST_PASSED_NS, LEAST_PASSED_SHARE * float(np.median(known)) if known else 0.0)


def least_late_ns(period_ns: float) -> float:
    """By less than this nobody is late in iterations of such a length."""
    return max(LEAST_LATE_NS, LEAST_SHARE * period_ns)


def judged(times: Mapping[str, Floats], least_ns: float) -> list[Lateness]:
    """How late each is of some that can be compared.

    Args:
        times: what tells the lateness of each by iteration, in ns, NaN where it is not known, shape (iterations,).
        least_ns: what is less is nothing.
    """
    if len(times) < 2:
        return []
    table = np.array(list(times.values()))
    late = table - _medians_of_others(table)
    counts = np.isfinite(late).sum(axis=1)
    enough = counts >= LEAST_ITERATIONS
    late, counts = late[enough], counts[enough]
    middles, spreads = _centres(late)
    usual = float(np.median(spreads)) if len(spreads) else 0.0
    sure_ns = SURE * MEDIAN_ERROR * np.maximum(spreads, usual) / np.sqrt(counts)
    is_late = middles > np.maximum(least_ns, sure_ns)
    nics = [nic for nic, is_enough in zip(times, enough.tolist(), strict=True) if is_enough]
    return [
        Lateness(nic, round(middle), is_straggler)
        for nic, middle, is_straggler in zip(nics, middles.tolist(), is_late.tolist(), strict=True)
    ]


def _centres(table: Floats) -> tuple[Floats, Floats]:
    """Median and robust standard deviation of what is known in each row, shapes (rows,)."""
    middles = _medians(table.T)
    return middles, MAD_TO_SIGMA * _medians(np.abs(table.T - middles))


def _medians(table: Floats) -> Floats:
    """Of each column of those that are known, NaN where none is, shape (columns,)."""
    ordered, count = _in_order(table)
    return _middle(ordered, (count - 1) // 2, count // 2, count > 0)


def _medians_of_others(table: Floats) -> Floats:
    """For each place the median of those others in its column that are known, NaN where none is or it is not known itself, shape as given."""
    ordered, count = _in_order(table)
    rank = np.empty(table.shape, np.intp)
    np.put_along_axis(rank, np.argsort(table, axis=0, kind="stable"), np.arange(len(table))[:, None], axis=0)
    low, high = ((count - 2) // 2, (count - 1) // 2)
    return _middle(ordered, low + (low >= rank), high + (high >= rank), (count > 1) & np.isfinite(table))


def _in_order(table: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Each column in order, what is not known last, shape as given, and how many of it are known, shape (columns,)."""
    return np.sort(table, axis=0), np.isfinite(table).sum(axis=0)


def _middle(ordered: Floats, low: Places, high: Places, is_known: NDArray[np.bool_]) -> Floats:
    """The mean of two in each column, NaN where it is not known, shape as of the places."""
    columns, last = np.arange(ordered.shape[1]), len(ordered) - 1
    lower, upper = (ordered[place.clip(0, last), columns] for place in (low, high))
    return np.where(is_known, (lower + upper) / 2, np.nan)


def _own(sent: BurstColumns, came: BurstColumns | None, bounds_ns: Ints) -> Floats:
    """The longest time from what a NIC was sent, or has sent, to what it sends then, by iteration."""
    if came is None:
        return np.full(len(bounds_ns) - 1, np.nan)
    begins, arriving, arrived = np.sort(sent.start_ns), np.sort(came.start_ns), np.sort(came.end_ns)
    ends = np.sort(np.concatenate([came.end_ns, sent.end_ns]))
    before = np.searchsorted(ends, begins, "right") - 1
    own = np.where(before >= 0, begins - ends[np.maximum(before, 0)], 0).astype(np.float64)
    own[np.searchsorted(arriving, begins, "left") > np.searchsorted(arrived, begins, "right")] = 0.0
    return by_iteration(begins, own, bounds_ns, np.fmax)
