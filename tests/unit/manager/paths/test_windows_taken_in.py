"""Windows are taken in as if each row of each message were looked at by itself: held against a plain model of that."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from cwdp.shared.bus.messages import WindowReport
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import LONGEST_ROW, NO_DELAY_NS, WINDOW_ROW, packed_address, shown_address
from cwdp.shared.bus.windows import PLACED_ROW, PathTable, each_once, paths_of, window_report
from manager.paths.rows import WAYS, WIDEST_BOUND_NS
from manager.paths.told import ToldPaths
from manager.paths.windows import FORGET_AFTER, KEPT, MOST_AHEAD, RowName, WindowStore

BEGIN = 1_000_000
LATEST = 15
NICS = ["nic0", "nic1"]


@dataclass
class _Model:
    """What each path had in each window, row by row; the last word counts."""

    cells: dict[tuple[RowName, int], tuple[int, int, list[float], list[float]]] = field(default_factory=dict)
    least: dict[tuple[RowName, str], float] = field(default_factory=dict)
    reports: Counter[str] = field(default_factory=Counter)

    def hear(self, host: str, nics: list[str], rows: NDArray[np.void], now: int) -> None:
        for row in rows:
            first, further = int(row["window"]), int(row["further"])
            sane = row["lost"] <= row["sent"] and further < LONGEST_ROW and row["nic"] < len(nics)
            if not sane or first + further > now + MOST_AHEAD:
                self.reports["not_sane"] += 1
            elif first <= now - KEPT + MOST_AHEAD + 1:
                self.reports["too_old"] += 1
            else:
                self.reports["ok"] += 1
                nic, address = f"{host}/{nics[row['nic']]}", shown_address(row["dst_addr"].tobytes())
                self._take(RowName(nic, address, int(row["sport"]), int(row["reply_sport"])), row)

    def _take(self, name: RowName, row: np.void) -> None:
        first, times = int(row["window"]), int(row["further"]) + 1
        delays = {
            (what, way): float(row[f"{way}_{what}_ns"])
            if row["bound_ns"] < WIDEST_BOUND_NS and row[f"{way}_{what}_ns"] != NO_DELAY_NS
            else np.nan
            for what in ("mean", "min")
            for way in WAYS
        }
        for way in WAYS:
            surely = delays["min", way] + float(row["bound_ns"])
            self.least[name, way] = float(np.fmin(self.least.get((name, way), np.nan), surely))
        for turn in range(times):
            sent, lost = (
                int(row[what]) * (turn + 1) // times - int(row[what]) * turn // times
                for what in ("sent", "lost")
            )
            mean, least = ([delays[what, way] for way in WAYS] for what in ("mean", "min"))
            self.cells[name, first + turn] = sent, lost, mean, least


def _rows(draw: np.random.Generator, window: int) -> NDArray[np.void]:
    """Any rows of one message; some are of several windows, some not sane, some too old or of the future."""
    rows = np.zeros(int(draw.integers(1, 60)), WINDOW_ROW)
    rows["window"] = window - draw.integers(0, LATEST, len(rows))
    rows["further"] = draw.integers(0, 6, len(rows)) * (draw.random(len(rows)) < 0.4)
    rows["nic"] = draw.integers(0, 2, len(rows))
    rows["dst_addr"] = list(packed_address("10.0.0.2"))
    rows["sport"], rows["reply_sport"] = 50_000 + draw.integers(0, 12, len(rows)), 60_000
    rows["sent"] = draw.integers(0, 40, len(rows))
    rows["lost"] = draw.integers(0, rows["sent"] + 1)
    for way in WAYS:
        rows[f"{way}_min_ns"] = draw.integers(4_000, 6_000, len(rows))
        rows[f"{way}_mean_ns"] = rows[f"{way}_min_ns"] + draw.integers(0, 9_000, len(rows))
    rows["bound_ns"] = draw.integers(0, 300, len(rows))
    wild = draw.random(len(rows))
    rows["window"][wild < 0.02] -= 2 * KEPT
    rows["window"][(wild > 0.02) & (wild < 0.04)] += 3 * MOST_AHEAD
    rows["window"][(wild > 0.04) & (wild < 0.05)] = draw.choice([2**63 - 1, -(2**63), 0])
    rows["lost"][(wild > 0.05) & (wild < 0.07)] = 50
    rows["further"][(wild > 0.07) & (wild < 0.08)] = draw.choice([LONGEST_ROW, 255])
    rows["bound_ns"][(wild > 0.1) & (wild < 0.15)] = WIDEST_BOUND_NS + draw.integers(0, 9)
    rows["fwd_mean_ns"][wild > 0.95] = rows["fwd_min_ns"][wild > 0.95] = NO_DELAY_NS
    if draw.random() < 0.05:
        rows["nic"][0] = 2
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_as_if_each_row_were_looked_at_by_itself(seed: int) -> None:
    """Tables that are told again, become others, are lost, come late; messages lost, doubled and in another order."""
    draw, store, told, model = np.random.default_rng(seed), WindowStore(), ToldPaths(), _Model()
    tables: dict[str, PathTable] = {}
    for turn in range(250):
        now, host = BEGIN + turn // 10, "abc"[draw.integers(3)]
        rows = _rows(draw, now)
        paths = paths_of(rows)
        table = tables.get(host)
        places = None if table is None or draw.random() < 0.1 else table.places(paths)
        if table is None or places is None:
            table = tables[host] = PathTable(each_once(paths))
            places = table.places(paths)
            assert places is not None
            tells = True
        else:
            tells = draw.random() < 0.3
        report = table.report(host, NICS, rows, places, tell=tells)
        rows = rows[np.argsort(places, kind="stable")]
        for _ in range(int(draw.choice([0, 1, 1, 1, 2]))):
            read = told.read(report)
            if read is not None:
                store.hear(*read, now)
                model.hear(host, NICS, rows, now)
        if draw.random() < 0.1:
            store.window(now)
    _same(store, model, BEGIN + 24)
    assert {reason: count for reason, count in store.reports.items() if count} == dict(model.reports)
    assert model.reports.keys() == {"ok", "not_sane", "too_old"}


def _same(store: WindowStore, model: _Model, now: int) -> None:
    numbers = {name: number for number, name in enumerate(store.names) if name is not None}
    assert numbers.keys() == {name for name, _ in model.cells}
    for window in range(now - KEPT + MOST_AHEAD + 2, now + 1):
        known = store.window(window)
        for name, number in numbers.items():
            sent, lost, mean, least = model.cells.get((name, window), (0, 0, [np.nan] * 2, [np.nan] * 2))
            base = np.array([model.least[name, way] for way in WAYS], np.float32)
            assert (known.sent[number], known.lost[number]) == (sent, lost)
            np.testing.assert_array_equal(known.mean_ns[:, number], np.array(mean, np.float32) - base)
            np.testing.assert_array_equal(known.least_ns[:, number], np.array(least, np.float32) - base)


def _some(sports: range) -> NDArray[np.void]:
    rows = np.zeros(len(sports), WINDOW_ROW)
    rows["window"], rows["sent"], rows["sport"], rows["reply_sport"] = BEGIN, 1, list(sports), 1
    rows["dst_addr"] = list(packed_address("10.0.0.2"))
    return rows


def test_a_table_that_comes_with_another_list_of_nics_names_those() -> None:
    store, told = WindowStore(), ToldPaths()
    first = window_report("a", NICS, _some(range(3)))
    for report in (first, structs.replace(first, nics=["other"], paths=b"")):
        read = told.read(report)
        assert read is not None
        store.hear(*read, BEGIN)
    assert {name.src for name in store.names if name is not None} == {"a/nic0", "a/other"}


@pytest.mark.parametrize("seed", range(3))
def test_hosts_that_come_one_by_one_take_nothing_from_those_before(seed: int) -> None:
    """Room is made for them again and again, while some windows have been opened and others have not."""
    draw, store, model = np.random.default_rng(seed), WindowStore(), _Model()
    hosts = [f"h{number}" for number in range(12)]
    for turn, host in enumerate(hosts):
        now = BEGIN + turn
        rows = _some(range(1, 1 + int(draw.integers(1, 60))))
        rows["window"] = now - draw.integers(0, 3, len(rows))
        rows["sent"] = draw.integers(1, 9, len(rows))
        for name in ("fwd_min_ns", "rev_min_ns", "fwd_mean_ns", "rev_mean_ns"):
            rows[name] = draw.integers(4_000, 6_000, len(rows))
        for speaker in {host, hosts[int(draw.integers(turn + 1))]}:
            read = ToldPaths().read(window_report(speaker, NICS, rows))
            assert read is not None
            store.hear(*read, now)
            model.hear(speaker, NICS, rows, now)
        if draw.random() < 0.5:
            store.window(now)
    assert len(store.names) > 64
    _same(store, model, BEGIN + len(hosts) - 1)


def test_names_of_one_host_share_what_is_the_same() -> None:
    store, read = WindowStore(), ToldPaths().read(window_report("a", NICS, _some(range(50_000, 50_003))))
    assert read is not None
    store.hear(*read, BEGIN)
    names = [name for name in store.names if name is not None]
    assert sorted(name.sport for name in names) == [50_000, 50_001, 50_002]
    assert {name.dst_addr for name in names} == {"10.0.0.2"}
    assert len({id(name.dst_addr) for name in names}) == len({id(name.src) for name in names}) == 1


def test_paths_that_were_forgotten_are_numbered_anew() -> None:
    """The table is the same all the time: what was known by its places is not, once rows are let go of."""
    store, told = WindowStore(), ToldPaths()
    report = window_report("a", NICS, _some(range(3)))
    later = BEGIN + 10_000
    for window in (BEGIN, later):
        read = told.read(report)
        assert read is not None
        table, rows = read
        rows["window"] = window
        store.hear(table, rows, window)
        assert store.window(window).sent.sum() == 3
        store.expire(window + 5_000)
        assert not any(store.names)


def test_a_row_of_a_path_beyond_its_table_spoils_its_message() -> None:
    told, report = ToldPaths(), window_report("a", NICS, _some(range(3)))
    beyond = np.zeros(1, PLACED_ROW)
    beyond["path"] = 3
    with pytest.raises(ValueError, match="not told"):
        told.read(structs.replace(report, rows=row_bytes(beyond)))
    assert told.read(WindowReport(host="a", nics=NICS, table=report.table, rows=b"")) is not None


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_get_other_numbers_keep_all_that_is_known_of_them(seed: int) -> None:
    """Hosts come, tell for a while, and go; a store that has let go of some knows of the others what one does that has not."""
    draw = np.random.default_rng(seed)
    lets_go, keeps = WindowStore(), WindowStore()
    began = {host: int(draw.integers(0, 4)) for host in "abcdefgh"}
    spans = {host: (first, first + int(draw.integers(1, 6))) for host, first in began.items()}
    shrank, most = False, 0
    for turn in range(12):
        now = BEGIN + turn * (FORGET_AFTER // 2)
        for host, (first, last) in spans.items():
            if first <= turn < last:
                for window in range(now - 8, now + 1):
                    rows = _rows(draw, window)
                    for store in (lets_go, keeps):
                        table = PathTable(each_once(paths_of(rows)))
                        places = table.places(paths_of(rows))
                        assert places is not None
                        read = ToldPaths().read(table.report(host, NICS, rows, places, tell=True))
                        assert read is not None
                        store.hear(*read, now)
        before = lets_go.version
        lets_go.expire(now)
        shrank |= len(lets_go.names) < most
        most = max(most, len(lets_go.names))
        _as_known(lets_go, keeps, now)
        if lets_go.version != before:
            moved = lets_go.named_by(before)
            assert len(moved) == len(lets_go.names)
    assert shrank


def _as_known(store: WindowStore, other: WindowStore, now: int) -> None:
    mine = {name: number for number, name in enumerate(store.names) if name is not None}
    theirs = {name: number for number, name in enumerate(other.names) if name is not None}
    here, there = [*mine.values()], [theirs[name] for name in mine]
    for window in range(now - 10, now + 1):
        known, same = store.window(window), other.window(window)
        assert len(known.sent) == len(store.names)
        for what in ("sent", "lost"):
            np.testing.assert_array_equal(getattr(known, what)[here], getattr(same, what)[there])
        for what in ("mean_ns", "least_ns"):
            np.testing.assert_array_equal(getattr(known, what)[:, here], getattr(same, what)[:, there])
    for nic in {name.src for name in mine}:
        assert store.answered(nic) <= {name.dst_addr for name in mine if name.src == nic}
