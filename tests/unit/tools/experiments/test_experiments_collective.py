"""Contention of collectives: who is in which job, what spines carry, and what iterations come to."""

from typing import Any

import pytest
from click.testing import CliRunner

from cwdp.errors import ConfigError
from tools.experiments.collectives.iterations import over
from tools.experiments.collectives.jobs import NIC_WINDOW, SETTLE_S
from tools.experiments.contention.collective import Setting, make_setting, summarise
from tools.experiments.contention.run import contention
from tools.lab.topology import LabSpec

MS_NS = 1_000_000
SETTLED_NS = round(SETTLE_S * 1000) * MS_NS


def setting(name: str = "ring", **changes: Any) -> Setting:
    spec = changes.pop("spec", LabSpec(rate_bps=10_000_000))
    asked = {"jobs": 2, "buffer_bytes": 1000, "compute_s": 0.1, "jitter": 0.0} | changes
    return make_setting(spec, name, **asked)


def test_neighbours_in_a_ring_are_below_different_leaves() -> None:
    a, b = setting().jobs.communicators
    assert a.ranks == ("h1/nic0", "h5/nic0", "h3/nic0", "h7/nic0")
    assert b.ranks == ("h2/nic0", "h6/nic0", "h4/nic0", "h8/nic0")


@pytest.mark.parametrize(
    ("name", "spines", "jobs", "rate_bps"),
    [
        ("ring", 4, 2, 10_000_000),
        ("ring", 2, 2, 20_000_000),
        ("ring", 2, 1, 10_000_000),
        ("all-to-all", 4, 2, 2 * 10_000_000 / 3),
    ],
)
def test_spines_carry_just_what_the_best_placement_needs(
    name: str, spines: int, jobs: int, rate_bps: float
) -> None:
    hosts = 4 if jobs == 2 else 2
    found = setting(name, jobs=jobs, spec=LabSpec(rate_bps=10_000_000, spines=spines, hosts_per_leaf=hosts))
    assert found.spec.spine_rate_bps == round(rate_bps)
    assert found.open_bps >= hosts * 10_000_000


def test_a_rate_of_ones_own_and_too_few_hosts() -> None:
    assert setting(spine_rate_bps=7).spec.spine_rate_bps == 7
    with pytest.raises(ConfigError, match="5 jobs on 8 hosts"):
        setting(jobs=5)


def test_a_seed_draws_source_ports_and_nothing_else() -> None:
    first, again, other = (setting("all-to-all").plan(seed) for seed in (1, 1, 2))
    assert [flow.sport for flow in first.flows] == [flow.sport for flow in again.flows]
    assert [flow.sport for flow in first.flows] != [flow.sport for flow in other.flows]
    assert {flow.window for flow in first.flows} == {NIC_WINDOW // 3}
    assert {flow.window for flow in setting().plan(1).flows} == {NIC_WINDOW}


def test_only_iterations_that_begin_once_all_has_settled_count() -> None:
    plan = setting().plan(1)

    def message(rank: int, iteration: int) -> dict[str, Any]:
        start_ns = 7 + (iteration * SETTLED_NS) // 2
        end_ns = start_ns + (100 + 10 * iteration) * MS_NS
        steps = [[start_ns, start_ns]] * len(plan.ranks[rank].steps)
        return {"rank": rank, "iteration": iteration, "start_ns": start_ns, "end_ns": end_ns, "steps": steps}

    second = [rank.id for rank in plan.ranks if rank.name in plan.communicators[1].ranks]
    messages = [
        message(rank.id, iteration)
        for rank in plan.ranks
        for iteration in range(2 if rank.id in second else 4)
    ]
    none = {"p50_ns": None, "p99_ns": None}
    total = {
        "completion": none,
        "owd": none,
        "outage_ns": 0,
        "retransmitted_packets": 0,
        "failed": 0,
        "icrc_errors": 0,
    }
    found = summarise(
        plan, {"start_ns": 7, "messages": messages, "idle_share": 0.5, "total": total, "flows": []}
    )
    a, b = found["jobs"]
    assert (a["job"], a["iterations"], a["p50_ns"]) == ("A", 2, 125 * MS_NS)
    assert b == {"job": "B", "iterations": 0, "p50_ns": None, "p99_ns": None}


def test_a_run_is_as_slow_as_the_job_that_suffers_most() -> None:
    def run(*medians: int | None) -> dict[str, Any]:
        return {"jobs": [{"p50_ns": median} for median in medians]}

    assert over(run(200, 110), run(100, 100)) == 2.0
    assert over(run(200, None), run(100, 100)) is None


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("--bytes 1mb", "only with --collective"),
        ("--jobs 3 --compute 5ms", "Give --jobs, --compute only with --collective"),
        ("--collective ring --slow-spine 50%", "Give --slow-spine only with queue pairs that always send"),
        ("--collective ring --seconds 6", "give more"),
        ("--collective star", "'star' is not one of"),
    ],
)
def test_what_means_nothing_is_refused(asked: str, complaint: str) -> None:
    done = CliRunner().invoke(contention, asked.split())
    assert done.exit_code == 2
    assert complaint in done.output
