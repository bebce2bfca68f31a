"""What jobs of collectives lose by a cut and by an incast, from what their ranks say; no lab."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from cwdp.errors import ConfigError
from tools.experiments.collectives.jobs import SETTLE_S
from tools.experiments.failover import collective as failover
from tools.experiments.failover.collective_run import render as render_failover
from tools.experiments.failover.model import Cut, Kind
from tools.experiments.failover.run import failover as failover_command
from tools.experiments.incast import collective as incast
from tools.experiments.incast.collective_run import render as render_incast
from tools.experiments.incast.run import incast as incast_command
from tools.lab.topology import LabSpec, Topology
from tools.roce.collective.plan import Plan
from tools.roce.patterns import NIC_WINDOW

MS_NS = 1_000_000
START_NS = 7
SETTLED_NS = START_NS + round(SETTLE_S * 1000) * MS_NS
CUT_NS, MENDED_NS = SETTLED_NS + 1000 * MS_NS, SETTLED_NS + 3000 * MS_NS
OF_JOBS = {"buffer_bytes": 1000, "compute_s": 0.1, "jitter": 0.0}
NONE = {"iterations": 0, "p50_ns": None, "p99_ns": None}

Json = dict[str, Any]


def result(
    plan: Plan, iterations: Mapping[str, Sequence[tuple[int, int]]], failed: Sequence[int] = ()
) -> Json:
    """A run whose jobs had these iterations: ms after all had settled, and how many ms they took."""
    job_of = {name: c.name for c in plan.communicators for name in c.ranks}
    messages = [
        {
            "rank": rank.id,
            "iteration": number,
            "start_ns": SETTLED_NS + at * MS_NS,
            "end_ns": SETTLED_NS + (at + took) * MS_NS,
            "steps": [[SETTLED_NS, SETTLED_NS]] * len(rank.steps),
        }
        for rank in plan.ranks
        for number, (at, took) in enumerate(iterations[job_of[rank.name]])
    ]
    none = {"p50_ns": None, "p99_ns": None}
    return {
        "start_ns": START_NS,
        "messages": messages,
        "idle_share": 0.5,
        "flows": [
            {
                "id": flow.id,
                "target": flow.target.host,
                "failed": flow.id in failed,
                "sports": {"1": 1, "2": 1},
            }
            for flow in plan.flows
        ],
        "total": {
            "completion": none,
            "owd": none,
            "outage_ns": 0,
            "retransmitted_packets": 3,
            "failed": len(failed),
            "icrc_errors": 0,
        },
    }


def cut_setting(**changes: Any) -> failover.Setting:
    spec = LabSpec(hosts_per_leaf=2, rate_bps=10_000_000)
    asked = {"collective": "ring", "spine_rate_bps": None, "jobs": 2} | OF_JOBS | changes
    return failover.make_setting(spec, **asked)


def summarise(iterations: Mapping[str, Sequence[tuple[int, int]]], failed: Sequence[int] = ()) -> Json:
    """A cut of l1-s1, which the first of the four queue pairs of two jobs took."""
    plan = cut_setting().plan(1)
    taken = {flow.id: frozenset({"l1>s1" if flow.id == 0 else "l1>s2"}) for flow in plan.flows}
    cut = Cut(Kind.SILENT, ("l1-s1",))
    return failover.summarise_cut(plan, cut, taken, result(plan, iterations, failed), (CUT_NS, MENDED_NS))


ROUND = [(-500, 999), (0, 200), (200, 300), (500, 400), (900, 700), (1600, 350), (2990, 310), (3300, 290)]
OTHER = [(0, 300), (3100, 300)]


def test_iterations_are_told_apart_by_the_cut() -> None:
    a, b = summarise({"A": ROUND, "B": OTHER})["jobs"]
    assert (a["before"]["iterations"], a["before"]["p50_ns"]) == (3, 300 * MS_NS)
    assert (a["cut"]["iterations"], a["cut"]["p50_ns"]) == (3, 350 * MS_NS)
    assert (a["after"]["iterations"], a["after"]["p50_ns"]) == (1, 290 * MS_NS)
    assert (a["longest_ns"], a["excess_ns"]) == (700 * MS_NS, 400 * MS_NS)
    assert (a["queue_pairs_hit"], a["stopped"]) == (1, False)
    assert (b["queue_pairs_hit"], b["cut"], b["longest_ns"], b["excess_ns"]) == (0, NONE, None, None)


def test_a_job_with_a_dead_queue_pair_has_stopped_and_no_longest_iteration() -> None:
    a, b = summarise({"A": ROUND[:4], "B": OTHER}, failed=[0])["jobs"]
    assert (a["stopped"], a["queue_pairs_died"], a["excess_ns"]) == (True, 1, None)
    assert not b["stopped"]


def test_an_arm_tells_what_jobs_that_were_hit_lost() -> None:
    runs = [
        summarise({"A": ROUND, "B": OTHER}),
        summarise({"A": ROUND[:4], "B": OTHER}, failed=[0]),
        summarise({"A": [], "B": OTHER}, failed=[2]),
    ]
    row = failover.summarise_arm("cwdp", runs)
    assert (row["cuts"], row["jobs_hit"], row["jobs_stopped"], row["others_stopped"]) == (3, 3, 1, 1)
    assert (row["excess_p50_ns"], row["excess_max_ns"]) == (400 * MS_NS, 400 * MS_NS)
    assert (row["longest_max_ns"], row["before_p50_ns"]) == (700 * MS_NS, 300 * MS_NS)
    assert (row["moves"], row["retransmitted_packets"]) == (12, 9)


def test_an_arm_in_which_every_job_stopped_is_shown_without_times(capsys: pytest.CaptureFixture[str]) -> None:
    setting = cut_setting()
    row = failover.summarise_arm("ecmp", [summarise({"A": [], "B": OTHER}, failed=[0])])
    lab = {"rate_bps": 10_000_000, "spine_rate_bps": 10_000_000, "clocks": "steady"}
    shown = {"lab": lab, "kind": "silent", "arms": [row], **setting.jobs.describe()}
    print_of(render_failover(shown))
    assert "ecmp 1 1 - - - - - -" in " ".join(capsys.readouterr().out.split())


def test_the_links_between_switches_carry_just_what_the_best_placement_needs() -> None:
    assert cut_setting().spec.spine_rate_bps == 10_000_000
    assert cut_setting(spine_rate_bps=7).spec.spine_rate_bps == 7
    with pytest.raises(ConfigError, match="3 jobs on 4 hosts"):
        cut_setting(jobs=3)


def incast_setting(**changes: Any) -> incast.Setting:
    asked: Json = {
        "rate_bps": 10_000_000,
        "seed": 1,
        "clocks": "steady",
        "message_bytes": 4096,
        "seconds": 20.0,
        "jobs": 1,
    }
    return incast.make_setting("x", 5, **{"collective": "ring"} | asked | OF_JOBS | changes)


@pytest.mark.parametrize(
    ("collective", "jobs", "to_target"), [("ring", 1, 6), ("ring", 2, 6), ("all-to-all", 1, 8)]
)
def test_others_send_to_a_rank_of_the_first_job(collective: str, jobs: int, to_target: int) -> None:
    setting = incast_setting(collective=collective, jobs=jobs)
    plan = setting.plan()
    others = setting.others(plan)
    ranks = {name.partition("/")[0] for c in plan.communicators for name in c.ranks}
    assert len(ranks) == 4 * jobs
    assert setting.target in {name.partition("/")[0] for name in plan.communicators[0].ranks}
    assert {flow.source.host for flow in others} == set(setting.sources)
    assert not ranks & set(setting.sources)
    flows = [*plan.flows, *others]
    assert [flow.id for flow in flows] == list(range(len(flows)))
    qpns = [qpn for flow in flows for qpn in (flow.qpn, flow.remote_qpn)]
    assert len(set(qpns)) == len(qpns)
    at_target = [flow.window for flow in flows if flow.target.host == setting.target]
    assert len(at_target) == to_target
    assert sum(at_target) <= NIC_WINDOW
    assert setting.hosts <= set(Topology(setting.spec).hosts)
    assert others == incast_setting(collective=collective, jobs=jobs).others(plan)


def incast_run(setting: incast.Setting, took_ms: Sequence[int], others: bool) -> Json:
    """A run whose iterations took so long and whose queue pairs had 1 MB/s each."""
    plan = setting.plan()
    found = result(plan, {"A": [(1000 * number, took) for number, took in enumerate(took_ms)]})
    if others:
        found["flows"] += [
            {"id": flow.id, "target": flow.target.host, "sports": {"1": 1}} for flow in setting.others(plan)
        ]
    found["timeline"] = [
        {
            "at_ns": START_NS + second * 10**9,
            "delivered_bytes": {flow["id"]: second * 10**6 for flow in found["flows"]},
        }
        for second in range(1, 15)
    ]
    return incast.summarise(setting, plan, found)


def test_what_an_incast_costs_is_told_beside_the_job_alone(capsys: pytest.CaptureFixture[str]) -> None:
    setting = incast_setting()
    alone = incast_run(setting, [200, 200, 210], others=False)
    held = incast_run(setting, [300, 400, 900], others=True)
    assert (alone["senders_bps"], alone["senders_jain"]) == (0, None)
    assert held["senders_bps"] == pytest.approx(5 * 8e6)
    assert held["senders_jain"] == pytest.approx(1)
    assert held["goodput_share"] == pytest.approx(4.8)
    found = incast.compare(held, alone)
    assert found["over_alone"] == 2.0
    assert found["jobs"][0]["excess_ns"] == 700 * MS_NS
    stuck = incast.compare(incast_run(setting, [], others=True), alone)
    assert (stuck["over_alone"], stuck["jobs"][0]["excess_ns"]) == (None, None)
    shown = {
        "alone": incast.compare(alone, alone),
        "without": found,
        "with": stuck,
        **setting.jobs.describe(),
    }
    print_of(
        render_incast(shown | {"senders": 5, "target": "h1", "rate_bps": 10_000_000, "clocks": "steady"})
    )
    rows = {line.split()[0]: line.split()[1:6] for line in capsys.readouterr().out.splitlines()[1:4]}
    assert rows["without"] == ["2.00", "700", "400", "890", "900"]
    assert rows["with"] == ["-"] * 5


@pytest.mark.parametrize(
    ("command", "asked", "complaint"),
    [
        (failover_command, "--bytes 1mb --jitter 1%", "Give --bytes, --jitter only with --collective"),
        (
            failover_command,
            "--collective ring --load 30%",
            "Give --load only with queue pairs that always send",
        ),
        (failover_command, "--collective star", "'star' is not one of"),
        (incast_command, "--jobs 2", "Give --jobs only with --collective"),
        (incast_command, "--collective ring --seconds 5", "give more"),
        (incast_command, "--collective star", "'star' is not one of"),
    ],
)
def test_what_means_nothing_is_refused(command: Any, asked: str, complaint: str) -> None:
    done = CliRunner().invoke(command, asked.split())
    assert done.exit_code == 2
    assert complaint in done.output


def print_of(shown: Any) -> None:
    Console(width=200).print(shown)
