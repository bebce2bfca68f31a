"""Jobs as the manager infers them from when their queue pairs send, beside what their ranks say."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import lab_name

from cwdp.cli import main
from tools.lab import Lab, LabSpec, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.roce import Communicator, Generator, collective_result, plan_collective
from tools.roce.collective.plan import Plan, rank_ends
from tools.roce.flows import largest_mtu
from tools.roce.process import PROGRAM
from tools.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.needs(PROGRAM), pytest.mark.timeout(300)]

COMPUTE_MS = {"first": 300, "second": 420}
MEMBERS = {"first": ("h1", "h3", "h5", "h7"), "second": ("h2", "h4", "h6", "h8")}
STRAGGLER = "h6/nic0"
SEEN_S = 32.0
"""What is inferred looks back for 30 s."""

TIMEOUT_S = 60.0
PATIENT_NS = 1_000_000_000


@pytest.fixture
def lab() -> Iterator[Lab]:
    name = lab_name("jobs")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=4, spines=2))
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)


def plan_for(lab: Lab) -> Plan:
    communicators = [
        Communicator(
            name=name,
            collective="ring",
            ranks=tuple(f"{host}/nic0" for host in MEMBERS[name]),
            buffer_bytes=200_000,
            compute_ns=compute_ms * 10**6,
        )
        for name, compute_ms in COMPUTE_MS.items()
    ]
    return plan_collective(
        rank_ends(lab.topology),
        communicators,
        jitter=0.03,
        stragglers={STRAGGLER: 0.2},
        mtu=largest_mtu(lab.spec.mtu),
        timeout_ns=PATIENT_NS,
    )


def asked(fleet: Fleet, *arguments: str) -> Any:
    """The jobs that `cwdp job` tells of; none while no manager answers yet."""
    fleet.check()
    result = CliRunner().invoke(main, ["job", *arguments, "--json", "--manager", f"unix://{fleet.socket}"])
    return json.loads(result.output)["jobs"] if result.exit_code == 0 else []


def test_jobs_are_told_apart_with_their_iterations_and_who_is_late(lab: Lab) -> None:
    plan = plan_for(lab)
    with Fleet(lab) as fleet, Generator(plan.flows, lab.popen, lab.run_dir, ranks=plan.ranks) as generator:
        generator.start()
        assert wait_for(lambda: len(asked(fleet)) == 2, TIMEOUT_S, poll_s=1.0)
        time.sleep(SEEN_S)
        rows = {row["name"]: asked(fleet, row["name"])[0] for row in asked(fleet)}
        why = CliRunner().invoke(main, ["why", "h2", "--json", "--manager", f"unix://{fleet.socket}"]).output
        shown = CliRunner().invoke(main, ["job", "--manager", f"unix://{fleet.socket}"]).output
        generator.stop()
        told = collective_result(plan, generator.iterations())["jobs"]
    assert set(rows) == {"h1", "h2"}
    for row, name, truth in zip((rows["h1"], rows["h2"]), MEMBERS, told, strict=True):
        assert row["is_inferred"]
        (communicator,) = row["communicators"]
        assert communicator == {"kind": "ring", "nics": [f"{host}/nic0" for host in MEMBERS[name]]}
        assert row["iterations"] > 20
        # The median: a packet that is lost holds one iteration up for as long as the timer of its queue pair.
        lasted_ns = [each["duration_ns"] for each in truth["iterations"][-row["iterations"] :]]
        inferred_ns = [later - earlier for earlier, later in pairwise(row["starts_ns"])]
        assert median(inferred_ns) == pytest.approx(median(lasted_ns), rel=0.02)
    assert rows["h1"]["stragglers"] == []
    assert [one["nic"] for one in rows["h2"]["stragglers"]] == [STRAGGLER]
    assert rows["h2"]["stragglers"][0]["late_ns"] == pytest.approx(0.2 * COMPUTE_MS["second"] * 1e6, rel=0.3)
    assert STRAGGLER in shown
    causes = json.loads(why)["causes"]
    assert ("compute", STRAGGLER) in {(each["kind"], each["rank"]) for each in causes}
    assert all(each["rank"] == STRAGGLER for each in causes if each["kind"] == "compute")
