"""Rows per path and 100 ms window: every probe is in exactly one of them, whatever the cuts between drains."""

import numpy as np
import pytest
from agent_fakes import MS, ONE_WAY_NS, edges, schedule
from fabric_fakes import hear_windows, whole_rows
from numpy.typing import NDArray

from cwdp.agent.probing.prober import ProbeResults
from cwdp.agent.probing.windows import ROWS_A_MESSAGE, PathWindows, WindowReports
from cwdp.dataplane import abi
from cwdp.shared.bus.messages import WindowReport, decode, encode
from cwdp.shared.bus.packing import packed, unpacked
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_NS, WINDOW_ROW, path_keys, shown_address
from cwdp.shared.bus.windows import TOLD_PATH
from manager.paths.told import ToldPaths
from manager.paths.windows import WindowStore

OFFSET_NS = 7 * 10**15 + 123


def _drained(
    times_ns: NDArray[np.int64], path: NDArray[np.intp], answered: NDArray[np.bool_]
) -> ProbeResults:
    slots = np.zeros(len(times_ns), abi.SLOT)
    slots["t1"] = times_ns
    slots["fwd_owd_ns"] = np.where(answered, ONE_WAY_NS + path, 0)
    slots["rev_owd_ns"] = np.where(answered, 2 * ONE_WAY_NS + path, 0)
    slots["bound_ns"] = 50
    return ProbeResults(path, np.ones(len(path), bool), answered, slots)


def _rows(windows: PathWindows, before_ns: int) -> NDArray[np.void]:
    return windows.take(before_ns, sums=False)


@pytest.mark.parametrize("seed", range(20))
def test_every_probe_is_counted_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    windows = PathWindows(schedule(edges()), edges())
    rows, sent, lost, now_ns = [], 0, 0, 10**12
    for _ in range(20):
        n = 2 * int(rng.integers(0, 60))
        times_ns = np.sort(now_ns + rng.integers(0, 250 * MS, n))
        answered = rng.random(n) < 0.8
        windows.add(_drained(times_ns, np.repeat(rng.integers(0, 8, n // 2), 2), answered), OFFSET_NS)
        sent, lost, now_ns = sent + n, lost + int((~answered).sum()), now_ns + 250 * MS
        rows.append(_rows(windows, now_ns + OFFSET_NS))
    rows.append(_rows(windows, now_ns + OFFSET_NS + WINDOW_NS))
    got = np.concatenate(rows)
    assert (got["sent"].sum(), got["lost"].sum()) == (sent, lost)
    names = got[["window", "dst_addr", "sport", "reply_sport"]]
    assert len(np.unique(names)) == len(got)


def test_a_row_names_its_path_and_holds_its_delays() -> None:
    windows = PathWindows(schedule(edges()), edges())
    times_ns = np.array([0, 1000, 2000], np.int64) + 5 * WINDOW_NS - OFFSET_NS
    windows.add(_drained(times_ns, np.array([5, 5, 5]), np.array([True, True, False])), OFFSET_NS)
    (row,) = _rows(windows, 6 * WINDOW_NS)
    assert row["window"] == 5
    assert shown_address(row["dst_addr"].tobytes()) == "10.0.1.2"
    assert (row["sport"], row["reply_sport"], row["sent"], row["lost"]) == (50_001, 60_001, 3, 1)
    assert (row["fwd_min_ns"], row["rev_mean_ns"], row["bound_ns"]) == (
        ONE_WAY_NS + 5,
        2 * ONE_WAY_NS + 5,
        50,
    )


def test_a_window_is_held_back_until_it_is_over() -> None:
    windows = PathWindows(schedule(edges()), edges())
    windows.add(_drained(np.array([WINDOW_NS + 5]), np.array([0]), np.array([True])), 0)
    assert not len(_rows(windows, 2 * WINDOW_NS - 1))
    assert len(_rows(windows, 2 * WINDOW_NS)) == 1
    assert not len(_rows(windows, 9 * WINDOW_NS))


def test_delays_without_clocks_are_none_and_absurd_ones_are_clipped() -> None:
    windows = PathWindows(schedule(edges()), edges())
    drained = _drained(np.array([5, 6, 7]), np.array([0, 1, 2]), np.array([True, True, False]))
    drained.slots["bound_ns"][0] = abi.BOUND_UNSYNCED
    drained.slots["fwd_owd_ns"][1] = -(2**40)
    windows.add(drained, 0)
    rows = _rows(windows, WINDOW_NS)
    assert rows["fwd_min_ns"].tolist() == [NO_DELAY_NS, NO_DELAY_NS + 1, NO_DELAY_NS]
    assert rows["rev_min_ns"].tolist() == [NO_DELAY_NS, 2 * ONE_WAY_NS + 1, NO_DELAY_NS]
    assert rows["lost"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("ahead_ns", [-(2**50), -3 * 10**9, 2**31, 2**57])
def test_of_delays_between_timelines_that_are_far_apart_the_lowest_32_bits_are_told(ahead_ns: int) -> None:
    windows = PathWindows(schedule(edges()), edges())
    drained = _drained(np.array([5, 6, 7]), np.array([0, 1, 1]), np.ones(3, bool))
    drained.slots["fwd_owd_ns"] += ahead_ns
    drained.slots["rev_owd_ns"] -= ahead_ns
    windows.add(drained, 0)
    rows = _rows(windows, WINDOW_NS)
    for way, sign, least_ns in (("fwd", 1, ONE_WAY_NS), ("rev", -1, 2 * ONE_WAY_NS)):
        for what in ("min", "mean"):
            told_ns = rows[f"{way}_{what}_ns"].astype(np.int64) - sign * (ahead_ns % 2**32)
            assert ((told_ns - [least_ns, least_ns + 1]) % 2**32).tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_windows_of_quiet_paths_are_told_together_and_say_the_same(seed: int) -> None:
    """A store that heard windows one by one and one that heard them together know the same losses and least delays."""
    rng = np.random.default_rng(seed)
    first, count = 1_000, int(rng.integers(2, 12))
    path = np.repeat(np.arange(8), 2 * count)
    window = np.tile(np.repeat(np.arange(first, first + count), 2), 8)
    lossy, queued = rng.random(8) < 0.3, rng.random(8) < 0.3
    answered = ~(lossy[path] & (rng.random(len(path)) < 0.5))
    drained = _drained(window * WINDOW_NS + rng.integers(0, WINDOW_NS, len(path)), path, answered)
    drained.slots["fwd_owd_ns"] += np.where(queued[path], rng.integers(0, 50_000, len(path)), 0)
    stores, told = [], []
    for at_once in (1, count):
        windows, store = PathWindows(schedule(edges()), edges()), WindowStore()
        windows.add(drained, 0)
        told.append(0)
        for end in range(first + at_once, first + count + 1, at_once):
            rows = windows.take(end * WINDOW_NS, sums=False)
            told[-1] += len(rows)
            hear_windows(store, ["a/nic0"], rows, first + count)
        stores.append(store)
    one_by_one, together = stores
    names = [each.names for each in stores]
    order = [names[1].index(name) for name in names[0] if name is not None]
    here = [place for place, name in enumerate(names[0]) if name is not None]
    for number in range(first, first + count):
        alone, both = one_by_one.window(number), together.window(number)
        assert alone.sent[here].tolist() == both.sent[order].tolist()
        assert alone.lost[here].tolist() == both.lost[order].tolist()
        for mine, theirs in ((alone.mean_ns, both.mean_ns), (alone.least_ns, both.least_ns)):
            assert np.allclose(mine[:, here], theirs[:, order], atol=1_000, equal_nan=True)
    quiet = int(np.count_nonzero(~lossy & ~queued))
    assert told[1] <= told[0] - quiet * (count - 1)


@pytest.mark.parametrize("seed", range(10))
def test_in_a_large_fleet_sums_of_windows_without_losses_are_told(seed: int) -> None:
    """Whatever queues they met: probes, mean and least delays are those of all; what lost something is told window by window."""
    rng = np.random.default_rng(seed)
    first, count = 1_000, 5
    path = np.repeat(np.arange(8), 2 * count)
    window = np.tile(np.repeat(np.arange(first, first + count), 2), 8)
    answered = ~((path < 2) & (rng.random(len(path)) < 0.5))
    answered[path == 0] = rng.permutation(np.arange(2 * count) > 0)
    drained = _drained(window * WINDOW_NS + rng.integers(0, WINDOW_NS, len(path)), path, answered)
    drained.slots["fwd_owd_ns"] += np.where(answered, rng.integers(0, 2_000_000, len(path)), 0)
    windows = PathWindows(schedule(edges()), edges())
    windows.add(drained, 0)
    rows = windows.take((first + count) * WINDOW_NS, sums=True)
    assert (rows["sent"].sum(), rows["lost"].sum()) == (len(path), np.count_nonzero(~answered))
    for key in np.unique(path_keys(rows)):
        mine = rows[path_keys(rows) == key]
        of = int(mine["rev_min_ns"].max()) - 2 * ONE_WAY_NS
        if mine["lost"].any():
            assert mine["window"].tolist() == list(range(first, first + count))
            assert not mine["further"].any()
            continue
        (row,) = mine
        delays_ns = drained.slots["fwd_owd_ns"][path == of]
        assert (row["window"], row["further"]) == (first, count - 1)
        assert row["fwd_min_ns"] == delays_ns.min()
        assert abs(row["fwd_mean_ns"] - delays_ns.mean()) < 2


def test_delays_of_timelines_that_are_far_apart_are_not_summed_where_their_lowest_bits_begin_anew() -> None:
    windows = PathWindows(schedule(edges()), edges())
    drained = _drained(np.array([5, WINDOW_NS + 5]), np.array([0, 0]), np.ones(2, bool))
    ahead_ns = 2**31 - 10 - ONE_WAY_NS + np.array([0, 20])
    drained.slots["fwd_owd_ns"] += ahead_ns
    drained.slots["rev_owd_ns"] -= ahead_ns
    windows.add(drained, 0)
    assert len(windows.take(2 * WINDOW_NS, sums=True)) == 2


def test_a_host_tells_the_windows_of_its_nics_in_messages_of_bounded_size() -> None:
    rows = np.zeros(ROWS_A_MESSAGE - 1, WINDOW_ROW)
    taken = [("nic0", rows.copy()), ("nic1", rows[:0].copy()), ("nic2", rows.copy())]
    reports = list(WindowReports("a").of(taken))
    assert [report.nics for report in reports] == [["nic0", "nic2"]] * 2
    told = ToldPaths()
    nics = np.concatenate(
        [each["nic"] for report in reports if (each := whole_rows(told, report)) is not None]
    )
    assert np.bincount(nics).tolist() == [len(rows)] * 2
    assert list(WindowReports("a").of([("nic0", rows[:0])])) == []


def _paths(*sports: int, lost: int = 0) -> NDArray[np.void]:
    rows = np.zeros(len(sports), WINDOW_ROW)
    rows["sport"], rows["reply_sport"], rows["window"], rows["sent"], rows["lost"] = (
        sports,
        50_000,
        7,
        2,
        lost,
    )
    return rows


def test_paths_are_told_when_there_are_new_ones_and_each_second() -> None:
    clock_s, told = [100.0], ToldPaths()
    reports = WindowReports("a", lambda: clock_s[0])
    for now_s, nic, sports, tells in (
        (100.0, "nic0", (50_001, 50_002, 50_003), True),
        (100.1, "nic0", (50_003, 50_001), False),
        (100.2, "nic0", (50_001, 50_004), True),
        (100.3, "nic1", (50_001,), True),
        (100.4, "nic0", (50_001, 50_004), False),
        (101.3, "nic0", (50_004,), True),
        (101.4, "nic1", (50_001,), False),
    ):
        clock_s[0], rows = now_s, _paths(*sports, lost=1)
        (report,) = reports.of([(nic, rows.copy())])
        assert bool(report.paths) == tells
        heard = whole_rows(told, report)
        assert heard is not None
        assert {report.nics[place] for place in heard["nic"]} == {nic}
        rows["nic"] = report.nics.index(nic)
        assert heard.tobytes() == rows[np.argsort(rows["sport"])].tobytes()


def test_paths_that_are_probed_no_more_are_told_no_more() -> None:
    now_s = 0.0
    reports = WindowReports("a", lambda: now_s)
    sizes = []
    for second in range(4):
        now_s = 2.0 * second
        (report,) = reports.of([("nic0", _paths(50_000 + second))])
        sizes.append(len(report.paths) // TOLD_PATH.itemsize)
    assert sizes == [1, 2, 2, 2]


@pytest.mark.parametrize("seed", range(5))
def test_the_manager_reads_the_rows_that_the_agent_took(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.frombuffer(rng.bytes(500 * WINDOW_ROW.itemsize), WINDOW_ROW).copy()
    rows["reserved"], rows["nic"] = 0, 0
    reports, told = WindowReports("a", lambda: 0.0), ToldPaths()
    for some in (rows, rows[::3], rows[:1], rows[250:]):
        (report,) = reports.of([("nic0", some.copy())])
        heard = whole_rows(told, decode(WindowReport, unpacked(packed(encode(report)))))
        assert heard is not None
        assert heard[np.argsort(path_keys(heard))].tobytes() == some[np.argsort(path_keys(some))].tobytes()
