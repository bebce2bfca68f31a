"""`python -m tools.rdma.guest FILE [BEGINNING]`: in the virtual machine, run scenarios and write what happened as JSON.

All are run but those of `BY_NAME`, or those whose names begin so (and what loads the dataplane for them). The file is there once the
fabric is, and is replaced after each scenario, so that what is done is known even when the machine does not live to the end.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from cwdp.errors import CwdpError
from tools.lab.topology import Topology
from tools.rdma.outside import WayOut
from tools.rdma.scenarios import drained, failure, slices, tail_loss, transfers, verbs
from tools.rdma.scenarios.scenario import Bench, Scenario
from tools.rdma.testbed import counters, fabric
from tools.rdma.testbed.fabric import RdmaHost

UD_MESH = "agents by UD"
LOOP = "loop"
FLOWS = "audit: flows"
UPROBES = "uprobes"
SHIM_AGENTS, SHIM_FAILURE, SHIM_JOBS = "shim: agents", "shim: agents, a failure", "shim: agents, two jobs"
SHIM_THOUSAND = "shim: a thousand"
COLLECTIVES, COLLECTIVES_AGENTS = "collectives", "collectives: agents"

LATER = {
    SHIM_AGENTS: "shim_agents",
    SHIM_FAILURE: "shim_failure",
    SHIM_JOBS: "shim_jobs",
    SHIM_THOUSAND: "shim_thousand",
    COLLECTIVES: "collectives.parts",
    COLLECTIVES_AGENTS: "collectives.agents",
    FLOWS: "audits.flows",
    UPROBES: "uprobes",
    UD_MESH: "ud_mesh",
    LOOP: "closed_loop",
}
"""Scenarios whose modules are imported when they are run: that takes an emulated machine half a minute."""

BY_NAME = (SHIM_THOUSAND,)
"""Scenarios that are run where they are asked for only."""


def main() -> int:
    """Run all scenarios; the exit status says whether each could be run, whatever it showed."""
    results, beginning = Path(sys.argv[1]), "".join(sys.argv[2:])
    report: dict[str, Any] = {}
    complete = True
    say("raising the fabric")
    hosts = fabric.up()
    write(results, report)
    with counters.counting(Topology(fabric.LAB)) as counted:
        bench = Bench(hosts[0], hosts[-1], counted, WayOut(results.parent))
        for name, scenario in plan(hosts, beginning):
            say(name)
            report[name] = attempt(scenario, bench)
            complete = complete and "error" not in report[name]
            write(results, report)
    return 0 if complete else 1


def plan(hosts: list[RdmaHost], beginning: str) -> Iterator[tuple[str, Scenario]]:
    """Yield what is to be run, in order."""
    later: list[tuple[str, Scenario]] = [
        (name, partial(run_by_name, module, hosts)) for name, module in LATER.items()
    ]
    for name, scenario in chain(
        failure.without_cwdp(),
        transfers.plan(),
        failure.with_cwdp(),
        tail_loss.plan(),
        verbs.plan(),
        slices.plan(),
        drained.plan(),
        later,
    ):
        is_asked_for = bool(beginning) or name not in BY_NAME
        if is_asked_for and name.startswith((beginning, "dataplane")):
            yield name, scenario


def run_by_name(module: str, hosts: list[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Load what a scenario needs, and run it."""
    found: dict[str, Any] = import_module(f"tools.rdma.scenarios.{module}").run(hosts, bench)
    return found


def attempt(scenario: Callable[[Bench], dict[str, Any]], bench: Bench) -> dict[str, Any]:
    """Run one scenario; what kept it from running is under `error`."""
    try:
        return scenario(bench)
    except (CwdpError, OSError) as error:
        say(f"  {error}")
        return {"error": str(error)}


def write(path: Path, report: dict[str, Any]) -> None:
    """Replace the file of results."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(report, indent=1))
    new.rename(path)


def say(text: str) -> None:
    """Print a line of progress, with the seconds since the machine came up."""
    print(f"[{time.clock_gettime(time.CLOCK_BOOTTIME):4.0f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
