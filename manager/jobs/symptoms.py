"""What of a job's last iterations tells why they take as long as they do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from manager.jobs.bounds import Iterations
from manager.jobs.flows import Flow, FlowBursts, Ints, Told
from manager.jobs.kinds import Communicator
from manager.jobs.pauses import Pauses, pauses, resending
from manager.jobs.stragglers import Lateness, lateness

LATELY_NS = 10 * 10**9
LATE_NS = 6 * 10**9
"""Over so long it is looked who is late: half of it tells."""

LEAST_LATELY = 8
"""Iterations that are looked at, if they are fewer in that time."""

RECENT = 5
"""The last iterations, each with the one before it: half of them tell that all have become longer."""

OVER = 2.0
"""Iterations: who has sent nothing for so long sends nothing more."""

LOSING_SHARE = 0.003
"""Of the packets of a flow: so many are sent again where something loses them."""


@dataclass(frozen=True, eq=False)
class Symptoms:
    """What is known of a job's last iterations.

    Attributes:
        lasted_ns: how long they took, shape (iterations,).
        packets: that were sent in one of them, the mean, but those that were sent again; None where there are no iterations.
        late: how late each NIC was; the latest first.
        pauses: who stood still now and then; None where nobody did.
        sent, resent: packets of each flow in that time, and those sent again.
        resending: when packets were sent again, as `manager.jobs.pauses` has it, in all that is known of it, shape (n, 2).
        silent_ns: how long nothing has been sent.
    """

    lasted_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    packets: float | None = None
    late: tuple[Lateness, ...] = ()
    pauses: Pauses | None = None
    sent: Mapping[Flow, int] = field(default_factory=dict)
    resent: Mapping[Flow, int] = field(default_factory=dict)
    resending: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    silent_ns: int = 0

    @cached_property
    def median_ns(self) -> float | None:
        """How long they took, the median; None where there are none."""
        return float(np.median(self.lasted_ns)) if len(self.lasted_ns) else None

    @cached_property
    def recent_ns(self) -> float | None:
        """How long the last few took: the median of the means of two in a row; None where there are none.

        Where jobs get in each other's way one takes long and the next one is short.
        """
        last = self.lasted_ns[-RECENT - 1 :]
        means = (last[1:] + last[:-1]) / 2 if len(last) > 1 else last
        return float(np.median(means)) if len(means) else None

    @property
    def is_over(self) -> bool:
        """Whether nothing has been sent for so long that nothing is going on any more."""
        return self.silent_ns > max(LATELY_NS, OVER * (self.median_ns or 0.0))

    @property
    def loses(self) -> bool:
        """Whether packets of some flow are lost on the way."""
        return any(again > LOSING_SHARE * self.sent.get(flow, 0) for flow, again in self.resent.items())


def symptoms(
    iterations: Iterations, members: Sequence[Communicator], *, latest_ns: int, now_ns: int
) -> Symptoms:
    """What the bursts of a job's flows tell of its last iterations.

    Args:
        iterations: of the job.
        members: who does what.
        latest_ns: when it sent last, on the timeline.
        now_ns: the timeline now.
    """
    flows, starts_ns = iterations.flows, iterations.starts_ns
    since_ns = min([latest_ns - LATELY_NS, *starts_ns[-2:-1].tolist()])
    sent, resent = _packets(flows, since_ns)
    resending_ns, last_ns = resending(flows), _since(starts_ns, since_ns)
    return Symptoms(
        lasted_ns=np.diff(last_ns),
        packets=_packets_of_each(flows, last_ns),
        late=tuple(lateness(Iterations(flows, _since(starts_ns, latest_ns - LATE_NS)), members)),
        pauses=pauses(iterations, members, resending_ns),
        sent=sent,
        resent=resent,
        resending=resending_ns,
        silent_ns=now_ns - latest_ns,
    )


def _packets(flows: FlowBursts, since_ns: int) -> tuple[dict[Flow, int], dict[Flow, int]]:
    """Those of each flow after a moment, and those sent again, as the end tells that tells of more.

    A NAK is about what comes the other way.
    """

    def count(told: Told, name: str) -> NDArray[np.uint64]:
        values: NDArray[np.unsignedinteger] = getattr(told.bursts, name)
        return told.sums(np.where(told.bursts.end_ns >= since_ns, values, 0))

    again = np.maximum(count(flows.left, "resent"), count(flows.arrived, "resent"))
    sent = count(flows.left, "packets")
    return dict(zip(flows.flows, sent.tolist(), strict=True)), dict(
        zip(flows.flows, again.tolist(), strict=True)
    )


def _packets_of_each(flows: FlowBursts, starts_ns: Ints) -> float | None:
    """Those sent in an iteration, the mean, each once."""
    if len(starts_ns) < 2:
        return None
    bursts = flows.left.bursts
    within = (bursts.start_ns >= starts_ns[0]) & (bursts.start_ns < starts_ns[-1])
    sent, again = (int(values[within].sum()) for values in (bursts.packets, bursts.resent))
    return (sent - again) / (len(starts_ns) - 1)


def _since(starts_ns: Ints, since_ns: int) -> Ints:
    """Those after a moment, or the last ones if there are too few, shape (n,)."""
    return starts_ns[-max(int(np.count_nonzero(starts_ns >= since_ns)), LEAST_LATELY + 1) :]
