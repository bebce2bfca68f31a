"""What hosts say of windows: kept within bounds, whatever they say; queues and loads that come of it."""

from dataclasses import replace

import numpy as np
import pytest
from fabric_fakes import hear_windows, whole_rows
from msgspec import structs
from numpy.typing import NDArray

from cwdp.shared.bus.messages import WindowReport
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import EGRESS, NO_DELAY_NS, QP_ROW, WINDOW_NS, WINDOW_ROW, packed_address
from cwdp.shared.bus.windows import PLACED_ROW, window_report
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.links.inference import QueueInference
from manager.links.loads import CARRIES_LOOKS, Capacities, likely_bps, tiers
from manager.links.matrix import build_matrix
from manager.links.meter import LoadMeter
from manager.links.row_places import Nics
from manager.paths.told import ToldPaths
from manager.paths.windows import (
    FORGET_AFTER,
    KEPT,
    MOST_AHEAD,
    MOST_ROWS_A_HOST,
    RECENT_BUCKET_WINDOWS,
    RECENT_BUCKETS,
    WindowStore,
)
from manager.queue_pairs.counters import NicReport, QueuePairStore
from tools.sim.faults.leafspine import FRAME_NS, LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench

NOW = 10_000
LATEST_LEARNT = (RECENT_BUCKETS - 1) * RECENT_BUCKET_WINDOWS - 5
"""A row that comes later may tell nothing of its path's least delay, if a newer bucket begins at the same time."""

OWNER = {"10.0.0.2": "b/0"}


def _rows(n: int, window: int = NOW, **values: int) -> NDArray[np.void]:
    rows = np.zeros(n, WINDOW_ROW)
    rows["window"], rows["sent"] = window, 2
    rows["dst_addr"] = list(packed_address("10.0.0.2"))
    rows["sport"], rows["reply_sport"] = 50_000 + np.arange(n) % 15_000, 60_000 + np.arange(n) // 15_000
    for name in ("fwd_min_ns", "fwd_mean_ns", "rev_min_ns", "rev_mean_ns"):
        rows[name] = 5_000
    for name, value in values.items():
        rows[name] = value
    return rows


def test_delays_are_above_the_least_of_their_path() -> None:
    store = WindowStore()
    hear_windows(store, ["a/nic0"], _rows(3), NOW)
    hear_windows(store, ["a/nic0"], _rows(3, NOW + 1, fwd_mean_ns=9_000, fwd_min_ns=7_000), NOW + 1)
    window = store.window(NOW + 1)
    here = [i for i, name in enumerate(store.names) if name is not None]
    assert window.mean_ns[0, here].tolist() == [4_000] * 3
    assert window.least_ns[0, here].tolist() == [2_000] * 3
    assert window.mean_ns[1, here].tolist() == [0] * 3


def _any_rows(draw: np.random.Generator, window: int) -> NDArray[np.void]:
    """Of some paths, some of them over several windows."""
    rows = _rows(int(draw.integers(1, 40)), window)
    rows["further"] = draw.integers(0, 5, len(rows)) * (draw.random() < 0.3)
    rows["sent"] = draw.integers(1, 20, len(rows))
    rows["lost"] = draw.integers(0, rows["sent"] + 1)
    rows["fwd_min_ns"] = draw.integers(4_000, 6_000, len(rows))
    rows["fwd_mean_ns"] = rows["fwd_min_ns"] + draw.integers(0, 9_000, len(rows))
    return rows


def test_it_makes_no_difference_how_often_somebody_looks() -> None:
    """Late rows, the same windows again with other counts, paths that go and come, clocks that were wrong, a jump of time."""
    draw = np.random.default_rng(5)
    looked, left = WindowStore(), WindowStore()
    nics = [f"{letter}/nic0" for letter in "abcdef"]
    for turn in range(300):
        now = NOW + turn // 4 + (turn > 160) * 3 * FORGET_AFTER
        for nic in draw.permutation(nics)[: draw.integers(1, 6)].tolist():
            rows = _any_rows(draw, now - int(draw.integers(0, LATEST_LEARNT)))
            hear_windows(looked, [nic], rows, now)
            looked.window(now)
            hear_windows(left, [nic], rows, now)
        ends = {nics[turn % 6]: (now - 9, now - 3)} if draw.random() < 0.1 else {}
        for store in (looked, left) if draw.random() < 0.2 else ():
            store.distrust(ends)
            store.expire(now)
        for window in range(now - KEPT, now + MOST_AHEAD) if draw.random() < 0.2 else ():
            one, other = looked.window(window), left.window(window)
            for name in ("sent", "lost", "mean_ns", "least_ns"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert looked.reports == left.reports
    assert looked.names == left.names


def test_a_delay_that_is_not_known_is_none_and_counts_all_the_same() -> None:
    store = WindowStore()
    hear_windows(store, ["a/nic0"], _rows(1, fwd_mean_ns=NO_DELAY_NS, fwd_min_ns=NO_DELAY_NS, lost=2), NOW)
    hear_windows(store, ["b/nic0"], _rows(1, bound_ns=2**31), NOW)
    window = store.window(NOW)
    here = [i for i, name in enumerate(store.names) if name is not None]
    assert np.isnan(window.mean_ns[0, here]).all()
    assert sorted(window.lost[here].tolist()) == [0, 2]


def test_a_delay_that_a_wide_bound_makes_too_short_is_no_least_delay() -> None:
    store = WindowStore()
    early = _rows(1, bound_ns=60_000)
    for name in ("fwd_min_ns", "fwd_mean_ns"):
        early[name] = -45_000
    hear_windows(store, ["a/nic0"], early, NOW)
    for window in range(NOW + 1, NOW + 200):
        hear_windows(store, ["a/nic0"], _rows(1, window, bound_ns=200), window)
        row = next(i for i, name in enumerate(store.names) if name is not None)
        assert abs(store.window(window).mean_ns[0, row]) <= 200


def _to(addresses: list[str], window: int, delay_ns: int) -> NDArray[np.void]:
    rows = _rows(len(addresses), window)
    rows["dst_addr"] = [list(packed_address(address)) for address in addresses]
    for name in ("fwd_min_ns", "fwd_mean_ns"):
        rows[name] = delay_ns
    return rows


@pytest.mark.parametrize("known_after", [1, 9, 30])
@pytest.mark.parametrize("warm", [0, 200])
def test_delays_of_a_clock_that_was_wrong_are_taken_back_whenever_they_are_heard(
    known_after: int, warm: int
) -> None:
    store, wrong = WindowStore(), range(NOW + warm, NOW + warm + 3)
    known = wrong.stop + known_after
    for window in range(NOW, known + 150):
        off_ns = -500_000 if window in wrong else 0
        hear_windows(store, ["a/nic0"], _to(["10.0.0.2"], window, 5_000 + off_ns), window)
        hear_windows(store, ["b/nic0"], _to(["10.0.0.3"], window, 5_000), window)
        if window == known:
            last = (wrong.start, wrong.stop - 1)
            store.distrust({"a/nic0": last, "10.0.0.1": last})
            hear_windows(store, ["c/nic0"], _to(["10.0.0.1"], wrong.start, 5_000 + off_ns), window)
        if window > known:
            hear_windows(store, ["c/nic0"], _to(["10.0.0.1"], window, 5_000), window)
            here = [i for i, name in enumerate(store.names) if name is not None]
            assert store.window(window).mean_ns[0, here].tolist() == [0.0] * 3
        if known <= window < wrong.start + KEPT:
            for each in wrong:
                excess_ns = {
                    name.src: store.window(each).mean_ns[0, i]
                    for i, name in enumerate(store.names)
                    if name is not None
                }
                assert np.isnan(excess_ns["a/nic0"])
                assert np.isnan(excess_ns["c/nic0"])
                assert excess_ns["b/nic0"] == 0


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (_rows(1, lost=3), "not_sane"),
        (_rows(1, NOW + MOST_AHEAD + 1), "not_sane"),
        (_rows(1, 2**62), "not_sane"),
        (_rows(1, NOW - KEPT), "too_old"),
        (_rows(1, -(2**62)), "too_old"),
    ],
)
def test_what_cannot_be_is_counted_and_dropped(rows: NDArray[np.void], reason: str) -> None:
    store = WindowStore()
    hear_windows(store, ["a/nic0"], rows, NOW)
    assert store.reports[reason] == 1
    assert store.reports["ok"] == 0
    assert not any(store.names)


def test_a_host_that_invents_paths_does_not_fill_the_memory() -> None:
    store = WindowStore()
    hear_windows(store, ["a/nic0"], _rows(MOST_ROWS_A_HOST + 100), NOW)
    assert store.reports["too_many"] == 100
    hear_windows(store, ["b/nic0"], _rows(5), NOW)
    assert sum(name is not None for name in store.names) == MOST_ROWS_A_HOST + 5


def test_rows_that_nobody_reports_any_more_are_forgotten_and_their_room_is_used_again() -> None:
    store = WindowStore()
    hear_windows(store, ["a/nic0"], _rows(50), NOW)
    room = len(store.names)
    later = NOW + FORGET_AFTER + 2
    hear_windows(store, ["b/nic0"], _rows(5, later), later)
    store.expire(later)
    assert sum(name is not None for name in store.names) == 5
    hear_windows(store, ["c/nic0"], _rows(50, later), later)
    assert len(store.names) == room + 5
    here = [i for i, name in enumerate(store.names) if name is not None and name.src == "c/nic0"]
    assert store.window(later).mean_ns[0, here].tolist() == [0] * 50


def test_a_window_is_complete_when_every_host_has_said_so_or_is_given_up() -> None:
    store = WindowStore()
    hear_windows(store, ["a/nic0"], _rows(1, NOW), NOW)
    hear_windows(store, ["b/nic0"], _rows(1, NOW - 3), NOW)
    assert store.complete_to(NOW, 8) == NOW - 3
    assert store.complete_to(NOW + 6, 8) == NOW
    assert store.complete_to(NOW + 50, 8) == NOW + 42


def test_an_empty_window_has_nothing() -> None:
    store = WindowStore()
    hear_windows(store, ["a/nic0"], _rows(2), NOW)
    window = store.window(NOW + 7)
    assert window.sent.sum() == 0
    assert np.isnan(window.mean_ns).all()


ONE_PATH = window_report("h0", ["nic0"], np.zeros(1, WINDOW_ROW))


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (structs.replace(ONE_PATH, rows=b"x"), "not_sane"),
        (structs.replace(ONE_PATH, paths=b"x"), "not_sane"),
        (structs.replace(ONE_PATH, rows=b"\xff" * 7 * PLACED_ROW.itemsize), "not_sane"),
        (structs.replace(ONE_PATH, rows=row_bytes(np.ones(1, PLACED_ROW))), "not_sane"),
        (structs.replace(ONE_PATH, table=ONE_PATH.table + 1), "unknown_paths"),
        (structs.replace(ONE_PATH, rows=b""), "ok"),
        (ONE_PATH, "ok"),
    ],
)
def test_bytes_that_are_no_rows_do_no_harm(report: WindowReport, reason: str) -> None:
    bench = Bench(LeafSpine(Shape(leaves=2, spines=2, hosts_per_leaf=2), np.random.default_rng(1)))
    for _ in bench.run(3, Trouble()):
        pass
    now_ns = round(bench.time_s * 1e9)
    counted = bench.watch.reports[reason]
    bench.watch.hear(report, now_ns)
    assert bench.watch.reports[reason] == counted + 1
    bench.watch.hear(structs.replace(report, host="stranger"), now_ns)
    bench.watch.hear(structs.replace(report, nics=["eth9"]), now_ns)
    bench.watch.hear(report, None)
    assert bench.watch.reports["unknown_nic"] == 2
    assert bench.watch.reports["unsynced"] == 1
    for _ in bench.run(3, Trouble()):
        pass
    assert bench.events == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "shape",
    [
        Shape(leaves=3, spines=3, hosts_per_leaf=3, load=0.3),
        Shape(pods=2, leaves=2, spines=2, cores=2, hosts_per_leaf=3, load=0.3),
        Shape(leaves=4, spines=3, rails=2, hosts_per_leaf=3, load=0.3),
    ],
    ids=["two tiers", "three tiers", "rails"],
)
def test_the_queue_of_a_full_link_is_found_at_that_link(shape: Shape, seed: int) -> None:
    bench = Bench(LeafSpine(shape, np.random.default_rng(seed)))
    for _ in bench.run(20, Trouble()):
        pass
    full = seed * 5 % len(bench.fabric.routes.links)
    for _ in bench.run(45, Trouble(saturated={full})):
        pass
    loads = bench.watch.loads
    assert int(np.nanargmax(loads.queue_p50_ns)) == full
    assert loads.queue_p50_ns[full] == pytest.approx(0.77 * 28 * FRAME_NS, rel=0.2)
    others = np.delete(loads.queue_p50_ns, full)
    assert np.nanmedian(others) < 0.05 * loads.queue_p50_ns[full]
    assert np.flatnonzero(loads.stands).tolist() == [full]


def _fabric() -> Routes:
    links = [("a/0", "l1"), ("l1", "s1"), ("l1", "s2"), ("s1", "l2"), ("s2", "l2"), ("l2", "b/0")]
    paths = {
        PathName("a/0", "10.0.0.2", 50_000): (0, 1, 3, 5),
        PathName("a/0", "10.0.0.2", 50_001): (0, 2, 4, 5),
    }
    return Routes(version=1, links=tuple(DirectedLink(*link) for link in links), paths=paths)


@pytest.mark.parametrize(("common_ns", "is_apart"), [(0, True), (3_000_000, True), (20_000_000, False)])
def test_a_queue_shows_apart_where_a_path_has_no_longer_one(common_ns: int, is_apart: bool) -> None:
    rows = WindowStore()
    report = _rows(2)
    report["reply_sport"] = 1
    hear_windows(rows, ["a/0"], report, NOW)
    matrix = build_matrix(rows.names, _fabric(), Nics({"10.0.0.2": "b/0"}, {"a/0": ["10.0.0.1"]}))
    queues = QueueInference(matrix)
    late = report.copy()
    late["window"] = NOW + 1
    for name in ("fwd_mean_ns", "fwd_min_ns"):
        late[name] += common_ns
        late[name][0] += 5_000_000
    hear_windows(rows, ["a/0"], late, NOW + 1)
    queues.step(rows.window(NOW + 1))
    links = matrix.routes.links
    assert queues.shows_apart(links[1]) == is_apart
    assert queues.shows_apart(links[0])
    assert not QueueInference(matrix).shows_apart(links[1])


def test_two_alike_links_share_one_number_and_the_first_in_the_way_has_it() -> None:
    rows = WindowStore()
    report = _rows(2)
    report["reply_sport"] = 1
    hear_windows(rows, ["a/0"], report, NOW)
    matrix = build_matrix(rows.names, _fabric(), Nics({"10.0.0.2": "b/0"}, {"a/0": ["10.0.0.1"]}))
    queues = QueueInference(matrix)
    late = report.copy()
    late["window"], late["fwd_mean_ns"][0], late["fwd_min_ns"][0] = NOW + 1, 1_005_000, 1_005_000
    hear_windows(rows, ["a/0"], late, NOW + 1)
    found = queues.step(rows.window(NOW + 1)).queue_ns
    assert found[1] == pytest.approx(1e6, rel=0.01)
    assert found[[0, 2, 3, 4, 5]].max() < 1_000


def _traffic(rate_bps: float, sports: list[int]) -> QueuePairStore:
    store = QueuePairStore()
    rows = np.zeros(len(sports), QP_ROW)
    rows["addr"], rows["direction"] = list(packed_address("10.0.0.2")), EGRESS
    rows["qpn"], rows["sport"] = np.arange(len(sports)), sports
    for second in range(2):
        rows["bytes"] = second * rate_bps / 8
        store.hear([NicReport(("a", "0"), rows.copy())], local_ns=second * 10**9, now_s=float(second))
    return store


def test_the_load_of_a_link_is_that_of_the_queue_pairs_over_it() -> None:
    meter = LoadMeter(_fabric(), OWNER)
    load, _ = meter.measure(_traffic(1e6, [50_000, 50_000, 50_001]).tables.items(), 1.0)
    assert load.tolist() == [3e6, 2e6, 1e6, 2e6, 1e6, 3e6]
    moved, _ = meter.measure(_traffic(1e6, [50_001, 50_000, 50_001]).tables.items(), 1.0)
    assert moved.tolist() == [3e6, 1e6, 2e6, 1e6, 2e6, 3e6]
    assert meter.measure(_traffic(1e6, [50_000]).tables.items(), 100.0)[0].tolist() == [0.0] * 6


def test_an_unknown_port_counts_in_equal_parts_for_all_known_paths() -> None:
    load = LoadMeter(_fabric(), OWNER).measure(_traffic(4e6, [7]).tables.items(), 1.0)[0]
    assert load.tolist() == [4e6, 2e6, 2e6, 2e6, 2e6, 4e6]


def test_a_load_is_not_sure_where_a_queue_pair_may_cross_whose_path_is_not_known() -> None:
    store = _traffic(1e6, [50_000, 7])
    sure = LoadMeter(_fabric(), OWNER).measure(store.tables.items(), 1.0)[1]
    assert sure.tolist() == [True, False, False, False, False, True]
    assert LoadMeter(_fabric(), OWNER).measure(_traffic(1e6, [50_000]).tables.items(), 1.0)[1].all()


def test_a_load_is_not_sure_where_a_queue_pair_of_an_unknown_pair_starts_or_ends() -> None:
    store = _traffic(1e6, [50_000])
    rows = store.tables["a", "0"].rows.copy()
    rows["addr"], rows["qpn"] = list(packed_address("10.0.0.9")), 99
    for second in range(2):
        rows["bytes"] = second * 1_000_000
        store.hear([NicReport(("a", "0"), rows.copy())], local_ns=second * 10**9, now_s=1.0)
    sure = LoadMeter(_fabric(), OWNER | {"10.0.0.9": "c/0"}).measure(store.tables.items(), 1.0)[1]
    assert sure.tolist() == [True, False, False, True, True, True]


def test_a_load_is_not_sure_for_a_while_after_a_queue_pair_has_moved() -> None:
    store, meter = _traffic(1e6, [50_000]), LoadMeter(_fabric(), OWNER)
    rows = store.tables["a", "0"].rows.copy()
    rows["sport"], rows["bytes"] = 50_001, 250_000
    store.hear([NicReport(("a", "0"), rows)], local_ns=2 * 10**9, now_s=2.0)
    load, sure = meter.measure(store.tables.items(), 2.0)
    assert load.tolist() == [1e6, 0.0, 1e6, 0.0, 1e6, 1e6]
    assert sure.tolist() == [True, False, False, False, False, True]
    settled_s = 2.0 + store.tables["a", "0"].stopped_after_s
    assert meter.measure(store.tables.items(), settled_s)[1].all()


def test_a_queue_pair_that_has_stopped_loads_nothing_and_leaves_a_doubt_for_a_while() -> None:
    store = _traffic(1e6, [50_000, 50_001])
    rows = store.tables["a", "0"].rows[:1].copy()
    for quarter in range(1, 14):
        rows["bytes"] = 125_000 + quarter * 31_250
        local_ns, now_s = 10**9 + quarter * 250_000_000, 1.0 + quarter / 4
        store.hear([NicReport(("a", "0"), rows.copy())], local_ns=local_ns, now_s=now_s)
        load, sure = LoadMeter(_fabric(), OWNER).measure(store.tables.items(), now_s)
        assert load[1] == pytest.approx(1e6)
        assert load[2] == pytest.approx(1e6 if quarter < 3 else 0.0)
        assert sure[2] == (quarter < 3 or now_s - 1.0 >= 2 * store.tables["a", "0"].stopped_after_s)


def test_a_nic_that_says_nothing_leaves_the_loads_of_its_links_in_doubt() -> None:
    store = _traffic(1e6, [50_000, 50_001])
    assert LoadMeter(_fabric(), OWNER).measure(store.tables.items(), 1.0)[1].all()
    sure = LoadMeter(_fabric(), OWNER).measure(store.tables.items(), 60.0)[1]
    assert sure.tolist() == [True, False, False, False, False, True]
    nothing = np.zeros(0, QP_ROW)
    for second in range(60, 64):
        store.hear([NicReport(("a", "0"), nothing)], local_ns=second * 10**9, now_s=float(second))
    assert LoadMeter(_fabric(), OWNER).measure(store.tables.items(), 64.0)[1].all()


def test_a_queue_pair_that_was_heard_of_once_leaves_loads_in_doubt() -> None:
    store = QueuePairStore()
    rows = np.zeros(1, QP_ROW)
    rows["addr"], rows["direction"], rows["sport"] = list(packed_address("10.0.0.2")), EGRESS, 50_000
    store.hear([NicReport(("a", "0"), rows)], local_ns=0, now_s=0.0)
    load, sure = LoadMeter(_fabric(), OWNER).measure(store.tables.items(), 0.0)
    assert load.tolist() == [0.0] * 6
    assert sure.tolist() == [True, False, False, False, False, True]


def test_a_capacity_is_what_a_full_link_carries_and_the_rest_of_its_tier_is_likely_to() -> None:
    links = _fabric().links
    capacities = Capacities()
    load, full = np.array([9.0, 5, 1, 5, 1, 9]), np.array([False, True, False, False, False, False])
    sure = np.ones(len(links), bool)
    capacities.learn(links, load, stands=full, is_sure=sure)
    known = capacities.known_bps(links)
    assert known[1] == 5.0
    assert np.isnan(np.delete(known, 1)).all()
    likely = likely_bps(known, load, tiers(links))
    assert likely[1:3].tolist() == [5.0, 5.0]
    assert np.isnan(likely[[0, 3, 4, 5]]).all()
    for _ in range(60):
        capacities.learn(links, np.where(full, 2.0, load), stands=full, is_sure=sure)
    assert capacities.known_bps(links)[1] == pytest.approx(2.0, rel=0.02)


def test_a_link_that_carries_more_without_a_queue_than_it_was_seen_full_with_can_carry_that() -> None:
    links, capacities = _fabric().links, Capacities()
    full = np.array([i == 1 for i in range(len(links))])
    sure, nobody = np.ones(len(links), bool), np.zeros(len(links), bool)
    load = np.full(len(links), 6.0)
    capacities.learn(links, load, stands=full, is_sure=sure)
    for more, is_sure, expected in ((6.3, sure, 6.0), (12.0, nobody, 6.0), (12.0, sure, 12.0)):
        for _ in range(CARRIES_LOOKS):
            assert capacities.known_bps(links)[1] == 6.0
            capacities.learn(links, np.where(full, more, load), stands=nobody, is_sure=is_sure)
        assert capacities.known_bps(links)[1] == expected
    assert np.isnan(capacities.known_bps(links)[2:]).all()


def test_what_a_link_carries_for_a_moment_before_its_queue_shows_is_no_capacity() -> None:
    links, capacities = _fabric().links, Capacities()
    full = np.array([i == 1 for i in range(len(links))])
    sure, load = np.ones(len(links), bool), np.full(len(links), 6.0)
    for _ in range(10):
        capacities.learn(links, load, stands=full, is_sure=sure)
        for _ in range(CARRIES_LOOKS - 1):
            capacities.learn(links, 2 * load, stands=~sure, is_sure=sure)
    assert capacities.known_bps(links)[1] == 6.0


def test_tiers_tell_access_up_spine_and_down_apart() -> None:
    assert tiers(_fabric().links).tolist() == [1, 5, 5, 7, 7, 3]


def test_a_leaf_that_does_not_answer_is_no_nic() -> None:
    """It is named after a NIC below it, slash and all."""
    silent = {"l1": "?a/0", "l2": "?b/0"}
    links = [DirectedLink(silent.get(a, a), silent.get(b, b)) for a, b in _fabric().links]
    assert tiers(links).tolist() == tiers(_fabric().links).tolist()


def test_other_routes_keep_what_is_remembered_of_links() -> None:
    bench = Bench(LeafSpine(Shape(leaves=2, spines=2, hosts_per_leaf=2), np.random.default_rng(1)))
    for _ in bench.run(20, Trouble(saturated={2})):
        pass
    before = bench.watch.loads
    routes = bench.fabric.routes
    bench.fabric.routes = replace(routes, version=2, links=(*routes.links, DirectedLink("x", "y")))
    for _ in bench.run(2, Trouble(saturated={2})):
        pass
    after = bench.watch.loads
    assert len(after.queue_ns) == len(before.queue_ns) + 1
    assert after.queue_p99_ns[2] >= before.queue_p50_ns[2]
    assert np.isnan(after.queue_ns[-1])
    assert bench.time_s * 1e9 > WINDOW_NS


def test_a_table_of_paths_that_was_lost_costs_what_names_it_and_no_more() -> None:
    told = ToldPaths()
    rows = _rows(3)
    whole = window_report("a", ["nic0"], rows)
    later = structs.replace(whole, paths=b"")
    assert whole_rows(told, later) is None
    assert whole_rows(told, structs.replace(whole, host="b")) is not None
    assert whole_rows(told, later) is None
    for report in (whole, later):
        heard = whole_rows(told, report)
        assert heard is not None
        assert heard.tobytes() == rows.tobytes()
    told.keep({"b"})
    assert whole_rows(told, later) is None
    assert whole_rows(told, structs.replace(later, host="b")) is not None
