"""The control law: alone, and in simulated incasts of many sizes, starts, windows and delays of the loop."""

import random

import numpy as np
import pytest

from cwdp.congestion import law
from tools.sim.incast.laws import Nothing, Ours, Pause
from tools.sim.incast.simulation import Incast, Outcome, Simulation

LINK = 100e6
THRESHOLD_NS = 2e6
MS = 1_000_000


def seen(queue_ms: float | None, sent_bps: float = LINK, *, marked: bool = False) -> law.Seen:
    return law.Seen(
        queue_ns=np.array([np.nan if queue_ms is None else queue_ms * 1e6]),
        marked=np.array([marked]),
        sent_bps=np.array([sent_bps]),
        ceiling_bps=np.array([LINK]),
        floor_bps=np.array([1e6]),
    )


NOTHING = law.Seen(np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0), np.zeros(0), np.zeros(0))


def rate_after(steps: list[law.Seen], every_ms: int = 10) -> list[float]:
    """The rate after each step of one flow."""
    flows = law.new_flows(1, 0)
    rates = []
    for number, one in enumerate(steps, start=1):
        law.step(flows, one, number * every_ms * MS, every_ms / 1e3, THRESHOLD_NS)
        rates.append(float(flows["rate_bps"][0]))
    return rates


def test_below_the_threshold_nobody_is_held_back() -> None:
    assert rate_after([seen(0.0), seen(1.9), seen(None)] * 20) == [np.inf] * 60


def test_above_the_threshold_a_flow_is_held_below_what_it_sent() -> None:
    assert rate_after([seen(10.0, 20e6)])[0] < 20e6


def test_the_fuller_the_queue_the_less() -> None:
    rates = [rate_after([seen(queue, 20e6)])[0] for queue in (2.1, 5.0, 10.0, 20.0)]
    assert rates == sorted(rates, reverse=True)


def test_a_flow_may_always_send_something() -> None:
    assert min(rate_after([seen(1_000.0)] * 100)) == 1e6


def test_a_flow_is_let_go_when_its_queue_is_empty() -> None:
    rates = rate_after([seen(20.0, 10e6)] * 5 + [seen(0.0, 10e6)] * 40)
    assert rates[4] < 10e6
    assert rates[-1] == np.inf


def test_no_news_change_nothing() -> None:
    rates = rate_after([seen(10.0)] * 3 + [seen(None)] * 10)
    assert len(set(rates[2:])) == 1


def test_a_path_that_says_nothing_for_long_lets_go() -> None:
    rates = rate_after([seen(10.0)] * 3 + [seen(None)] * 200)
    assert rates[-1] == np.inf


def test_marks_hold_back_where_no_delay_is_known() -> None:
    rates = rate_after([seen(None, 50e6, marked=True)] * 10)
    assert rates[-1] < rates[0] < 50e6


def test_rates_converge_to_equal_ones() -> None:
    """The same excess keeps the ratio of two flows; the growth of each does away with it."""
    flows = law.new_flows(2, 0)
    flows["paced"], flows["share"] = True, np.log([0.8, 0.2])
    for number in range(1, 5_000):
        queue_ms = 1.0 + 2.0 * (np.exp(flows["share"]).sum() - 1.0)
        one = law.Seen(
            queue_ns=np.full(2, queue_ms * 1e6),
            marked=np.zeros(2, dtype=bool),
            sent_bps=np.exp(flows["share"]) * LINK,
            ceiling_bps=np.full(2, LINK),
            floor_bps=np.full(2, 1e6),
        )
        law.step(flows, one, number * 10 * MS, 0.01, THRESHOLD_NS)
    shares = np.exp(flows["share"])
    assert shares[0] == pytest.approx(shares[1], rel=0.05)


def test_no_flows() -> None:
    flows = law.new_flows(0, 0)
    law.step(flows, NOTHING, 1, 0.01, THRESHOLD_NS)
    assert len(flows) == 0


def jain(rates: np.ndarray) -> float:
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum()))


def settled(outcome: Outcome, seconds: float, since_s: float = 2.0) -> tuple[float, float, float]:
    """p99 of the delay in ms, what of the link is used, Jain's index."""
    goodput = outcome.goodput_bps(since_s, seconds)
    return outcome.owd_quantile_ns(0.99, since_s) / 1e6, float(goodput.sum()) / LINK, jain(goodput)


@pytest.mark.parametrize(
    ("senders", "loop_s"), [(2, 0.01), (3, 0.005), (5, 0.02), (7, 0.01), (7, 0.025), (10, 0.015), (15, 0.02)]
)
def test_incasts_of_many_sizes(senders: int, loop_s: float) -> None:
    seed = random.randrange(1_000_000)
    wanted = Incast(senders=senders, seconds=5.0, pulse_s=loop_s, step_s=min(loop_s, 0.01))
    owd_ms, used, fairness = settled(Simulation(wanted, Ours, seed).run(), wanted.seconds)
    assert owd_ms < 5.6, seed
    assert used > 0.97, seed
    assert fairness > 0.95, seed


def test_unequal_windows_become_equal_rates() -> None:
    wanted = Incast(senders=7, windows=(4, 6, 8, 10, 12, 16, 32), seconds=6.0)
    _, used, fairness = settled(Simulation(wanted, Ours, 1).run(), wanted.seconds)
    assert used > 0.97
    assert fairness > 0.95
    assert settled(Simulation(wanted, Nothing, 1).run(), wanted.seconds)[2] < 0.8


@pytest.mark.parametrize("windows", [(4, 32), (4, 8, 32), (4, 6, 8, 10, 12, 16, 32)])
def test_rates_are_fair_after_two_seconds(windows: tuple[int, ...]) -> None:
    wanted = Incast(senders=len(windows), windows=windows, seconds=3.0, pulse_s=0.02)
    assert jain(Simulation(wanted, Ours, 1).run().goodput_bps(2.0, 3.0)) > 0.98


def test_the_link_is_filled_again_when_others_leave() -> None:
    wanted = Incast(senders=7, seconds=5.0, stops=(5.0, *[2.0] * 6))
    outcome = Simulation(wanted, Ours, 1).run()
    assert outcome.goodput_bps(2.0, 3.0).sum() > 0.8 * LINK
    assert outcome.goodput_bps(3.0, 5.0).sum() > 0.97 * LINK


def test_late_comers_get_their_share() -> None:
    wanted = Incast(senders=6, seconds=9.0, starts=tuple(0.5 * i for i in range(6)))
    owd_ms, used, fairness = settled(Simulation(wanted, Ours, 2).run(), wanted.seconds, since_s=5.0)
    assert owd_ms < 5.0
    assert used > 0.97
    assert fairness > 0.9


def test_a_lone_sender_is_not_held_back() -> None:
    wanted = Incast(senders=1, seconds=3.0, windows=(16,))
    alone = Simulation(wanted, Ours, 1).run().goodput_bps(1.0, 3.0).sum()
    assert alone > 0.97 * LINK


def test_pausing_alone_wastes_the_link() -> None:
    """Why the law is not the simpler one: RoCEv2 has no congestion control above that would share the link out."""
    wanted = Incast(senders=7, seconds=5.0)
    assert settled(Simulation(wanted, Pause, 1).run(), wanted.seconds)[1] < 0.9
