"""Queues of several windows at once, and loads that go on from those of an earlier model."""

import numpy as np
import pytest
from fabric_fakes import hear_windows, one_pair
from test_link_loads import OWNER, _traffic
from test_queue_windows import NOW, _rows

from manager.fabric.routes import PackedPaths, Routes
from manager.links.inference import QueueInference
from manager.links.matrix import build_matrix
from manager.links.meter import LoadMeter
from manager.links.row_places import Nics
from manager.paths.windows import WindowStore


def test_windows_that_are_told_of_at_once_have_the_queues_that_they_had_on_average() -> None:
    rows = WindowStore()
    report = _rows(2)
    report["reply_sport"] = 1
    hear_windows(rows, ["a/0"], report, NOW)
    matrix = build_matrix(rows.names, one_pair(), Nics({"10.0.0.2": "b/0"}, {"a/0": ["10.0.0.1"]}))
    queues, one_by_one = QueueInference(matrix), QueueInference(matrix)
    for turn, late_ns in ((1, 1_000_000), (2, 3_000_000)):
        late = report.copy()
        late["window"] = NOW + turn
        late["fwd_mean_ns"][0] = late["fwd_min_ns"][0] = 5_000 + late_ns
        hear_windows(rows, ["a/0"], late, NOW + turn)
    windows = [rows.window(NOW + turn) for turn in (1, 2)]
    found = queues.step(*windows)
    assert found.queue_ns[1] == pytest.approx(2e6, rel=0.01)
    assert found.floor_ns[1] == pytest.approx(1e6, rel=0.01)
    assert np.array_equal(queues.queue_ns[-1], queues.queue_ns[-2], equal_nan=True)
    assert np.isnan(queues.queue_ns[-3]).all()
    apart = [one_by_one.step(window).queue_ns for window in windows]
    assert found.queue_ns == pytest.approx(np.mean(apart, axis=0), abs=2_000)


@pytest.mark.parametrize(
    "now",
    [
        {50_000: (0, 1, 3, 5), 50_001: (0, 2, 4, 5)},
        {50_000: (0, 2, 4, 5), 50_001: (0, 2, 4, 5)},
        {50_000: (0, 1, 3, 5), 50_001: (0, 2, 4, 5), 50_002: (0, 1, 3, 5)},
        {50_001: (0, 2, 4, 5)},
        {50_000: (0, 1, 5), 50_001: (0, 2, 4, 5)},
        {},
    ],
    ids=["same", "moved", "one more", "one less", "shorter", "none"],
)
def test_a_meter_that_goes_on_from_another_measures_as_one_that_begins_anew(
    now: dict[int, tuple[int, ...]],
) -> None:
    links = one_pair().links
    pair = "a/0", "10.0.0.2"
    crossed = np.array([(0, 1, 3, 5), (0, 2, 4, 5)], np.int32)
    mapping = {50_000: 0, 50_001: 1}
    before = LoadMeter(Routes(1, links, PackedPaths({pair: mapping}, crossed)), OWNER)
    tables = _traffic(1e6, [50_000, 50_000, 50_001, 50_002]).tables
    before.measure(tables.items(), 1.0)
    rows = np.array([(*path, -1, -1)[:4] for path in now.values()], np.int32).reshape(-1, 4)
    after = mapping if now.keys() == mapping.keys() else {port: i for i, port in enumerate(now)}
    routes = Routes(2, links, PackedPaths({pair: after} if now else {}, rows))
    goes_on = LoadMeter(routes, OWNER, before)
    is_same = np.array_equal(rows, crossed)
    assert (goes_on.known == before.known) == is_same
    for found, anew in zip(
        goes_on.measure(tables.items(), 1.0),
        LoadMeter(routes, OWNER).measure(tables.items(), 1.0),
        strict=True,
    ):
        assert np.array_equal(found, anew)
