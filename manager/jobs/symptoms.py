"""What of a job's last iterations tells why they take as long as they do. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.clocksync.graph.robust import centre
from manager.jobs.flows import Flow, FlowBursts, Rows
from manager.jobs.kinds import SYMMETRIC, Communicator
from manager.jobs.stragglers import Lateness, lateness

LATELY_NS = 10 * 10**9
LEAST_LATELY = 8
"""Iterations that are looked at, if they are fewer in that time."""

RECENT = 5
"""The last iterations: half of them tell that all have become longer."""

LONGER_NS, LONGER_SHARE, LONGER_SPREADS = 15_000_000, 0.02, 6.0
"""By so much more than the median: an iteration that took longer; of the time, of a period, of how far others are from it."""

LEAST_TIMES, MOST_LONGER = 2, 0.4
"""So many times, with others between and behind them, and of all this share at most: it happens now and then."""

SAME_SHARE = 0.66
"""Of the longer ones in which it is clear who was silent first: in so many it was the same NIC."""

AHEAD_NS = 8_000_000
"""Of the next one's silence: ends of bursts are known to a jiffy."""

LOSING_SHARE = 0.003
"""Of the packets of a flow: so many are sent again where something loses them."""

Ints = NDArray[np.int64]


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


@dataclass(frozen=True, eq=False)
class Symptoms:
    """What is known of a job's last iterations.

    Attributes:
        lasted_ns: how long they took, shape (iterations,).
        late: how late each NIC was; the latest first.
        pauses: who stood still now and then; None where nobody did.
        sent, resent: packets of each flow in that time, those sent again and answered with a NAK.
    """

    lasted_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    late: tuple[Lateness, ...] = ()
    pauses: Pauses | None = None
    sent: Mapping[Flow, int] = field(default_factory=dict)
    resent: Mapping[Flow, int] = field(default_factory=dict)

    @cached_property
    def median_ns(self) -> float | None:
        """How long they took, the median; None where there are none."""
        return float(np.median(self.lasted_ns)) if len(self.lasted_ns) else None

    @cached_property
    def recent_ns(self) -> float | None:
        """How long the last few took, the median; None where there are none."""
        return float(np.median(self.lasted_ns[-RECENT:])) if len(self.lasted_ns) else None

    @property
    def loses(self) -> bool:
        """Whether packets of some flow are lost on the way."""
        return any(again > LOSING_SHARE * self.sent.get(flow, 0) for flow, again in self.resent.items())


def symptoms(
    flows: Sequence[FlowBursts], members: Sequence[Communicator], starts_ns: Ints, now_ns: int
) -> Symptoms:
    """What the bursts of a job's flows tell of its last iterations.

    Args:
        flows: all of the job.
        members: who does what.
        starts_ns: when its iterations began, on the timeline, shape (iterations,).
        now_ns: the timeline now.
    """
    since_ns = min([now_ns - LATELY_NS, *starts_ns[-2:-1].tolist()])
    count = max(int(np.count_nonzero(starts_ns >= since_ns)), LEAST_LATELY + 1)
    sent, resent = Counter[Flow](), Counter[Flow]()
    for each in flows:
        rows = each.left[each.left["end_ns"] >= since_ns]
        again = max(
            int(rows["resent"].sum()), int(each.arrived[each.arrived["end_ns"] >= since_ns]["resent"].sum())
        )
        sent[each.flow], resent[each.flow] = int(rows["packets"].sum()), again + int(rows["naks"].sum())
    return Symptoms(
        lasted_ns=np.diff(starts_ns[-count:]),
        late=tuple(lateness(flows, members, starts_ns[-count:])),
        pauses=_pauses(flows, members, starts_ns),
        sent=sent,
        resent=resent,
    )


def _pauses(flows: Sequence[FlowBursts], members: Sequence[Communicator], starts_ns: Ints) -> Pauses | None:
    lasted_ns = np.diff(starts_ns)
    if len(lasted_ns) < LEAST_LATELY or any(each.kind not in SYMMETRIC for each in members):
        return None
    middle, spread = centre(lasted_ns.astype(np.float64))
    extra = lasted_ns - middle
    longer = np.flatnonzero(extra > max(LONGER_NS, LONGER_SHARE * middle, LONGER_SPREADS * spread))
    times = (
        np.count_nonzero(np.diff(longer) > 1) + 1 if len(longer) and longer[-1] < len(lasted_ns) - 1 else 0
    )
    if times < LEAST_TIMES or len(longer) > MOST_LONGER * len(lasted_ns):
        return None
    begun = {
        nic: _unusual_silences(rows, float(np.median(extra[longer])) / 2)
        for nic, rows in _sent_by_nic(flows).items()
    }
    first = Counter(_first(begun, int(starts_ns[i]), int(starts_ns[i + 1])) for i in longer.tolist())
    del first[""]
    nic, count = first.most_common(1)[0] if first else ("", 0)
    if count < max(LEAST_TIMES, SAME_SHARE * first.total()):
        return None
    return Pauses(nic, round(float(np.median(extra[longer]))), len(longer), len(lasted_ns))


def _sent_by_nic(flows: Sequence[FlowBursts]) -> dict[str, Rows]:
    sent: dict[str, list[Rows]] = {}
    for each in flows:
        sent.setdefault(each.flow.src, []).append(each.left)
    return {nic: np.concatenate(rows) for nic, rows in sent.items()}


def _unusual_silences(rows: Rows, least_ns: float) -> Ints:
    """When silences of a NIC began that it does not have in each iteration, or went on for longer than those; shape (n,).

    Args:
        rows: its bursts, in any order.
        least_ns: what is shorter, or longer by less, is usual.
    """
    order = np.argsort(rows["start_ns"], kind="stable")
    begins, ends = rows["start_ns"][order], np.maximum.accumulate(rows["end_ns"][order])
    since, silent = ends[:-1], begins[1:] - ends[:-1]
    since, silent = since[silent > least_ns], silent[silent > least_ns]
    if not len(silent):
        return since
    usual = float(np.median(silent[silent > 0.5 * silent.max()]))
    longer = silent > usual + least_ns
    found: Ints = np.sort(np.concatenate([since[silent < usual - least_ns], since[longer] + round(usual)]))
    return found


def _first(begun: Mapping[str, Ints], start_ns: int, end_ns: int) -> str:
    """The NIC whose silence began before all others' in an iteration; empty where that is not clear."""
    first = sorted(
        (int(each[place]), nic)
        for nic, each in begun.items()
        if (place := int(np.searchsorted(each, start_ns))) < len(each) and each[place] < end_ns
    )
    if not first or (len(first) > 1 and first[1][0] - first[0][0] < AHEAD_NS):
        return ""
    return first[0][1]
