"""A host of a lab whose processor is taken: its processes get less of it, and see themselves wait."""

import sys
import time
from collections.abc import Iterator

import pytest

from cwdp.agent.programs.waits import processor_waits_ns
from cwdp.errors import LabError
from tools.lab import Lab, LabSpec, lifecycle, processor

pytestmark = pytest.mark.lab

SPIN = """
import os, sys, time
from cwdp.agent.programs.waits import processor_waits_ns
if len(sys.argv) > 1:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
sys.stdin.readline()
before_ns, ends_s = processor_waits_ns(), time.monotonic() + 2.0
while time.monotonic() < ends_s:
    pass
print((processor_waits_ns() - before_ns) / 2e9, time.process_time())
"""


@pytest.fixture
def lab(spare_name: str) -> Iterator[Lab]:
    lifecycle.up(LabSpec(name=spare_name, leaves=2, spines=1, hosts_per_leaf=1))
    try:
        yield Lab.open(spare_name)
    finally:
        lifecycle.down(spare_name)


def spin(lab: Lab, host: str, left: float | None, *arguments: str) -> tuple[float, float]:
    """The share of two seconds in which a busy program waited, and what it had of the processor, in seconds."""
    started = lab.popen(host, [sys.executable, "-c", SPIN, *arguments], stdin=-1, stdout=-1, text=True)
    time.sleep(0.5)
    processor.limit(lab.name, host, left)
    out, _ = started.communicate("\n", timeout=30)
    waited, had_s = map(float, out.split())
    return waited, had_s


@pytest.mark.parametrize("arguments", [(), ("real time",)])
def test_programs_of_a_host_have_what_is_left_and_see_that_they_wait(
    lab: Lab, arguments: tuple[str, ...]
) -> None:
    waited, had_s = spin(lab, "h1", 0.05, *arguments)
    assert waited > 0.6
    assert had_s < 0.8
    _, had_again_s = spin(lab, "h1", None, *arguments)
    assert had_again_s > 2 * had_s


def test_other_hosts_and_the_machine_see_nothing_of_it(lab: Lab) -> None:
    idle = lab.popen(
        "h2", [sys.executable, "-c", SPIN.replace("pass", "time.sleep(0.1)")], stdin=-1, stdout=-1
    )
    before_ns = processor_waits_ns()
    spin(lab, "h1", 0.05)
    out, _ = idle.communicate(b"\n", timeout=30)
    assert float(out.split()[0]) < 0.5
    assert processor_waits_ns() != before_ns
    assert processor.used_s(lab.name, "h2") < 2.0


def test_what_cannot_be_starved_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="is no host"):
        processor.limit(lab.name, "l1", 0.1)
    with pytest.raises(LabError, match="nothing runs on 'h1'"):
        processor.limit(lab.name, "h1", 0.1)
