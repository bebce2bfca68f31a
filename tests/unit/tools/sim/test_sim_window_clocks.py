"""Clocks that are off, as simulated probes meet them, and what a manager makes of that."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from fabric_fakes import whole_rows
from numpy.typing import NDArray

from cwdp.shared.bus.records import NO_DELAY_NS
from manager.paths.told import ToldPaths
from tools.clocks import ClockKind
from tools.sim.__main__ import main
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench, false_alarms
from tools.sim.fleet.window_clocks import WindowClocks

SHAPE = Shape(leaves=2, spines=2, hosts_per_leaf=2, load=0.4)
HOSTS = SHAPE.leaves * SHAPE.hosts_per_leaf
WINDOWS = 130


def constant(error_ns: list[float], bound_ns: float) -> WindowClocks:
    """Clocks that are off all the time; NaN for a host that has none."""
    error = np.tile(np.array(error_ns), (WINDOWS, 1))
    never = np.full(error.shape, np.nan)
    return WindowClocks(error, np.where(np.isnan(error), np.nan, bound_ns), np.isnan(error), never)


def told(clocks: WindowClocks | None, seed: int) -> list[NDArray[np.void]]:
    """The rows of each host's windows, joined."""
    fabric = LeafSpine(SHAPE, np.random.default_rng(seed), clocks)
    rows: dict[str, list[NDArray[np.void]]] = {}
    paths = ToldPaths()
    for number in range(40, 60):
        for report in fabric.window(number, Trouble()):
            found = whole_rows(paths, report)
            assert found is not None
            rows.setdefault(report.host, []).append(found)
    return [np.concatenate(rows[f"h{i}"]) for i in range(HOSTS)]


@pytest.mark.parametrize("seed", range(3))
def test_a_delay_is_longer_by_what_the_responder_is_ahead(seed: int) -> None:
    off_ns = np.random.default_rng(seed).uniform(-1e6, 1e6, HOSTS)
    exact, shifted = told(None, seed), told(constant(off_ns.tolist(), 700.0), seed)
    for i in range(HOSTS):
        timed = exact[i]["fwd_min_ns"] != NO_DELAY_NS
        peer = exact[i]["dst_addr"][timed][:, 14].astype(int)
        ahead_ns = off_ns[peer] - off_ns[i]
        for way, sign in (("fwd", 1), ("rev", -1)):
            for name in (f"{way}_min_ns", f"{way}_mean_ns"):
                longer_ns = shifted[i][name][timed].astype(float) - exact[i][name][timed]
                assert longer_ns == pytest.approx(sign * ahead_ns, abs=2)
        assert (shifted[i]["bound_ns"][timed] == 1400).all()


def test_nobody_knows_a_delay_to_a_host_without_a_clock() -> None:
    rows = told(constant([0.0, np.nan, 0.0, 0.0], 50.0), 5)
    assert (rows[1]["fwd_mean_ns"] == NO_DELAY_NS).all()
    assert (rows[1]["sent"] > 0).all()
    to_it = rows[0]["dst_addr"][:, 14] == 1
    assert (rows[0]["rev_min_ns"][to_it] == NO_DELAY_NS).all()
    assert (rows[0]["rev_min_ns"][~to_it] != NO_DELAY_NS).any()


def test_a_host_whose_clock_is_set_aside_is_named_and_no_link() -> None:
    clocks = constant([0.0, 0.0, 0.0, np.nan], 50.0)
    events = false_alarms(12.0, SHAPE, Trouble(), np.random.default_rng(6), clocks)
    assert [kind for kind, _ in events] == ["host_clock"]
    assert "h3" in events[0][1]


def jumped(host: int, window: int, by_ns: float, known_after: int) -> WindowClocks:
    """A clock that jumps, is known to have so many windows later, and claims no more than it knows from then on."""
    clocks = constant([0.0] * HOSTS, 300.0)
    known = window + known_after
    clocks.error_ns[window:known, host] = by_ns
    for later in range(12):  # it is slewed back, and says so
        left_ns = by_ns * (1 - (later + 1) / 12)
        clocks.error_ns[known + later, host] = left_ns
        clocks.bound_ns[known + later, host] = 300.0 + abs(left_ns)
    clocks.changed[known : known + 30, host] = window + 0.4
    return clocks


@pytest.mark.parametrize("seed", range(6))
def test_a_clock_that_jumped_leaves_no_least_delay_behind(seed: int) -> None:
    rng = np.random.default_rng(seed)
    by_ns = float(rng.choice([-1, 1]) * rng.uniform(0.2e6, 1e6))
    clocks = jumped(int(rng.integers(HOSTS)), int(rng.integers(20, 60)), by_ns, int(rng.integers(2, 9)))
    assert false_alarms(WINDOWS / 10, replace(SHAPE, load=0.0), Trouble(), rng, clocks) == []


@pytest.mark.parametrize("way", ["slow_sender", "slow_receiver"])
def test_a_host_whose_clock_has_jumped_is_found_slow_as_soon_as_any(way: str) -> None:
    took = []
    for clocks in (None, jumped(1, 20, 0.6e6, 3)):
        bench = Bench(LeafSpine(replace(SHAPE, load=0.0), np.random.default_rng(8), clocks))
        link = next(
            i
            for i, (a, b) in enumerate(bench.fabric.routes.links)
            if (a if way == "slow_sender" else b) == "h1/nic0"
        )
        for _ in bench.run(40, Trouble()):
            pass
        began_s = bench.time_s
        for now_s in bench.run(60, Trouble(saturated={link})):
            if bench.events:
                took.append(now_s - began_s)
                break
        assert [kind for kind, _ in bench.events] == [way]
    assert took[1] <= took[0] + 0.2


@pytest.mark.parametrize("kind", ["wander", "disciplined"])
def test_clocks_that_change_as_they_should_raise_no_alarm(kind: ClockKind) -> None:
    clocks = WindowClocks.of_fleet(kind, HOSTS, WINDOWS, 7)
    assert np.nanmax(np.abs(clocks.error_ns)) < 1_000
    assert not clocks.set_aside.any()
    assert false_alarms(WINDOWS / 10, SHAPE, Trouble(), np.random.default_rng(7), clocks) == []


@pytest.mark.parametrize("kind", ["steady", "rough"])
def test_a_watch_says_which_clocks_it_was_with(kind: ClockKind) -> None:
    result = CliRunner().invoke(main, ["no-faults", "--seconds", "10", "--clocks", kind, "--json"])
    assert result.exit_code == 0
    (found,) = json.loads(result.output)
    assert found["clocks"] == kind
    assert min(found["alarms"], found["clocks_wrong"]) >= 0
