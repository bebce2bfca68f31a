"""The experiments run from end to end in small labs; how well anything does is for the experiments to print."""

import random

import pytest
from conftest import lab_name

from tools.experiments.contention import run as contention_run
from tools.experiments.contention.collective import make_setting as make_collective
from tools.experiments.contention.collective_run import run_collectives
from tools.experiments.contention.model import Arm
from tools.experiments.contention.model import make_setting as make_contention
from tools.experiments.failover import collective as failover_collective
from tools.experiments.failover import collective_run as failover_collective_run
from tools.experiments.failover import model as failover
from tools.experiments.failover import run as failover_run
from tools.experiments.failover.model import Kind
from tools.experiments.failover.model import make_setting as make_failover
from tools.experiments.incast import collective as incast_collective
from tools.experiments.incast import collective_run as incast_collective_run
from tools.lab import LabSpec, state

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

SMALL = {"hosts_per_leaf": 2, "spines": 2, "rate_bps": 10_000_000}


def test_contention_compares_arms_on_the_same_queue_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    name = lab_name("contention")
    monkeypatch.setattr(contention_run, "NAME", name)
    spec = LabSpec(name=name, **SMALL)
    setting = make_contention(spec, spine_rate_bps=None, slow_share=1.0)
    result = contention_run.run_contention(setting, [Arm.ECMP, Arm.HOPPER], [1], seconds=5.0)
    assert [row["arm"] for row in result["arms"]] == ["ecmp", "hopper"]
    for run in result["runs"]:
        assert 0 < run["optimum_share"] < 1.02
        assert 0 < run["slowest_member_bps"] <= run["slowest_host_bps"] * 1.001 <= run["sum_bps"]
        assert (run["icrc_errors"], run["queue_pairs_died"]) == (0, 0)
    assert result["runs"][0]["moves"] == 0
    assert state.load(name) is None


def test_contention_of_collectives_tells_how_long_iterations_take() -> None:
    name = lab_name("iterations")
    setting = make_collective(
        LabSpec(name=name, **SMALL),
        "ring",
        jobs=1,
        buffer_bytes=100_000,
        compute_s=0.2,
        jitter=0.05,
        seconds=12.0,
    )
    result = run_collectives(name, setting, [Arm.ECMP], [1])
    assert [row["arm"] for row in result["arms"]] == ["open", "ecmp"]
    for run in result["runs"]:
        (job,) = run["jobs"]
        assert job["iterations"] > 1
        assert 0.19e9 < job["p50_ns"] <= job["p99_ns"]
        assert (run["icrc_errors"], run["queue_pairs_died"], run["moves"]) == (0, 0, 0)
    assert result["runs"][0]["over_open"] == 1.0
    assert result["runs"][1]["over_ecmp"] == 1.0
    assert state.load(name) is None


def test_without_cwdp_a_silent_cut_kills_what_it_hits_and_nothing_else() -> None:
    # One direction of one of eight links, chosen because it carries data: that the other seven of the eight queue
    # pairs all have their data or their answers on it too is about 4**-7, one in 16,384.
    # At this load no link is full, whatever ECMP puts on it: congestion would kill queue pairs too.
    spec = LabSpec(name=lab_name("failover"), **SMALL | {"spines": 4})
    setting = make_failover(spec, 0.2, None)
    result = failover_run.run_failover([setting], ["ecmp"], Kind.ONE_WAY, 1, random.randrange(1000))
    (run,) = result["runs"]
    assert 0 < run["queue_pairs_died"] < len(setting.pairs)
    assert len(run["stalls_ns"]) == run["queue_pairs_died"]
    assert min(run["stalls_ns"]) > failover.DARK_S * 0.9e9
    assert run["dark_share"] < 0.95
    assert run["moves"] == 0
    assert len(run["timeline"]["at_s"]) == len(run["timeline"]["goodput_bps"]) > 40


def test_failover_of_collectives_tells_that_a_silent_cut_stops_a_job_without_cwdp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A dead queue pair has retried for half a second; the cut lasts four times as long.
    monkeypatch.setattr(failover_collective_run, "BEFORE_S", 2.0)
    name = lab_name("failover-jobs")
    setting = failover_collective.make_setting(
        LabSpec(name=name, **SMALL | {"hosts_per_leaf": 1}),
        "ring",
        None,
        jobs=1,
        buffer_bytes=20_000,
        compute_s=0.05,
        jitter=0.05,
    )
    result = failover_collective_run.run_collectives(setting, ["ecmp"], Kind.SILENT, 1, 1)
    (run,) = result["runs"]
    (job,) = run["jobs"]
    assert job["queue_pairs_hit"] >= 1
    assert job["before"]["iterations"] > 1
    assert (job["stopped"], job["excess_ns"], job["after"]["iterations"]) == (True, None, 0)
    assert run["moves"] == 0
    (row,) = result["arms"]
    assert (row["arm"], row["jobs_hit"], row["jobs_stopped"]) == ("ecmp", 1, 1)
    assert state.load(name) is None


@pytest.mark.timeout(300)  # two fleets of eight hosts, one after the other
def test_incast_of_collectives_tells_what_a_job_loses_to_those_who_send_to_one_of_its_ranks() -> None:
    name = lab_name("incast-jobs")
    setting = incast_collective.make_setting(
        name,
        2,
        "ring",
        rate_bps=20_000_000,
        seed=1,
        clocks="steady",
        message_bytes=64 * 1024,
        seconds=12.0,
        jobs=1,
        buffer_bytes=40_000,
        compute_s=0.1,
        jitter=0.05,
    )
    result = incast_collective_run.run_collectives(setting)
    for arm in ("alone", "without", "with"):
        (job,) = result[arm]["jobs"]
        assert job["iterations"] > 1
        assert 0.09e9 < job["p50_ns"] <= job["longest_ns"]
        assert (result[arm]["icrc_errors"], result[arm]["queue_pairs_died"], result[arm]["moves"]) == (
            0,
            0,
            0,
        )
    assert result["alone"]["senders_bps"] == 0
    assert result["without"]["senders_bps"] > 0
    assert result["with"]["senders_bps"] > 0
    assert result["without"]["over_alone"] > 1
    assert state.load(name) is None
