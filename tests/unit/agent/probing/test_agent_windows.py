"""Rows per path and 100 ms window: every probe is in exactly one of them, whatever the cuts between drains."""

import numpy as np
import pytest
from agent_fakes import MS, ONE_WAY_NS, edges, schedule
from numpy.typing import NDArray

from cwdp.agent.probing.prober import ProbeResults
from cwdp.agent.probing.windows import PathWindows
from cwdp.dataplane import abi
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_NS, WINDOW_ROW, shown_address, unpack

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
    parts = [unpack(data, WINDOW_ROW) for data in windows.take(before_ns)]
    return np.concatenate(parts) if parts else np.zeros(0, WINDOW_ROW)


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
