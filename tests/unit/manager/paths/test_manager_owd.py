"""The delay store against plain Python over the same probes."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.shared.bus.edges import PathStat, path_rows
from cwdp.shared.bus.records import told_delays
from manager.clock.apart import OURS
from manager.paths.owd import FORGET_AFTER_S, SLOTS, WINDOW_S, OwdStore

QUANTILES = "min", "p50", "p99"
delays = st.integers(-1000, 2**31 - 1)


def _stat(
    values: list[int],
    *,
    lost: int = 0,
    sport: int = 50000,
    queued: int = 0,
    src: str = "a/eth0",
    dst: str = "b/eth0",
) -> PathStat:
    ordered = sorted(values)
    point = {"min": None, "p50": None, "p99": None}
    if ordered:
        point = {"min": ordered[0], "p50": ordered[(len(ordered) - 1) // 2], "p99": ordered[-1]}
    return PathStat(
        src=src,
        dst=dst,
        sport=sport,
        reply_sport=60000,
        sent=len(values) + lost,
        lost=lost,
        queued=queued,
        rtt_min_ns=None,
        bound_ns=40,
        **{f"{way}_{name}_ns": value for way in ("fwd", "rev") for name, value in point.items()},
    )


@given(st.lists(st.lists(delays, min_size=1, max_size=3), min_size=1, max_size=SLOTS))
def test_up_to_three_probes_a_report_the_window_is_exact(reports: list[list[int]]) -> None:
    store = OwdStore()
    for i, values in enumerate(reports):
        store.add("a", path_rows([_stat(values)]), i * WINDOW_S / (2 * SLOTS))
    paths = store.snapshot(WINDOW_S / 2)
    pooled = np.sort(np.concatenate(reports))
    assert paths.sent[0] == len(pooled)
    assert paths.delays["fwd_min_ns"][0] == pooled[0]
    for share, name in ((0.5, "fwd_p50_ns"), (0.99, "rev_p99_ns")):
        assert paths.delays[name][0] == pooled[max(0, math.ceil(share * len(pooled) - 1e-9) - 1)]


def test_many_probes_a_report_err_to_the_high_side_only() -> None:
    source = np.random.default_rng(1)
    store, everything = OwdStore(), []
    for i in range(10):
        values = source.exponential(1000, 500).astype(int)
        everything.append(values)
        low, mid, top = (int(np.quantile(values, q)) for q in (0, 0.5, 0.99))
        stat = msgspec.structs.replace(
            _stat([low] * 500), fwd_min_ns=low, fwd_p50_ns=mid, fwd_p99_ns=top, rev_p99_ns=top
        )
        store.add("a", path_rows([stat]), float(i))
    paths = store.snapshot(9.5)
    pooled = np.concatenate(everything)
    assert paths.delays["fwd_p50_ns"][0] == pytest.approx(np.median(pooled), rel=0.1)
    assert 0.9 * np.quantile(pooled, 0.99) < paths.delays["fwd_p99_ns"][0] < 1.5 * np.quantile(pooled, 0.99)


def test_all_that_is_told_in_a_window_has_room_each_second_though_some_come_early() -> None:
    draw, store, told_s = np.random.default_rng(3), OwdStore(), []
    for second in range(60):
        now_s = second - draw.uniform(0.0, 0.2)
        store.add("a", path_rows([_stat([second])]), now_s)
        told_s.append(now_s)
        of_late = [second for second, at_s in enumerate(told_s) if at_s > now_s - WINDOW_S]
        paths = store.snapshot(now_s)
        assert paths.sent[0] == len(of_late)
        assert paths.delays["fwd_min_ns"][0] == of_late[0]


def test_only_the_window_counts_and_totals_go_on() -> None:
    store = OwdStore()
    store.add("a", path_rows([_stat([5, 5], lost=1, queued=1)]), 0.0)
    store.add("a", path_rows([_stat([7])]), WINDOW_S)
    paths = store.snapshot(WINDOW_S + 1)
    assert (paths.sent[0], paths.lost[0], paths.queued[0]) == (1, 0, 0)
    assert paths.delays["fwd_min_ns"][0] == 7
    assert store.totals == {"sent": 4, "lost": 1, "queued": 1}


def test_a_path_without_an_answer_has_loss_and_no_delay() -> None:
    store = OwdStore()
    store.add("a", path_rows([_stat([], lost=9)]), 0.0)
    paths = store.snapshot(1.0)
    assert (paths.sent[0], paths.lost[0]) == (9, 9)
    assert all(np.isnan(values[0]) for values in paths.delays.values())


def test_stale_paths_go_and_their_room_is_used_again() -> None:
    store = OwdStore()
    for turn in range(5):
        now_s = turn * 2 * FORGET_AFTER_S
        store.expire(now_s)
        store.add("a", path_rows([_stat([1], sport=50000 + 100 * turn + i) for i in range(100)]), now_s)
        assert len(store) == 100
    assert len(store.snapshot(now_s).keys) == 100
    assert store._next.size == 128


def test_numbers_of_any_size_are_clipped() -> None:
    store = OwdStore()
    store.add("a", path_rows([_stat([2**63, 2**64 - 1, -(2**63)])]), 0.0)
    paths = store.snapshot(0.0)
    assert paths.delays["fwd_min_ns"][0] == -(2**31) + 1
    assert paths.delays["fwd_p99_ns"][0] == 2**31 - 1


def test_an_empty_store_answers() -> None:
    assert OwdStore().snapshot(0.0).keys == []
    OwdStore().expire(0.0)


def test_one_way_delays_to_another_timeline_are_not_known_and_round_trips_are() -> None:
    store = OwdStore()
    far = msgspec.structs.replace(_stat([2**31 - 1], dst="x/eth0"), rtt_min_ns=7_000)
    store.add("a", path_rows([_stat([5_000]), far]), 0.0, {"a": OURS, "b": OURS}.get)
    paths = store.snapshot(0.0)
    at = [key[1] for key in paths.keys].index("x/eth0")
    assert np.isnan([paths.delays[name][at] for name in ("fwd_min_ns", "rev_p50_ns", "rev_p99_ns")]).all()
    assert np.isnan(paths.bound_ns[at])
    assert paths.delays["rtt_min_ns"][at] == 7_000
    assert paths.sent[at] == 1
    assert paths.delays["fwd_min_ns"][1 - at] == 5_000


@given(st.integers(-(10**17), 10**17), st.integers(0, 10**6))
def test_of_a_timeline_known_to_be_ahead_delays_come_out_whole(ahead_ns: int, delay_ns: int) -> None:
    """What agents tell of it are the lowest 32 bits."""
    there, back = (
        each.tolist()[0]
        for each in told_delays(np.array([delay_ns + ahead_ns]), np.array([delay_ns - ahead_ns]))
    )
    told = {f"{way}_{name}_ns": each for way, each in (("fwd", there), ("rev", back)) for name in QUANTILES}
    store = OwdStore()
    store.add(
        "a",
        path_rows([msgspec.structs.replace(_stat([0], dst="x/eth0"), **told)]),
        0.0,
        {"x": (ahead_ns, 160.5)}.get,
    )
    paths = store.snapshot(0.0)
    unknown = {there, back} & {2**31 - 1, -(2**31) + 1} and ahead_ns
    if not unknown:
        assert {paths.delays[name][0] for name in told} <= {delay_ns, delay_ns + 1}
    assert paths.bound_ns[0] == 40 + 161


def test_what_an_older_agent_clips_stays_unknown_and_so_does_what_had_no_bound() -> None:
    store = OwdStore()
    ahead = {"x": (3 * 10**9, 100.0)}.get
    clipped = {
        f"{way}_{name}_ns": each
        for way, each in (("fwd", 2**31 - 1), ("rev", -(2**31) + 1))
        for name in QUANTILES
    }
    store.add("a", path_rows([msgspec.structs.replace(_stat([0], dst="x/eth0"), **clipped)]), 0.0, ahead)
    unsynced = msgspec.structs.replace(_stat([], sport=1, dst="x/eth0", lost=1), bound_ns=None)
    store.add("a", path_rows([unsynced]), 0.0, ahead)
    paths = store.snapshot(0.0)
    assert np.isnan([paths.delays[name] for name in clipped]).all()
    assert np.isnan(paths.bound_ns).tolist() == [False, True]
