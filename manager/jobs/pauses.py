"""Who of a job stands still now and then. Pure.

What an iteration takes from when the last NIC begins to send to when all is over hardly varies, as no computing is in it. Where it
takes longer now and then, the NIC of the rank that stood still is silent before those that wait for it. Where packets were sent
again meanwhile nobody need have stood still, so that does not count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.clocksync.graph.robust import centre
from manager.jobs.bounds import Floats, Iterations
from manager.jobs.flows import BurstColumns, FlowBursts, Ints
from manager.jobs.kinds import SYMMETRIC, Communicator

LEAST_ITERATIONS = 8

LONGER_NS, LONGER_SHARE, LONGER_SPREADS = 15_000_000, 0.02, 6.0
"""By so much more than the median: an iteration that took longer; of the time, of a period, of how far others are from it."""

LEAST_TIMES, MOST_LONGER = 2, 0.4
"""So many times, with others between and behind them, and of all this share at most: it happens now and then."""

SAME_SHARE = 0.66
"""Of the longer ones in which it is clear who was silent first: in so many it was the same NIC."""

MOSTLY = 0.6
"""Of what an iteration took longer: for so long who stood still was silent, and then those that waited for it."""

AHEAD_NS = 8_000_000
"""Of the next one's silence: ends of bursts are known to a jiffy."""

LATEST = 5
"""Of the last so many at most `MOST_LONGER` took longer: else all do now."""


@dataclass(frozen=True)
class Pauses:
    """Iterations that took longer than the others, as one NIC sent nothing for a while.

    Attributes:
        nic: the one that was silent before all others, where that is clear.
        longer_ns: by how much these took longer, the median.
        longer, iterations: how many took longer, and how many there were.
        rank: of which rank that is known; empty where programs do not tell.
    """

    nic: str
    longer_ns: int
    longer: int
    iterations: int
    rank: str = ""


class _Silences(NamedTuple):
    """When silences of a NIC began, or went on for longer than usual, and by how much; shapes (n,)."""

    nic: str
    at_ns: Ints
    by_ns: Ints


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
    """Which of some times were longer than the others, if that happens now and then, with others between and behind.

    Args:
        took_ns: in order, NaN where it is not known, shape (n,).

    Returns:
        By how much each was longer than the median, 0 where it is not known, in ns, shape (n,); and the places of those that were
        notably longer, shape (m,), none where that happened too seldom, or too often.
    """
    middle, spread = centre(took_ns[np.isfinite(took_ns)])
    extra = np.nan_to_num(took_ns - middle)
    longer = np.flatnonzero(extra > max(LONGER_NS, LONGER_SHARE * middle, LONGER_SPREADS * spread))
    is_behind = len(longer) > 0 and longer[-1] < len(extra) - 1
    times = np.count_nonzero(np.diff(longer) > 1) + 1 if is_behind else 0
    latest = np.count_nonzero(longer >= len(extra) - LATEST)
    if times < LEAST_TIMES or len(longer) > MOST_LONGER * len(extra) or latest > MOST_LONGER * LATEST:
        return extra, longer[:0]
    return extra, longer


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
    silences = [
        _silences(nic, sent, float(extra[longer].min()) / 2) for nic, sent in iterations.flows.sent().items()
    ]
    begun_ns = bounds_ns[1:] - iterations.over_ns - took_ns
    first = Counter(
        _first(silences, (begun_ns[i], float(bounds_ns[i + 1])), MOSTLY * extra[i]) for i in longer.tolist()
    )
    del first[""]
    nic, count = first.most_common(1)[0] if first else ("", 0)
    if count < max(LEAST_TIMES, SAME_SHARE * first.total()):
        return None
    return Pauses(nic, round(float(np.median(extra[longer]))), len(longer), len(extra))


def _silences(nic: str, sent: BurstColumns, least_ns: float) -> _Silences:
    """Silences that a NIC does not have in each iteration, or by how much longer than those they were.

    Args:
        nic: its name.
        sent: its bursts, in any order.
        least_ns: what is shorter, or longer by less, is usual.
    """
    order = np.argsort(sent.start_ns, kind="stable")
    begins, ends = sent.start_ns[order], np.maximum.accumulate(sent.end_ns[order])
    since, silent = ends[:-1], begins[1:] - ends[:-1]
    since, silent = since[silent > least_ns], silent[silent > least_ns]
    usual = round(float(np.median(silent[silent > 0.5 * silent.max()]))) if len(silent) else 0
    shorter, longer = silent < usual - least_ns, silent > usual + least_ns
    return _Silences(
        nic,
        np.concatenate([since[shorter], since[longer] + usual]),
        np.concatenate([silent[shorter], silent[longer] - usual]),
    )


def _first(silences: Sequence[_Silences], between_ns: tuple[float, float], least_ns: float) -> str:
    """The NIC that was silent before all others, of those that were so for long enough between two moments; empty where that is not clear."""
    since_ns, until_ns = between_ns
    first = []
    for each in silences:
        at_ns = each.at_ns[(each.at_ns >= since_ns) & (each.at_ns < until_ns) & (each.by_ns >= least_ns)]
        if len(at_ns):
            first.append((int(at_ns.min()), each.nic))
    first.sort()
    if not first or (len(first) > 1 and first[1][0] - first[0][0] < AHEAD_NS):
        return ""
    return first[0][1]
