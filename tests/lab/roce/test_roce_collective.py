"""Collectives over a lab: steps begin when their inputs have arrived, and iterations take what they must."""

import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

import pytest
from conftest import lab_name

from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.roce import Generator, collective_result, plan_collective
from tools.roce.collective.plan import Plan, job_communicators, rank_ends
from tools.roce.collective.rank import Stall
from tools.roce.collective.steps import COLLECTIVES
from tools.roce.flows import largest_mtu
from tools.roce.process import PROGRAM

pytestmark = [
    pytest.mark.lab,
    pytest.mark.needs(PROGRAM),
]

TIMEOUT_S = 60.0
PATIENT_NS = 1_000_000_000
"""A pause of the machine is no loss: packets are sent again only where they are long overdue."""

BUFFER_BYTES = 400_000
COMPUTE_NS = 100_000_000
JITTER = 0.1
ITERATIONS = 5
NS_PER_S = 1_000_000_000


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Four hosts at two leaves."""
    name = lab_name("ranks")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=2, spines=2))
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)


def plan_for(lab: Lab, collective: str, *, tensor: int = 1, ipv6: bool = False, **settings: Any) -> Plan:
    made = job_communicators(
        lab.topology, collective, buffer_bytes=BUFFER_BYTES, compute_ns=COMPUTE_NS, tensor=tensor
    )
    settings = {
        "iterations": ITERATIONS,
        "jitter": JITTER,
        "mtu": largest_mtu(lab.spec.mtu),
        "timeout_ns": PATIENT_NS,
        **settings,
    }
    return plan_collective(rank_ends(lab.topology, ipv6=ipv6), made, **settings)


def run(lab: Lab, plan: Plan) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """What queue pairs did, the times of the job, and what ranks said of their iterations."""
    with Generator(plan.flows, lab.popen, lab.run_dir, ranks=plan.ranks) as generator:
        generator.start()
        result = generator.result(TIMEOUT_S)
        messages = sorted(generator.iterations(), key=lambda message: message["iteration"])
    return result, only_job(plan, messages), messages


def only_job(plan: Plan, messages: list[dict[str, Any]]) -> dict[str, Any]:
    (job,) = collective_result(plan, messages)["jobs"]
    return cast("dict[str, Any]", job)


def step_times(plan: Plan, messages: list[dict[str, Any]]) -> Iterator[tuple[Any, int, int]]:
    """Each step of each iteration, in the order of the rank: what it is, when it was ready and when it began."""
    ranks = {rank.id: rank for rank in plan.ranks}
    for message in messages:
        for step, (ready_ns, begun_ns) in zip(ranks[message["rank"]].steps, message["steps"], strict=True):
            yield step, ready_ns, begun_ns


def assert_no_step_before_its_inputs(lab: Lab, plan: Plan, messages: list[dict[str, Any]]) -> None:
    """By the times of both ends: the nth message of a flow was posted, and crossed the wire, before it was used."""
    posted_ns, used_ns = defaultdict(list), defaultdict(list)
    for step, ready_ns, begun_ns in step_times(plan, messages):
        assert begun_ns >= ready_ns + step.compute_ns - step.jitter_ns
        for flow in step.inputs:
            used_ns[flow].append(ready_ns)
        for flow in step.outputs:
            posted_ns[flow].append(begun_ns)
    assert posted_ns.keys() == used_ns.keys() == {flow.id for flow in plan.flows}
    for flow in plan.flows:
        assert len(posted_ns[flow.id]) == len(used_ns[flow.id])
        # Half of it: a queue that was empty lets a little go by at once.
        wire_ns = 8 * flow.message_bytes * NS_PER_S // lab.spec.rate_bps // 2
        for before_ns, after_ns in zip(posted_ns[flow.id], used_ns[flow.id], strict=True):
            assert after_ns - before_ns >= wire_ns


def assert_iterations_follow_each_other(messages: list[dict[str, Any]]) -> None:
    ended_ns: dict[int, int] = {}
    for message in messages:
        assert message["start_ns"] >= ended_ns.get(message["rank"], 0)
        assert message["end_ns"] >= message["steps"][-1][1]
        ended_ns[message["rank"]] = message["end_ns"]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("tensor", [1, 2])
def test_no_step_begins_before_its_inputs_have_arrived(lab: Lab, collective: str, tensor: int) -> None:
    plan = plan_for(lab, collective, tensor=tensor)
    result, job, messages = run(lab, plan)
    assert len(messages) == ITERATIONS * len(plan.ranks)
    assert [row["iteration"] for row in job["iterations"]] == list(range(ITERATIONS))
    assert result["total"]["failed"] == 0
    assert all(flow["acked_bytes"] == flow["delivered_bytes"] for flow in result["flows"])
    assert_no_step_before_its_inputs(lab, plan, messages)
    assert_iterations_follow_each_other(messages)


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_a_ring_takes_its_computing_and_its_transfers(lab: Lab, ipv6: bool) -> None:
    _, job, _ = run(lab, plan_for(lab, "ring", ipv6=ipv6))
    rounds = 2 * (len(lab.hosts) - 1)
    transfer_ns = rounds * 8 * BUFFER_BYTES // len(lab.hosts) * NS_PER_S // lab.spec.rate_bps
    for row in job["iterations"]:
        assert row["duration_ns"] > (1 - JITTER) * COMPUTE_NS + 0.8 * transfer_ns
    # A busy machine makes some iterations longer, not most of them.
    assert job["duration"]["p50_ns"] < (1 + JITTER) * COMPUTE_NS + 3 * transfer_ns


def test_a_straggler_is_late_and_all_others_wait_for_it(lab: Lab) -> None:
    plan = plan_for(lab, "all-to-all", jitter=0.0, stragglers={"h3/nic0": 2.0})
    _, job, _ = run(lab, plan)
    (communicator,) = job["communicators"]
    late_ns = {row["rank"]: row["lateness"]["p50_ns"] for row in communicator["ranks"]}
    assert max(late_ns, key=lambda rank: late_ns[rank]) == "h3/nic0"
    assert late_ns["h3/nic0"] > 1.5 * COMPUTE_NS
    for row in job["ranks"]:
        assert row["duration"]["p50_ns"] > 2.5 * COMPUTE_NS


def test_a_rank_that_stands_still_begins_no_step_meanwhile(lab: Lab) -> None:
    stall = Stall(stall_ns=NS_PER_S // 2, every_ns=NS_PER_S)
    plan = plan_for(lab, "ring", stalls={"h2/nic0": stall})
    _, _, messages = run(lab, plan)
    stalled = next(rank for rank in plan.ranks if rank.name == "h2/nic0")
    own = [message for message in messages if message["rank"] == stalled.id]
    origin_ns = own[0]["start_ns"]
    for _, ready_ns, begun_ns in step_times(plan, own):
        for at_ns in (ready_ns, begun_ns):
            assert (at_ns - origin_ns) % stall.every_ns < stall.every_ns - stall.stall_ns
    assert own[-1]["end_ns"] - origin_ns > stall.every_ns
    assert_no_step_before_its_inputs(lab, plan, messages)


def test_a_run_ends_when_a_queue_pair_fails(lab: Lab) -> None:
    plan = plan_for(lab, "ring", iterations=None, timeout_ns=20_000_000, retries=3)
    try:
        with Generator(plan.flows, lab.popen, lab.run_dir, ranks=plan.ranks) as generator:
            generator.start()
            time.sleep(1.0)
            faults.drop(lab.name, "h3-l2", 1.0)
            result = generator.result(TIMEOUT_S)
            messages = generator.iterations()
    finally:
        faults.heal(lab.name, "h3-l2")
    assert result["total"]["failed"] > 0
    assert only_job(plan, messages)["duration"]["count"] > 0


def test_the_command(lab: Lab) -> None:
    asked = "--collective ring --bytes 200kb --compute 50ms --jitter 5% --tensor 2"
    argv = [sys.executable, "-m", "cwdp", "lab", "traffic", "--name", lab.name, *asked.split()]
    table = subprocess.run(
        [*argv, "--iterations", "3"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    assert "tensor-nic0-1" in table.stdout
    assert re.search(r"^1 +4 +3 ", table.stdout, re.MULTILINE)
    assert max(map(len, table.stdout.splitlines())) <= 80
    done = subprocess.run(
        [*argv, "--seconds", "1", "--json"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    result = json.loads(done.stdout)
    assert result["collective"] == "ring"
    (job,) = result["jobs"]
    assert job["duration"]["count"] == len(job["iterations"]) > 0
    assert len(job["communicators"]) == len(job["ranks"]) == len(result["flows"]) // 2 == 4


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("", "Give PATTERN or --collective"),
        ("ring --collective ring", "Give PATTERN or --collective"),
        ("ring --compute 5ms --tensor 2", "Give --compute, --tensor only with --collective"),
        ("--collective ring --bytes 1mb --qps 2", "Give --qps only with PATTERN"),
        ("--collective ring", "needs --bytes"),
        ("--collective ring --bytes 1mb --iterations 2 --seconds 1", "exclude each other"),
        ("--collective ring --bytes 1mb --straggler h3", "names no straggler"),
        ("--collective ring --bytes 1mb --stall h3/nic0:50ms", "names no stall"),
        ("--collective ring --bytes 1mb --stall h3/nic0:2s/1s", "a stall of 2000000000 ns every"),
        ("--collective ring --bytes 1mb --straggler h9/nic0:20%", "no rank 'h9/nic0'"),
    ],
)
def test_what_cannot_be_is_refused(lab: Lab, asked: str, complaint: str) -> None:
    argv = [sys.executable, "-m", "cwdp", "lab", "traffic", "--name", lab.name, *asked.split()]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert complaint in done.stderr
