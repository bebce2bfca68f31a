"""Control laws to hold against each other in `tools.sim.incast.simulation`: ours, none, and two that were tried and not taken."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cwdp.congestion import law
from tools.sim.incast.simulation import FRAME_BYTES, Incast, Law, Simulation

THRESHOLD_S = 0.002
FLOOR_BPS = FRAME_BYTES * 8 / 0.04


class Ours:
    """The law that the agent uses."""

    def __init__(self, link_bps: float) -> None:
        self._link_bps = link_bps
        self._flows = law.new_flows(1, 0)

    def step(self, now_ns: int, queue_ns: Sequence[float], sent_bps: float, elapsed_s: float) -> float:
        """See `tools.sim.incast.simulation.Law`."""
        seen = law.Seen(
            queue_ns=np.array([np.mean(queue_ns) if queue_ns else np.nan]),
            marked=np.zeros(1, dtype=bool),
            sent_bps=np.array([sent_bps]),
            ceiling_bps=np.array([self._link_bps]),
            floor_bps=np.array([FLOOR_BPS]),
        )
        law.step(self._flows, seen, now_ns, elapsed_s, THRESHOLD_S * 1e9)
        return min(float(self._flows["rate_bps"][0]), self._link_bps)


class Nothing:
    """No control: windows alone."""

    def __init__(self, link_bps: float) -> None:
        self._link_bps = link_bps

    def step(self, now_ns: int, queue_ns: Sequence[float], sent_bps: float, elapsed_s: float) -> float:
        """See `tools.sim.incast.simulation.Law`."""
        del now_ns, queue_ns, sent_bps, elapsed_s
        return self._link_bps


class Pause:
    """On-Ramp (NSDI 2021, section 3): send nothing for a part of the time by which the delay exceeds the threshold."""

    PART = 0.5

    def __init__(self, link_bps: float) -> None:
        self._link_bps = link_bps
        self._until_ns = 0.0

    def step(self, now_ns: int, queue_ns: Sequence[float], sent_bps: float, elapsed_s: float) -> float:
        """See `tools.sim.incast.simulation.Law`."""
        del sent_bps, elapsed_s
        if queue_ns:
            excess_ns = queue_ns[-1] - THRESHOLD_S * 1e9
            self._until_ns = max(self._until_ns, now_ns + self.PART * excess_ns)
        return FLOOR_BPS if now_ns < self._until_ns else self._link_bps


class Swift:
    """Additive increase, multiplicative decrease by the excess (Swift: Kumar et al., SIGCOMM 2020), on rates."""

    INCREASE, BETA, MOST_DECREASE, GAP_NS = 0.01, 0.8, 0.5, 20_000_000

    def __init__(self, link_bps: float) -> None:
        self._link_bps = self._rate_bps = link_bps
        self._decreased_ns = 0

    def step(self, now_ns: int, queue_ns: Sequence[float], sent_bps: float, elapsed_s: float) -> float:
        """See `tools.sim.incast.simulation.Law`."""
        del sent_bps, elapsed_s
        if not queue_ns:
            return self._rate_bps
        excess_ns = queue_ns[-1] - THRESHOLD_S * 1e9
        if excess_ns < 0:
            self._rate_bps = min(self._link_bps, self._rate_bps + self.INCREASE * self._link_bps)
        elif now_ns - self._decreased_ns > self.GAP_NS:
            self._rate_bps *= max(1 - self.BETA * excess_ns / queue_ns[-1], 1 - self.MOST_DECREASE)
            self._decreased_ns = now_ns
        self._rate_bps = max(self._rate_bps, FLOOR_BPS)
        return self._rate_bps


LAWS: dict[str, Callable[[float], Law]] = {"ours": Ours, "none": Nothing, "pause": Pause, "swift": Swift}

SETTLED_S = 2.0


def compare(senders: int, seconds: float, loop_s: float, seed: int) -> list[dict[str, Any]]:
    """One row for each law: the delay, what of the link is used and Jain's index, after the first two seconds."""
    wanted = Incast(senders=senders, seconds=seconds, pulse_s=loop_s, step_s=loop_s)
    rows = []
    for name, make_law in LAWS.items():
        outcome = Simulation(wanted, make_law, seed).run()
        goodput = outcome.goodput_bps(SETTLED_S, seconds)
        rows.append(
            {
                "law": name,
                "owd_p99_ms": outcome.owd_quantile_ns(0.99, SETTLED_S) / 1e6,
                "owd_first_p99_ms": outcome.owd_quantile_ns(0.99) / 1e6,
                "link_used": float(goodput.sum()) / wanted.link_bps,
                "jain": float(goodput.sum() ** 2 / (senders * (goodput**2).sum())),
            }
        )
    return rows
