"""Who makes the others of a job wait. Pure.

All others wait for a straggler, so all have the same iterations. Where all begin an iteration by themselves, as in a ring, it
is late with what it sends first in it, and was idle for longer than others before that: what comes to it over a slow link makes it
late as well, and that is not its own doing. Where some begin when they are sent something, it takes longer than others in its role,
at an end or between others: in a tree from what it is sent to what it then sends; in a pipeline from when it is first sent something
of an iteration to when it first sends it on, as later microbatches come while it still computes. On one timeline all show in the
bursts.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.clocksync.graph.robust import MEDIAN_ERROR, centre
from manager.jobs.bounds import bounds, by_iteration, first_ns, over_ns
from manager.jobs.flows import FlowBursts, Rows
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

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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


def lateness(flows: Sequence[FlowBursts], members: Sequence[Communicator], starts_ns: Ints) -> list[Lateness]:
    """How late each NIC of a job is, the latest first; of those that tell enough.

    Args:
        flows: all of the job.
        members: who does what.
        starts_ns: when its iterations began, on the timeline, shape (iterations,).
    """
    if len(starts_ns) <= LEAST_ITERATIONS:
        return []
    period_ns = float(np.diff(starts_ns).mean())
    bounds_ns = bounds(flows, starts_ns)
    found: list[Lateness] = []
    for communicator in members:
        is_passing = communicator.kind in PASSING
        times = (_passed if is_passing else _times)(flows, communicator, bounds_ns)
        late: list[Lateness] = []
        for role in _roles(flows, communicator):
            alike = {nic: times[nic] for nic in role if nic in times}
            least_ns = _least_passed_ns(alike) if is_passing else least_late_ns(period_ns)
            late += judged(alike, least_ns)
        if communicator.kind in SYMMETRIC:
            late = _by_themselves(late, _idle(flows, times, bounds_ns), least_late_ns(period_ns))
        found += late
    return sorted(found, key=lambda one: (-one.late_ns, one.nic))


def _by_themselves(late: Sequence[Lateness], idle: Mapping[str, Floats], least_ns: float) -> list[Lateness]:
    """The same, where only those are stragglers that were idle for longer than others before they began."""
    slow = {each.nic for each in judged(idle, least_ns) if each.is_straggler}
    return [replace(one, is_straggler=one.is_straggler and one.nic in slow) for one in late]


def _idle(flows: Sequence[FlowBursts], first: Mapping[str, Floats], bounds_ns: Ints) -> dict[str, Floats]:
    """How long before each NIC's first burst of an iteration all was over that it sent or was sent in the last one.

    Args:
        flows: all of the job.
        first: when each NIC begins to send, from the bound of the iteration, in ns, shape (iterations,).
        bounds_ns: of iterations, shape (iterations + 1,).

    Returns:
        In ns, shape (iterations,), NaN where it is not known.
    """
    mine: defaultdict[str, list[Rows]] = defaultdict(list)
    for each in flows:
        mine[each.flow.src].append(each.left)
        mine[each.flow.dst].append(each.arrived)
    return {nic: begins_ns + over_ns(mine[nic], bounds_ns[:-1]) for nic, begins_ns in first.items()}


def _roles(flows: Sequence[FlowBursts], communicator: Communicator) -> list[list[str]]:
    """NICs that can be compared."""
    if communicator.kind in SYMMETRIC:
        return [list(communicator.members)]
    near: defaultdict[str, set[str]] = defaultdict(set)
    for each in flows:
        near[each.flow.src].add(each.flow.dst)
        near[each.flow.dst].add(each.flow.src)
    at_end = [nic for nic in communicator.members if len(near[nic]) == 1]
    return [at_end, [nic for nic in communicator.members if nic not in at_end]]


def _times(flows: Sequence[FlowBursts], communicator: Communicator, bounds_ns: Ints) -> dict[str, Floats]:
    """What tells each NIC's lateness by iteration, NaN where it sent nothing, shape (iterations,)."""
    sent: defaultdict[str, list[Rows]] = defaultdict(list)
    came: defaultdict[str, list[Rows]] = defaultdict(list)
    for each in flows:
        sent[each.flow.src].append(each.left)
        came[each.flow.dst].append(each.arrived)
    members = [nic for nic in communicator.members if nic in sent]
    if communicator.kind in SYMMETRIC:
        return {nic: first_ns(sent[nic], bounds_ns) for nic in members}
    return {nic: _own(sent[nic], came[nic], bounds_ns) for nic in members}


def _passed(flows: Sequence[FlowBursts], communicator: Communicator, bounds_ns: Ints) -> dict[str, Floats]:
    """How long each NIC has what it passes on, in all directions together, by iteration, shape (iterations,)."""
    firsts = {each.flow: _firsts(each, len(bounds_ns) - 1) for each in flows}
    found = {}
    for nic in communicator.members:
        came, sent = ([flow for flow in firsts if flow[end] == nic] for end in (1, 0))
        is_end = len({flow.dst for flow in sent}) == 1
        ways = [(a, b) for a in came for b in sent if is_end or a.src != b.dst]
        if ways:
            found[nic] = np.sum([_between(firsts[a], firsts[b], bounds_ns) for a, b in ways], axis=0)
    return found


def _firsts(flow: FlowBursts, iterations: int) -> Ints:
    """When the first burst of each iteration began, as either end tells, shape (n,)."""
    begins_ns = np.sort(np.concatenate([flow.left["start_ns"], flow.arrived["start_ns"]]))
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
    late = {nic: table[i] - _medians(np.delete(table, i, axis=0)) for i, nic in enumerate(times)}
    known = {nic: each[np.isfinite(each)] for nic, each in late.items()}
    centres = {
        nic: (*centre(each), len(each)) for nic, each in known.items() if len(each) >= LEAST_ITERATIONS
    }
    usual = float(np.median([spread for _, spread, _ in centres.values()])) if centres else 0.0
    return [
        Lateness(
            nic, round(middle), middle > max(least_ns, SURE * MEDIAN_ERROR * max(spread, usual) / count**0.5)
        )
        for nic, (middle, spread, count) in centres.items()
    ]


def _medians(table: Floats) -> Floats:
    """Of each column of those that are known, shape (columns,)."""
    known = np.isfinite(table)
    ordered = np.sort(np.where(known, table, np.inf), axis=0)
    count = known.sum(axis=0)
    low, high = ((count - 1) // 2).clip(0), (count // 2).clip(0, len(table) - 1)
    columns = np.arange(table.shape[1])
    found: Floats = np.where(count > 0, (ordered[low, columns] + ordered[high, columns]) / 2, np.nan)
    return found


def _own(sent: Sequence[Rows], came: Sequence[Rows], bounds_ns: Ints) -> Floats:
    """The longest time from what it was sent, or has sent, to what it sends then."""
    if not came:
        return np.full(len(bounds_ns) - 1, np.nan)
    begins = np.sort(np.concatenate([rows["start_ns"] for rows in sent]))
    ends = np.sort(np.concatenate([rows["end_ns"] for rows in (*came, *sent)]))
    before = np.searchsorted(ends, begins, "right") - 1
    own = np.where(before >= 0, begins - ends[np.maximum(before, 0)], 0).astype(np.float64)
    arriving = np.sort(np.concatenate([rows["start_ns"] for rows in came]))
    arrived = np.sort(np.concatenate([rows["end_ns"] for rows in came]))
    own[np.searchsorted(arriving, begins, "left") > np.searchsorted(arrived, begins, "right")] = 0.0
    return by_iteration(begins, own, bounds_ns, np.fmax)
