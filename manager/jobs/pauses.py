"""Who of a job stands still now and then. Pure.

What an iteration takes from when the last NIC begins to send to when all is over hardly varies, as no computing is in it. Where it
takes longer now and then, the NIC of the rank that stood still is silent before those that wait for it, and these pass that on: all
that are over later than usual fell silent, one after the other by who sends to whom. A silence that is not passed on is none that
others waited for, and where one of those that are over later was silent for too short to tell, it is not clear who was first. Where
packets were sent again meanwhile nobody need have stood still, so that does not count.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.clocksync.graph.robust import centre
from manager.jobs.bounds import Iterations
from manager.jobs.flows import BurstColumns, FlowBursts
from manager.jobs.kinds import SYMMETRIC, Communicator

LEAST_ITERATIONS = 8

LONGER_NS, LONGER_SHARE, LONGER_SPREADS = 5_000_000, 0.02, 4.0
"""By so much more than the median: an iteration that took longer; of the time, of a period, of how far others are from it.

As ends of bursts are known to a jiffy of 1 to 10 ms, others are as far from it as a third of a jiffy at least.
"""

MOST_LONGER = 0.4
"""Of all iterations: where more take longer, that is not now and then."""

CLEARLY_NS, LEAST_CLEAR, LEAST_TIMES = 40_000_000, 2, 3
"""Of iterations that took so much longer in all the first number is enough, with others between them, else the second.

Any NIC may be held up once, and by a little more often; that the same one is held up each time is hardly by chance.
"""

SAME_SHARE = 0.66
"""Of the longer ones in which it is clear who stood still: in so many it was the same NIC."""

MOSTLY = 0.6
"""Of what an iteration took longer: for so long who stood still was silent, and so much later than usual it was over for it."""

AHEAD_NS = 8_000_000
"""Of the silence of those that it sends to: ends of bursts are known to a jiffy."""

LATEST = 5
"""Of the last so many at most `MOST_LONGER` took longer: else all do now."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pauses:
    """Iterations that took longer than the others, as one NIC sent nothing for a while.

    Attributes:
        nic: the one that was silent before all that waited for it.
        longer_ns: by how much these took longer, the median.
        longer, iterations: how many took longer, and how many there were.
        rank: of which rank that is known; empty where programs do not tell.
    """

    nic: str
    longer_ns: int
    longer: int
    iterations: int
    rank: str = ""


class _Sent(NamedTuple):
    """What a NIC did in iterations.

    Attributes:
        to: those that it sends to.
        at_ns, by_ns: when silences of it began, or went on for longer than usual, and by how much, shape (n,).
        later_ns: by how much later than usual all that it sent was over, NaN where that is not known, shape (iterations,).
    """

    to: frozenset[str]
    at_ns: Ints
    by_ns: Ints
    later_ns: Floats


def resending(flows: FlowBursts) -> Ints:
    """When bursts began and ended of which packets were sent again or asked for again, in order, on the timeline, shape (n, 2)."""
    spans_ns = []
    for told in (flows.left, flows.arrived):
        again = told.bursts.take((told.bursts.resent > 0) | (told.bursts.naks > 0))
        spans_ns.append(np.stack([again.start_ns, again.end_ns], axis=1))
    found: Ints = np.sort(np.concatenate(spans_ns), axis=0)
    return found


def overlap(spans_ns: Ints, starts_ns: Ints, ends_ns: Ints) -> NDArray[np.bool_]:
    """Which of some times have to do with any of some spans, shape (n,).

    Args:
        spans_ns: beginnings and ends, each in order, shape (m, 2).
        starts_ns: of the times, shape (n,).
        ends_ns: of the times, shape (n,).
    """
    found: NDArray[np.bool_] = np.searchsorted(spans_ns[:, 0], ends_ns) > np.searchsorted(
        spans_ns[:, 1], starts_ns
    )
    return found


def now_and_then(took_ns: Floats) -> tuple[Floats, Ints]:
    """Which of some times were longer than the others, and others behind them, if that happens now and then.

    Args:
        took_ns: in order, NaN where it is not known, shape (n,).

    Returns:
        By how much each was longer than the median, 0 where it is not known, in ns, shape (n,); and the places of those that were
        notably longer, shape (m,), none where that happened too often.
    """
    middle, spread = centre(took_ns[np.isfinite(took_ns)])
    extra = np.nan_to_num(took_ns - middle)
    longer = np.flatnonzero(extra > max(LONGER_NS, LONGER_SHARE * middle, LONGER_SPREADS * spread))
    latest = np.count_nonzero(longer >= len(extra) - LATEST)
    if len(longer) > MOST_LONGER * len(extra) or latest > MOST_LONGER * LATEST:
        return extra, longer[:0]
    others = np.setdiff1d(np.arange(len(extra)), longer)
    return extra, longer[longer < others.max(initial=0)]


def is_enough(places: Ints, longer_ns: Floats) -> bool:
    """Whether some iterations that took longer are so many, and so much longer, that who stood still in them does so again and again.

    Args:
        places: of the iterations, in order, shape (n,).
        longer_ns: by how much each of them took longer, shape (n,).
    """
    times = np.count_nonzero(np.diff(places, prepend=-2) > 1)
    return bool(times >= (LEAST_CLEAR if longer_ns.sum() >= CLEARLY_NS else LEAST_TIMES))


def pauses(iterations: Iterations, members: Sequence[Communicator], resending_ns: Ints) -> Pauses | None:
    """Who stood still now and then; None where nobody did, or it is not clear who.

    Args:
        iterations: of the job.
        members: who does what.
        resending_ns: when packets were sent again, as `resending` has it, shape (n, 2).
    """
    if len(iterations.starts_ns) <= LEAST_ITERATIONS or any(each.kind not in SYMMETRIC for each in members):
        return None
    bounds_ns = iterations.bounds_ns
    is_known = ~overlap(resending_ns, bounds_ns[:-1], bounds_ns[1:])
    took_ns = np.where(is_known, iterations.sending_ns, np.nan)
    extra, longer = now_and_then(took_ns)
    if not len(longer):
        return None
    over_at_ns = bounds_ns[1:] - iterations.over_ns
    spans_ns = np.stack([over_at_ns - took_ns, over_at_ns], axis=1)
    sent = _by_nic(iterations, spans_ns, float(extra[longer].min()) / 2)
    may_be = [_first(sent, i, spans_ns[i], MOSTLY * extra[i]) for i in longer.tolist()]
    is_ring = [each.kind for each in members] == ["ring"]
    first = [each[0] if len(set(each)) == 1 or (each and is_ring) else "" for each in may_be]
    clear = Counter(nic for nic in first if nic)
    if not clear:
        return None
    nic, count = clear.most_common(1)[0]
    mine = longer[[each == nic for each in first]]
    if count < SAME_SHARE * clear.total() or not is_enough(mine, extra[mine]):
        return None
    return Pauses(nic, round(float(np.median(extra[longer]))), len(longer), len(extra))


def _by_nic(iterations: Iterations, spans_ns: Floats, least_ns: float) -> dict[str, _Sent]:
    """What each NIC did; of silences those that are longer than usual by `least_ns` at least.

    Args:
        iterations: of the job.
        spans_ns: when the last NIC began to send in each iteration, and when all was over, shape (iterations, 2).
        least_ns: what is shorter, or longer by less, is usual.
    """
    to = defaultdict[str, set[str]](set)
    for flow in iterations.flows.flows:
        to[flow.src].add(flow.dst)
    over_ns = dict(zip(iterations.flows.nics, iterations.over_of_each_ns, strict=True))
    found = {}
    for nic, sent in iterations.flows.sent().items():
        took_ns = iterations.bounds_ns[1:] - over_ns[nic] - spans_ns[:, 0]
        later_ns = took_ns - centre(took_ns[np.isfinite(took_ns)])[0]
        silences = _silences(sent, len(took_ns), least_ns)
        found[nic] = _Sent(frozenset(to[nic]), *silences, later_ns)
    return found


def _silences(sent: BurstColumns, iterations: int, least_ns: float) -> tuple[Ints, Ints]:
    """When silences of a NIC began that it does not have in each iteration, or that went on for longer, and by how much; shapes (n,).

    Args:
        sent: its bursts, in any order.
        iterations: how many there are; it is silent for longest between them.
        least_ns: what is shorter, or longer by less, is usual.
    """
    order = np.argsort(sent.start_ns, kind="stable")
    begins, ends = sent.start_ns[order], np.maximum.accumulate(sent.end_ns[order])
    since, silent = ends[:-1], begins[1:] - ends[:-1]
    usual = round(float(np.median(np.sort(silent)[-iterations:]))) if len(silent) else 0
    shorter = (silent > least_ns) & (silent < usual - least_ns)
    longer = silent > usual + least_ns
    return (
        np.concatenate([since[shorter], since[longer] + usual]),
        np.concatenate([silent[shorter], silent[longer] - usual]),
    )


def _first(sent: Mapping[str, _Sent], i: int, between_ns: Floats, least_ns: float) -> list[str]:
    """The NICs that were silent in an iteration before all that were over later than usual, and they after it; who was so last comes first.

    In a ring that is who stood still, as what it passes on comes to each once: who was silent before did not make it wait.

    Who waits for what it is sent falls silent after who did not send it, so each of these was silent, and after one that sends to it.
    """
    since_ns, until_ns = between_ns
    silent = []
    for nic, each in sent.items():
        inside = (each.at_ns >= since_ns) & (each.at_ns + each.by_ns <= until_ns) & (each.by_ns >= least_ns)
        silent += [(int(at_ns), nic) for at_ns in each.at_ns[inside].tolist()]
    late = {nic for nic, each in sent.items() if each.later_ns[i] >= least_ns}
    found: list[str] = []
    passed = defaultdict[str, list[tuple[int, set[str]]]](list)
    for at_ns, nic in sorted(silent, reverse=True):
        after = [those for to in sent[nic].to for then_ns, those in passed[to] if then_ns >= at_ns + AHEAD_NS]
        passed[nic].append((at_ns, {nic}.union(*after)))
        if late and late <= passed[nic][-1][1]:
            found.append(nic)
    return found
