"""What queue pairs would send if nothing inside the fabric were in their way.

A transport takes what it gets, so its measured rate says nothing of what it could use: two that share a full link
are seen at half their rates. What they could use is their max-min fair share of the links of the NICs alone.
"""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import host_of
from manager.placement.flows import Flows

HEADROOM = 1.25
LEAST_BPS = 1e3
STARVED = 0.85
LIMITED = 0.7
"""Below this share of what it could have, with no queue on its way, a queue pair is limited by its application."""

_TOLERANCE = 1e-3
_SENDS = 0
"""Which of both ends of a flow a NIC is."""

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def max_min_rates(links: Indices, capacity_bps: Floats, most_bps: Floats) -> Floats:
    """Max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

    Args:
        links: the links of each flow by hop, shape (hops, n).
        capacity_bps: of each link, shape (links,); infinite for one that is no limit.
        most_bps: what each flow sends at most, shape (n,); infinite where it takes what it gets.

    Returns:
        Shape (n,), to a thousandth.
    """
    rates = np.zeros(links.shape[1])
    rising = np.ones(links.shape[1], dtype=bool)
    while rising.any():
        fixed = sum(np.bincount(row, np.where(rising, 0.0, rates), len(capacity_bps)) for row in links)
        users = sum(np.bincount(row[rising], minlength=len(capacity_bps)) for row in links)
        level = np.full(len(capacity_bps), np.inf)
        np.divide(np.maximum(capacity_bps - fixed, 0.0), users, out=level, where=users > 0)
        own = np.minimum(level[links].min(axis=0), most_bps)
        least = float(own[rising].min())
        stops = rising & (own <= least * (1 + _TOLERANCE))
        rates[stops] = own[stops]
        rising &= ~stops
    return rates


class NicRates:
    """The rate of NICs' links: what the busiest was seen to send or take in the last while; all are taken for alike.

    What one host alone claims is believed once it has done so for a while: a single wrong report is no rate.
    """

    REMEMBERED_S = 300.0
    SMOOTHING = 0.2
    """Of a NIC's rate: what is read twice in quick succession is not exact, and the largest of many most of all."""

    JUMP = 1.15
    """From so many times what it was, a rate is really another one."""

    RISES = 0.1
    """Of the way up that a somewhat larger rate goes."""

    ALONE_S = 4.0
    """So long one host alone must send or take so much: longer than a rate holds that is not told anew."""

    def __init__(self) -> None:
        self._nics: dict[tuple[int, str], float] = {}
        self._lately: deque[tuple[float, float]] = deque()
        self._best_bps = 0.0
        self._best_s = 0.0

    def learn(self, flows: Flows, now_s: float, most_bps: float = math.inf) -> float | None:
        """Take in what is sent now; the rate in bit/s, at most `most_bps`, None while nothing has been seen."""
        rates, ends = np.nan_to_num(flows.rate_bps), flows.ends
        now = {
            (way, nic): rate
            for way, number in enumerate(ends.number)
            for nic, rate in _by_nic(number, ends.nics, rates).items()
        }
        self._nics = {nic: self._smooth(self._nics.get(nic, 0.0), rate) for nic, rate in now.items()}
        seen = min(most_bps, max(self._sent_by_two(), self._for_a_while(now_s)))
        if seen > 2 * self._best_bps or now_s - self._best_s > self.REMEMBERED_S:
            self._best_bps, self._best_s = seen, now_s
        elif seen >= self._best_bps:
            self._best_bps += self.RISES * (seen - self._best_bps)
            self._best_s = now_s
        return self._best_bps if self._best_bps > LEAST_BPS else None

    def _sent_by_two(self) -> float:
        """The most that NICs of two different hosts send."""
        hosts: dict[str, float] = {}
        for (way, nic), rate in self._nics.items():
            if way == _SENDS:
                hosts[host_of(nic)] = max(rate, hosts.get(host_of(nic), 0.0))
        return sorted(hosts.values())[-2] if len(hosts) > 1 else 0.0

    def _for_a_while(self, now_s: float) -> float:
        """The most that some NIC has sent or taken for `ALONE_S`."""
        self._lately.append((now_s, max(self._nics.values(), default=0.0)))
        while len(self._lately) > 1 and now_s - self._lately[1][0] >= self.ALONE_S:
            self._lately.popleft()
        if now_s - self._lately[0][0] < self.ALONE_S:
            return 0.0
        return min(rate for _, rate in self._lately)

    def _smooth(self, before: float, rate: float) -> float:
        return rate if rate > self.JUMP * before else before + self.SMOOTHING * (rate - before)


def _by_nic(number: Indices, nics: Sequence[str], rates: Floats) -> dict[str, float]:
    """The sum of the rates of each NIC that is at this end of a flow."""
    total = np.bincount(number, rates, len(nics)).tolist()
    return {nics[i]: total[i] for i in np.flatnonzero(np.bincount(number, minlength=len(nics))).tolist()}


def demands(flows: Flows, nic_bps: float, rate_bps: Floats, queueing: NDArray[np.bool_]) -> Floats:
    """What each queue pair would take, in bit/s.

    Args:
        flows: the queue pairs.
        nic_bps: the rate of a NIC's link, each way.
        rate_bps: their measured rates, smoothed, NaN where unknown, shape (n,).
        queueing: whether there may be a queue on its way, shape (n,).
    """
    nics = len(flows.ends.nics)
    ends = flows.ends.number + np.array([[0], [nics]])
    capacity = np.full(2 * nics, nic_bps)
    measured = np.maximum(np.nan_to_num(rate_bps) * HEADROOM, LEAST_BPS)
    elastic = np.where(flows.small, measured, np.inf)
    fair = max_min_rates(ends, capacity, elastic)
    limited = ~queueing & (rate_bps < LIMITED * fair)
    if not limited.any():
        return np.maximum(fair, LEAST_BPS)
    return np.maximum(max_min_rates(ends, capacity, np.where(limited, measured, elastic)), LEAST_BPS)
