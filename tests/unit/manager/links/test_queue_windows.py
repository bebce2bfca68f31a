"""What hosts say of windows: kept within bounds, whatever they say; queues that come of it."""

import numpy as np
import pytest
from fabric_fakes import hear_windows, one_pair, whole_rows
from msgspec import structs
from numpy.typing import NDArray

from cwdp.shared.bus.messages import WindowReport
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_ROW, packed_address
from cwdp.shared.bus.windows import PLACED_ROW, window_report
from manager.links.inference import QueueInference
from manager.links.matrix import PathMatrix, build_matrix
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
from tools.sim.faults.leafspine import FRAME_NS, LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench

NOW = 10_000
LATEST_LEARNT = (RECENT_BUCKETS - 1) * RECENT_BUCKET_WINDOWS - 5
"""A row that comes later may tell nothing of its path's least delay, if a newer bucket begins at the same time."""


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


def _two_paths() -> tuple[WindowStore, NDArray[np.void], PathMatrix]:
    rows = WindowStore()
    report = _rows(2)
    report["reply_sport"] = 1
    hear_windows(rows, ["a/0"], report, NOW)
    matrix = build_matrix(rows.names, one_pair(), Nics({"10.0.0.2": "b/0"}, {"a/0": ["10.0.0.1"]}))
    return rows, report, matrix


@pytest.mark.parametrize(
    ("common_ns", "windows", "is_apart"),
    [
        ([0], 5, True),
        ([3_000_000], 5, True),
        ([20_000_000], 5, False),
        ([20_000_000] * 4 + [0], 1, True),
        ([20_000_000] * 4 + [0], 5, False),
    ],
)
def test_a_queue_shows_apart_where_a_path_has_no_longer_one(
    common_ns: list[int], windows: int, is_apart: bool
) -> None:
    rows, report, matrix = _two_paths()
    queues = QueueInference(matrix)
    for number, queue_ns in enumerate(common_ns, NOW + 1):
        late = report.copy()
        late["window"] = number
        for name in ("fwd_mean_ns", "fwd_min_ns"):
            late[name] += queue_ns
            late[name][0] += 5_000_000
        hear_windows(rows, ["a/0"], late, number)
        queues.step(rows.window(number))
    links = matrix.routes.links
    assert queues.shows_apart(links[1], windows) == is_apart
    assert queues.shows_apart(links[0], windows)
    assert not QueueInference(matrix).shows_apart(links[1], windows)


@pytest.mark.parametrize(("other_ns", "is_apart"), [(0, True), (30_000_000, True), (60_000_000, False)])
def test_a_queue_shows_not_apart_where_the_paths_beside_it_are_delayed_as_much(
    other_ns: int, is_apart: bool
) -> None:
    """So it was in a soak: of a leaf's two NICs one was put out, all that came down to the other waited for that."""
    rows, report, matrix = _two_paths()
    queues = QueueInference(matrix)
    report["window"] = NOW + 1
    hear_windows(rows, ["a/0"], report, NOW + 1)
    queues.step(rows.window(NOW + 1))
    queues.queue_ns[-5:, [1, 2]] = 80_000_000, other_ns
    assert queues.shows_apart(matrix.routes.links[1], 5) == is_apart


def test_two_alike_links_share_one_number_and_the_first_in_the_way_has_it() -> None:
    rows, report, matrix = _two_paths()
    queues = QueueInference(matrix)
    late = report.copy()
    late["window"], late["fwd_mean_ns"][0], late["fwd_min_ns"][0] = NOW + 1, 1_005_000, 1_005_000
    hear_windows(rows, ["a/0"], late, NOW + 1)
    found = queues.step(rows.window(NOW + 1)).queue_ns
    assert found[1] == pytest.approx(1e6, rel=0.01)
    assert found[[0, 2, 3, 4, 5]].max() < 1_000


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
