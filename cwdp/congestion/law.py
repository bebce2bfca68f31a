"""The control law: from the delay that queues add on the way to the rate of each queue pair. No I/O, no clock.

A flow is held back only while its queue is over a threshold (On-Ramp's idea: Liu et al., "Breaking the Transience-
Equilibrium Nexus", NSDI 2021). Its rate is then

    rate = ceiling * exp(share - GAIN * excess),    excess = queue - target

The second term sees what the queue is now: all that send into it slow down at once, and it drains. The first is what
the flow has come to be worth; it integrates

    d share / dt = -INTEGRAL_GAIN * excess + GROWTH * ceiling / rate + FAIRNESS * (fair - share)

All flows of a queue see the same excess, which keeps their ratios; the growth is the same number of bits per second for
each, which is more for a small one. So rates become equal (as with additive increase and multiplicative decrease, but
without its swings), and the queue comes to stand at target + GROWTH / INTEGRAL_GAIN * (number of flows). That tells each
flow how many share the queue, and with it what share is fair, exp(fair) = GROWTH / (INTEGRAL_GAIN * mean excess): it is
drawn there, as the growth alone would take seconds. While a queue is empty the growth itself grows, so that a link is
soon filled again that others have left.

`GAIN` times the delay of the loop has to stay well below pi / 2: 35 per second allow for 30 ms.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GAIN_PER_S = 35.0
INTEGRAL_GAIN_PER_S2 = 250.0
GROWTH_PER_S = 0.06
ALONE_EXCESS_S = GROWTH_PER_S / INTEGRAL_GAIN_PER_S2
"""By so much a queue stands over the target for each flow that shares it."""

FILL_GROWTH_PER_S2 = 200.0
FAIRNESS_PER_S = 2.0
MEAN_OVER_S = 0.5
"""The mean excess is that of about so long: slower than the loop, so that it has no part in it."""

TARGET = 0.5
"""Of the threshold, so that what is held back stays below it."""

EMPTY = 0.15
"""Of the threshold: a queue below is none."""

MARK_EXCESS_S = 0.002
"""What one congestion notification counts as."""

SENT_MEMORY_S = 0.03
LONGEST_GAP_S = 0.25
STALE_S = 0.25
"""A flow whose path says nothing for so long is let go as if its queue were empty."""

F64 = NDArray[np.float64]
Flags = NDArray[np.bool_]

FLOW = np.dtype(
    [
        ("paced", "?"),
        ("share", "f8"),
        ("rate_bps", "f8"),
        ("sent_bps", "f8"),
        ("mean_excess_s", "f8"),
        ("heard_ns", "i8"),
        ("empty_ns", "i8"),
    ]
)
"""What is remembered of a flow: log of its share of the ceiling, the excess of late, when its path was heard last, since
when its queue is empty."""


@dataclass(frozen=True)
class Seen:
    """What was seen of each flow since the last step; every array has the shape (flows,).

    Attributes:
        queue_ns: delay that queues add on its path, NaN where nothing is known that is new.
        marked: whether congestion notifications have come for it.
        sent_bps: what it has sent since the last step.
        ceiling_bps: what it may send at most.
        floor_bps: what it may send in any case.
    """

    queue_ns: F64
    marked: Flags
    sent_bps: F64
    ceiling_bps: F64
    floor_bps: F64


def new_flows(count: int, now_ns: int) -> NDArray[np.void]:
    """Flows that nothing is known of yet; shape (count,), dtype FLOW."""
    flows = np.zeros(count, dtype=FLOW)
    flows["rate_bps"], flows["heard_ns"] = np.inf, now_ns
    return flows


def step(flows: NDArray[np.void], seen: Seen, now_ns: int, elapsed_s: float, threshold_ns: float) -> None:
    """Move all flows on; `rate_bps` is infinite where a flow is not held back.

    Args:
        flows: dtype FLOW, changed in place.
        seen: of the same flows.
        now_ns: CLOCK_MONOTONIC.
        elapsed_s: since the last step.
        threshold_ns: queueing delay from which on flows are held back.
    """
    if not len(flows):
        return
    weight = min(elapsed_s / SENT_MEMORY_S, 1.0)
    before_bps = np.where(flows["sent_bps"] > 0, flows["sent_bps"], seen.sent_bps)
    flows["sent_bps"] = before_bps + weight * (seen.sent_bps - before_bps)
    queue_s = seen.queue_ns * 1e-9
    threshold_s = threshold_ns * 1e-9
    silent_s = (now_ns - flows["heard_ns"]) * 1e-9
    queue_s = np.where(np.isnan(queue_s) & (silent_s > STALE_S), 0.0, queue_s)
    heard = ~np.isnan(queue_s) | seen.marked
    excess_s = _excess_s(queue_s, seen.marked, TARGET * threshold_s)
    _take_up(flows, seen, heard & (excess_s > (1 - TARGET) * threshold_s))
    changed = heard & flows["paced"]
    if changed.any():
        _count_empty(flows, changed, (queue_s < EMPTY * threshold_s) & ~seen.marked, now_ns)
        _adapt(flows, seen, changed, excess_s, now_ns)
    flows["heard_ns"][~np.isnan(seen.queue_ns) | seen.marked] = now_ns


def _excess_s(queue_s: F64, marked: Flags, target_s: float) -> F64:
    """By how much a queue exceeds the target; a mark speaks for a queue that is not seen."""
    excess_s = np.where(np.isnan(queue_s), 0.0, queue_s) - target_s
    return np.where(marked, np.maximum(excess_s, MARK_EXCESS_S), excess_s)


def _take_up(flows: NDArray[np.void], seen: Seen, over: Flags) -> None:
    """Begin to hold flows back, from what they have sent of late."""
    new = over & ~flows["paced"]
    if new.any():
        sent_bps = np.clip(flows["sent_bps"], seen.floor_bps, seen.ceiling_bps)
        flows["share"][new] = np.log(sent_bps / seen.ceiling_bps)[new]
        flows["empty_ns"][new] = 0
        flows["mean_excess_s"][new] = (ALONE_EXCESS_S * np.exp(-flows["share"]))[new]
        flows["paced"] |= new


def _count_empty(flows: NDArray[np.void], heard: Flags, empty: Flags, now_ns: int) -> None:
    """Remember since when queues are empty; those that were not heard of stay as they are."""
    since_ns = np.where(flows["empty_ns"], flows["empty_ns"], now_ns)
    flows["empty_ns"][heard] = np.where(empty, since_ns, 0)[heard]


def _adapt(flows: NDArray[np.void], seen: Seen, changed: Flags, excess_s: F64, now_ns: int) -> None:
    """One step of those that are held back and whose queue is known."""
    gap_s = np.minimum((now_ns - flows["heard_ns"]) * 1e-9, LONGEST_GAP_S)
    empty_s = np.where(flows["empty_ns"], (now_ns - flows["empty_ns"]) * 1e-9, 0.0)
    least = np.log(seen.floor_bps / seen.ceiling_bps)
    mean_s = flows["mean_excess_s"] + np.minimum(gap_s / MEAN_OVER_S, 1.0) * (
        excess_s - flows["mean_excess_s"]
    )
    fair = np.log(ALONE_EXCESS_S / np.maximum(mean_s, ALONE_EXCESS_S))
    growth = GROWTH_PER_S * np.exp(-flows["share"]) + FILL_GROWTH_PER_S2 * empty_s
    growth += FAIRNESS_PER_S * (np.maximum(fair, least) - flows["share"])
    share = flows["share"] + (growth - INTEGRAL_GAIN_PER_S2 * excess_s) * gap_s
    share = np.clip(share, least, 0.0)
    flows["mean_excess_s"][changed] = mean_s[changed]
    rate_bps = seen.ceiling_bps * np.exp(np.minimum(share - GAIN_PER_S * excess_s, 0.0))
    flows["share"][changed] = share[changed]
    flows["rate_bps"][changed] = np.maximum(rate_bps, seen.floor_bps)[changed]
    free = changed & (share >= 0.0) & (excess_s < 0.0)
    flows["paced"][free] = False
    flows["rate_bps"][free] = np.inf
