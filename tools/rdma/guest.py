"""`python -m tools.rdma.guest FILE`: inside the virtual machine, run every scenario and write what happened as JSON.

The file is replaced after each scenario, so that what is done is known even when the machine does not live to the end.
"""

import json
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from cwdp.errors import CwdpError
from tools.lab.topology import Topology
from tools.rdma import counters, fabric, scenarios, slicing, story, verbs
from tools.rdma.scenarios import Bench


def main() -> int:
    """Run all scenarios; the exit status says whether each could be run, whatever it showed."""
    results = Path(sys.argv[1])
    report: dict[str, Any] = {}
    complete = True
    say("raising the fabric")
    hosts = fabric.up()
    with counters.counting(Topology(fabric.LAB)) as counted:
        bench = Bench(hosts[0], hosts[-1], counted)
        for name, scenario in chain(
            story.without_cwdp(), scenarios.plan(), story.with_cwdp(), verbs.plan(), slicing.plan()
        ):
            say(name)
            report[name] = attempt(scenario, bench)
            complete = complete and "error" not in report[name]
            write(results, report)
    return 0 if complete else 1


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
