"""What NICs' links are taken to carry, and what queue pairs would take."""

import numpy as np
import pytest
from numpy.typing import NDArray

from manager.placement.flows import Flows, QpName
from manager.planner.demand import HEADROOM, NicRates, demands

STEP_S = 0.25
NIC_BPS = 100e9


def _flows(rates: NDArray[np.float64]) -> Flows:
    """One queue pair of each NIC to the next."""
    n = len(rates)
    return Flows(
        names=[QpName(f"h{i}", "eth0", "10.0.0.1", 16 + i) for i in range(n)],
        dst=[f"h{(i + 1) % n}/eth0" for i in range(n)],
        sport=np.full(n, 50_000),
        rate_bps=rates,
        small=np.zeros(n, dtype=bool),
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_of_many_inexact_rates_is_not_taken_at_its_word(seed: int) -> None:
    rng, rates = np.random.default_rng(seed), NicRates()
    known = [
        rates.learn(_flows(NIC_BPS * rng.normal(1.0, 0.03, 16)), step * STEP_S) or 0.0 for step in range(1200)
    ]
    assert max(known[20:]) <= 1.06 * NIC_BPS
    assert min(known[20:]) >= 0.99 * NIC_BPS


def test_what_a_nic_really_sends_is_learnt_at_once() -> None:
    rates = NicRates()
    rates.learn(_flows(np.full(4, 0.1 * NIC_BPS)), 0.0)
    assert rates.learn(_flows(np.full(4, NIC_BPS)), STEP_S) == pytest.approx(NIC_BPS)


@pytest.mark.parametrize("count", [2, 4, 16])
@pytest.mark.parametrize("absurd", [8e16, 9e12, 2 * NIC_BPS])
@pytest.mark.parametrize("lasts_s", [STEP_S, 3.0])
def test_what_one_host_claims_for_a_moment_is_nobodys_rate(count: int, absurd: float, lasts_s: float) -> None:
    rates, sane = NicRates(), np.full(count, NIC_BPS)
    for step in range(40):
        now_s, sent = step * STEP_S, sane.copy()
        if 0.0 <= now_s - 6.0 < lasts_s:
            sent[count // 2] = absurd
        known = rates.learn(_flows(sent), now_s)
        assert now_s < 5.0 or known == pytest.approx(NIC_BPS)


@pytest.mark.parametrize("seed", range(3))
def test_what_one_host_alone_sends_is_believed_once_it_has_for_a_while(seed: int) -> None:
    """However long the steps of the planner take: also for longer than anything is remembered of."""
    rates, sent = NicRates(), np.array([NIC_BPS, 1e6, 1e6])
    when_s = np.cumsum(np.random.default_rng(seed).uniform(0.1, 1.5, 1000)).tolist()
    known = [rates.learn(_flows(sent), now_s) for now_s in when_s]
    for now_s, bps in zip(when_s, known, strict=True):
        assert now_s < when_s[0] + 6.0 or bps == pytest.approx(NIC_BPS, rel=0.01)


@pytest.mark.parametrize("count", [3, 8])
def test_no_rate_is_beyond_the_links_that_hosts_tell_of(count: int) -> None:
    rates, sent = NicRates(), np.full(count, 0.9 * NIC_BPS)
    sent[0] = 9e12
    known = [rates.learn(_flows(sent), step * STEP_S, most_bps=NIC_BPS) for step in range(80)]
    assert max(bps for bps in known if bps is not None) <= NIC_BPS


def test_a_rate_is_forgotten_when_nothing_has_come_near_it_for_long() -> None:
    rates = NicRates()
    rates.learn(_flows(np.full(4, NIC_BPS)), 0.0)
    slow = _flows(np.full(4, 0.2 * NIC_BPS))
    known = {now_s: rates.learn(slow, now_s) for now_s in np.arange(STEP_S, 400.0, STEP_S).tolist()}
    assert known[NicRates.REMEMBERED_S - STEP_S] == pytest.approx(NIC_BPS)
    assert known[NicRates.REMEMBERED_S + STEP_S] == pytest.approx(0.2 * NIC_BPS)


def test_what_sends_little_without_a_queue_on_its_way_wants_no_more_than_that() -> None:
    sent = np.array([1.0, 0.2, 1.0, 0.2]) * NIC_BPS
    may_queue = np.array([True, True, True, False])
    wanted = demands(_flows(sent), NIC_BPS, sent, may_queue)
    assert wanted == pytest.approx(np.array([1.0, 1.0, 1.0, 0.2 * HEADROOM]) * NIC_BPS, rel=2e-3)
