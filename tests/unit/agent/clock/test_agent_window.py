"""From drained slots to weighed samples, the window, and what a report says of each path."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cwdp.agent.clock.window import MEMORY_NS, STAMPS, UNPAIRED_WEIGHT, Window, weigh
from cwdp.agent.probing.pathstats import QUEUED_NS, path_stats, queued_pairs
from cwdp.agent.probing.prober import ProbeResults
from cwdp.agent.probing.schedule import PathKey
from cwdp.dataplane import abi

KEYS = [PathKey("a/nic0", "b/nic0", 50_000 + n, 60_000 + n) for n in range(4)]
ONE_WAY_NS = 10_000
OFFSET_NS = -3_000_000_000  # the peer's clock is behind: delays before conversion are negative


def _drained(
    path_of_pair: list[int], answered: list[bool] | None = None, sent: list[bool] | None = None
) -> ProbeResults:
    """Pairs 1 ms apart, their probes 2 us; all answered over an idle path unless said otherwise."""
    n = 2 * len(path_of_pair)
    slots = np.zeros(n, dtype=abi.SLOT)
    slots["t1"] = 10_000_000_000 + np.repeat(np.arange(n // 2) * 1_000_000, 2) + np.tile([0, 2000], n // 2)
    slots["t2"] = slots["t1"].astype(np.int64) + ONE_WAY_NS + OFFSET_NS
    slots["t3"] = slots["t2"] + np.uint64(50)
    slots["t4"] = slots["t1"] + np.uint64(2 * ONE_WAY_NS + 50)
    slots["fwd_owd_ns"] = slots["rev_owd_ns"] = ONE_WAY_NS
    slots["bound_ns"] = 40
    return ProbeResults(
        np.repeat(path_of_pair, 2),
        np.array(sent if sent is not None else [True] * n),
        np.array(answered if answered is not None else [True] * n),
        slots,
    )


def _delay(drained: ProbeResults, probe: int, there_ns: int = 0, back_ns: int = 0) -> None:
    """Have one probe wait in queues."""
    for name, by_ns in (("t2", there_ns), ("t3", there_ns), ("t4", there_ns + back_ns)):
        drained.slots[name][probe] += np.uint64(by_ns)
    drained.slots["fwd_owd_ns"][probe] += there_ns
    drained.slots["rev_owd_ns"][probe] += back_ns


def test_undisturbed_pairs_weigh_one() -> None:
    samples = weigh(_drained([0, 1, 2, 1]), np.array([5, 3, 5]))
    assert samples.edge.tolist() == [5, 5, 3, 3, 5, 5, 3, 3]
    assert samples.weight_out.tolist() == samples.weight_back.tolist() == [1.0] * 8


def test_a_pair_that_met_a_queue_weighs_less_that_way_only() -> None:
    drained = _drained([0] * 10)
    _delay(drained, 3, there_ns=5000)
    _delay(drained, 16, back_ns=5000)
    samples = weigh(drained, np.array([0]))
    assert np.flatnonzero(samples.weight_out < 0.3).tolist() == [2, 3]
    assert np.flatnonzero(samples.weight_back < 0.3).tolist() == [16, 17]


def test_a_probe_without_its_partner_counts_as_one_that_met_a_queue() -> None:
    answered = [True, True, False, True, True, False, False, False]
    drained = _drained([0, 1, 2, 3], answered)
    drained.slots["t4"][~drained.answered] = 77  # what is left of an earlier use must not matter
    samples = weigh(drained, np.arange(4))
    assert samples.edge.tolist() == [0, 0, 1, 2]
    expected = [1.0, 1.0, UNPAIRED_WEIGHT, UNPAIRED_WEIGHT]
    assert samples.weight_out.tolist() == samples.weight_back.tolist() == expected


def test_nothing_answered_is_no_sample() -> None:
    samples = weigh(_drained([0, 1], [False] * 4), np.arange(2))
    assert len(samples.edge) == len(samples.weight_out) == samples.stamps_ns.size == 0


def test_the_window_slides() -> None:
    window = Window()
    for tick in range(5):
        window.add(tick * MEMORY_NS // 2, weigh(_drained([0]), np.array([tick])))
        window.age(tick * MEMORY_NS // 2, np.zeros(6))
    starts = window.exchanges(6).starts
    assert np.diff(starts).tolist() == [0, 0, 2, 2, 2, 0]


def test_the_window_gives_each_edge_its_own_samples_in_order() -> None:
    window = Window()
    first, second = _drained([0, 1, 0]), _drained([1, 1])
    second.slots["t1"] += np.uint64(10**9)
    window.add(0, weigh(first, np.array([2, 0])))
    window.add(1, weigh(second, np.array([2, 0])))
    exchanges = window.exchanges(3)
    assert exchanges.starts.tolist() == [0, 6, 6, 10]
    expected = np.concatenate([first.slots[2:4], second.slots, first.slots[[0, 1, 4, 5]]])
    for name in STAMPS:
        assert getattr(exchanges, f"{name}_ns").tolist() == expected[name].astype(np.int64).tolist()


def test_the_window_forgets_edges() -> None:
    window = Window()
    window.add(0, weigh(_drained([0, 1, 2]), np.arange(3)))
    window.forget({0, 2})
    assert np.diff(window.exchanges(3).starts).tolist() == [0, 2, 0]
    window.forget(set())
    assert window.exchanges(3).starts[-1] == 2


def test_an_empty_window() -> None:
    assert Window().exchanges(3).starts.tolist() == [0, 0, 0, 0]


def test_no_statistics_without_probes() -> None:
    assert path_stats(KEYS, []) == []
    assert path_stats(KEYS, [_drained([1], [False] * 2, [False] * 2)]) == []


def test_sent_lost_and_unsent() -> None:
    sent = [True, True, True, False, True, True]
    answered = [True, False, True, False, True, True]
    first, second = path_stats(KEYS, [_drained([1, 3, 1], answered, sent)])
    assert (first.src, first.dst, first.sport, first.reply_sport) == ("a/nic0", "b/nic0", 50_001, 60_001)
    assert (first.sent, first.lost, second.sport, second.sent, second.lost) == (4, 1, 50_003, 1, 0)


def test_a_path_that_answers_nothing_has_no_delays() -> None:
    (stat,) = path_stats(KEYS, [_drained([2, 2], [False] * 4)])
    assert (stat.sent, stat.lost, stat.queued) == (4, 4, 0)
    assert {stat.rtt_min_ns, stat.fwd_min_ns, stat.fwd_p50_ns, stat.rev_p99_ns, stat.bound_ns} == {None}


def test_before_both_ends_are_synced_there_is_only_a_round_trip() -> None:
    drained = _drained([0, 0, 0])
    drained.slots["bound_ns"] = abi.BOUND_UNSYNCED
    (stat,) = path_stats(KEYS, [drained])
    assert stat.rtt_min_ns == 2 * ONE_WAY_NS
    assert {stat.fwd_min_ns, stat.fwd_p50_ns, stat.rev_min_ns, stat.bound_ns} == {None}


def test_while_the_ends_lock_only_what_was_synced_counts() -> None:
    drained = _drained([0, 0])
    drained.slots["bound_ns"] = [abi.BOUND_UNSYNCED, abi.BOUND_UNSYNCED, 90, 60]
    drained.slots["fwd_owd_ns"] = [-(10**12), -(10**12), 11, 12]
    (stat,) = path_stats(KEYS, [drained])
    assert (stat.fwd_min_ns, stat.fwd_p99_ns, stat.bound_ns) == (11, 12, 90)


@pytest.mark.parametrize("ahead_ns", [-(2**55), 3 * 10**9, -(2**31)])
def test_of_delays_to_a_timeline_that_is_far_away_the_lowest_32_bits_are_told(ahead_ns: int) -> None:
    drained = _drained([0, 0])
    drained.slots["fwd_owd_ns"] += ahead_ns
    drained.slots["rev_owd_ns"] -= ahead_ns
    (stat,) = path_stats(KEYS, [drained])
    assert stat.fwd_min_ns is not None
    assert stat.rev_p99_ns is not None
    assert (stat.fwd_min_ns - ahead_ns) % 2**32 == (stat.rev_p99_ns + ahead_ns) % 2**32 == ONE_WAY_NS
    assert -(2**31) < stat.fwd_min_ns < 2**31


@given(
    st.lists(st.lists(st.tuples(st.integers(-500, 10**9), st.integers(-500, 10**9)), max_size=30), max_size=4)
)
def test_quantiles_are_those_of_numpy(batches: list[list[tuple[int, int]]]) -> None:
    drained, forward, reverse = [], [], []
    for delays in batches:
        if delays:
            batch = _drained([1] * len(delays))
            batch.slots["fwd_owd_ns"] = np.repeat([there for there, _ in delays], 2)
            batch.slots["rev_owd_ns"] = np.repeat([back for _, back in delays], 2)
            drained.append(batch)
            forward += batch.slots["fwd_owd_ns"].tolist()
            reverse += batch.slots["rev_owd_ns"].tolist()
    stats = path_stats(KEYS, drained)
    assert len(stats) == bool(drained)
    for stat in stats:
        assert [stat.fwd_min_ns, stat.fwd_p50_ns, stat.fwd_p99_ns] == _nearest(forward)
        assert [stat.rev_min_ns, stat.rev_p50_ns, stat.rev_p99_ns] == _nearest(reverse)


def _nearest(delays: list[int]) -> list[int]:
    exact: NDArray[np.float64] = np.quantile(np.arange(len(delays)), [0.0, 0.5, 0.99])
    return [sorted(delays)[round(float(rank))] for rank in exact]


def test_pairs_whose_spacing_changed_either_way_met_a_queue() -> None:
    drained = _drained([0, 0, 0, 1, 1, 1])
    _delay(drained, 1, there_ns=QUEUED_NS + 1)
    _delay(drained, 2, back_ns=QUEUED_NS + 1)
    _delay(drained, 4, there_ns=QUEUED_NS)
    _delay(drained, 6, there_ns=9000)
    _delay(drained, 7, there_ns=9000)  # both waited alike: the spacing is as it was
    assert queued_pairs(drained.answered, drained.slots).tolist() == [True, True, False, False, False, False]
    assert [stat.queued for stat in path_stats(KEYS, [drained])] == [2, 0]


def test_half_a_pair_cannot_tell_of_a_queue() -> None:
    drained = _drained([0], [True, False])
    _delay(drained, 0, there_ns=9000)
    assert path_stats(KEYS, [drained])[0].queued == 0


def test_the_least_round_trip_leaves_out_the_time_at_the_responder() -> None:
    drained = _drained([0, 0])
    drained.slots["t3"] += np.uint64(70_000)
    drained.slots["t4"] += np.uint64(70_000)
    _delay(drained, 0, there_ns=300, back_ns=40)
    assert path_stats(KEYS, [drained])[0].rtt_min_ns == 2 * ONE_WAY_NS


@pytest.mark.parametrize("n", [1, 2, 3])
def test_several_drains_are_one_report(n: int) -> None:
    (stat,) = path_stats(KEYS, [_drained([2]) for _ in range(n)])
    assert stat.sent == 2 * n
