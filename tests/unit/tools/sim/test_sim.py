"""The simulations, small: the models are what they claim to be, and the clock module holds in them."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from tools.clocks import ClockKind
from tools.sim.__main__ import main
from tools.sim.clocks.clos import ClosOptions, ClosSimulation, random_pairs
from tools.sim.clocks.clos_fabric import Fabric
from tools.sim.clocks.oscillators import Oscillators
from tools.sim.clocks.solve import solve
from tools.sim.clocks.two_node import two_node


@pytest.mark.parametrize("load", [0.4, 0.8])
def test_queues_wait_as_long_as_pollaczek_and_khinchine_say(load: float) -> None:
    rng = np.random.default_rng(1)
    fabric = Fabric.random(16, 1.0, load, 100e9, rng)
    fabric.load[:] = load
    route = fabric.route(np.zeros(1, np.int64), np.full(1, 15), np.zeros(1, np.int64))
    waiting = fabric.queueing_ns(route, np.zeros((1, 200_000)), rng)
    expected = 4 * fabric.service_ns * load / (2 * (1 - load))
    assert waiting.mean() == pytest.approx(expected, rel=0.02)
    assert np.mean(waiting == 0) == pytest.approx((1 - load) ** 4, rel=0.2)


def test_a_path_is_as_long_there_as_back() -> None:
    fabric = Fabric.random(64, 1.0, 0.4, 100e9, np.random.default_rng(1))
    src, dst, spine = np.arange(64), np.roll(np.arange(64), 9), np.zeros(64, np.int64)
    there, back = fabric.route(src, dst, spine), fabric.route(dst, src, spine)
    assert np.allclose(fabric.propagation_ns(there), fabric.propagation_ns(back))


def test_clocks_drift_and_wander() -> None:
    clocks = Oscillators.random(50, 10, np.random.default_rng(1), drift_ppm=50)
    rate = clocks.phase_ns[:, -1] / (clocks.phase_ns.shape[1] - 1) / 0.05e9
    assert 30e-6 < np.abs(rate).max() <= 50.1e-6


def test_probe_graph_is_connected() -> None:
    a, b = random_pairs(50, 4, np.random.default_rng(1))
    assert (a < b).all()
    assert set(a) | set(b) == set(range(50))


def test_two_nodes_hold_under_heavy_queueing() -> None:
    result = two_node(0.9, 128, 20, 1)
    assert result.fit_p99_ns < 5
    assert result.fit_p99_ns <= result.minimum_delay_p99_ns
    assert 50 * result.fit_p99_ns < result.two_way_median_p99_ns
    assert result.bound_held == 1


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["wander", "disciplined"])
def test_two_nodes_hold_with_clocks_as_hosts_have_them(kind: ClockKind, seed: int) -> None:
    result = two_node(0.9, 128, 40, seed, kind)
    assert result.fit_p99_ns <= result.minimum_delay_p99_ns
    assert (result.bound_held, result.synced) == (1, 1)


def test_two_nodes_whose_clocks_jump_unnoticed_are_not_always_right() -> None:
    result = two_node(0.4, 128, 120, 1, "rough")
    assert 0.5 < result.bound_held < 1
    assert 0.5 < result.synced <= 1
    assert result.fit_p50_ns < 10


@pytest.mark.parametrize("kind", ["disciplined", "rough"])
def test_a_small_clos_has_the_clocks_that_it_is_told(kind: ClockKind) -> None:
    steady, result = (
        ClosSimulation(ClosOptions(nics=16, seconds=24, clocks=each)).run() for each in ("steady", kind)
    )
    assert steady.p50_ns < result.p50_ns
    if kind == "disciplined":
        assert result.p99_ns < 3 * steady.p99_ns
        assert (result.bound_held, result.synced_share) == (1, 1)


def test_small_clos_names_its_liars() -> None:
    result = ClosSimulation(
        ClosOptions(nics=40, seconds=20, liars=0.05, asymmetric=0.02, stamp_bias_ns=2)
    ).run()
    assert result.p99_ns < 10
    assert result.liars_named == 1
    assert result.honest_named == 0
    assert result.bound_held > 0.999


def test_the_solve_loses_nothing_of_what_the_data_say() -> None:
    assert solve(2000, 20_000, 1).error_ratio == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    "command",
    [
        ["two-node", "--queued", "0", "--pairs", "32"],
        ["two-node", "--queued", "0", "--pairs", "32", "--clocks", "disciplined"],
        ["clos", "--nics", "8", "--clocks", "wander"],
        ["solve", "--nodes", "100"],
    ],
)
def test_commands_print_json(command: list[str]) -> None:
    extra = ["--edges", "1000"] if command[0] == "solve" else ["--seconds", "15"]
    result = CliRunner().invoke(main, [*command, *extra, "--json"])
    assert result.exit_code == 0
    assert len(json.loads(result.output)) == 1
    again = CliRunner().invoke(main, [command[0], "--help"])
    assert again.exit_code == 0


def test_a_cold_start_prints_its_phases() -> None:
    result = CliRunner().invoke(main, ["cold-start", "--hosts", "3", "--peers", "2", "--seed", "4", "--json"])
    assert result.exit_code == 0
    phases = json.loads(result.output)
    assert [phase["from_s"] for phase in phases] == sorted(phase["from_s"] for phase in phases)
    assert all(phase["p50_ns"] <= phase["p99_ns"] <= phase["max_ns"] for phase in phases)
    assert phases[-1]["p99_ns"] < phases[0]["p99_ns"]
