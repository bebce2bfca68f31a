"""Has counters of ports grow as the lab's state says, while there is one: `python -m tools.ib.lab.growing NAME`."""

import sys
import time
from collections import defaultdict

import click

from tools.errors import exit_on_error
from tools.ib.lab import state
from tools.ib.lab.console import Console
from tools.ib.lab.state import State
from tools.ib.topology import port_of

TICK_S = 0.25
BEGUN = "begun"
"""What it says first."""

MOST = {"SymbolErrorCounter": 0xFFFF, "PortXmitWait": 0xFFFFFFFF}
"""Where the counters of 16 and 32 bits stay (IBTA volume 1, 16.1.3.5)."""


def run(name: str) -> None:
    """Grow what is to grow. Counters begin at 0, and go on where they were when they grow once more."""
    console = Console(name, state.run_dir(name))
    click.echo(BEGUN)
    counted: defaultdict[tuple[str, str], float] = defaultdict(float)
    before_s = time.monotonic()
    while (known := state.load(name)) is not None:
        now_s = time.monotonic()
        lines = []
        for place, per_s in _growing(known).items():
            counted[place] = min(counted[place] + per_s * (now_s - before_s), MOST[place[1]])
            node, port = port_of(place[0])
            lines.append(f'PerformanceSet "{node}"[{port}] PortCounters.{place[1]}={int(counted[place])}')
        console.tell(*lines)
        before_s = now_s
        time.sleep(TICK_S)


def _growing(known: State) -> dict[tuple[str, str], float]:
    return {
        (end, counter): per_s
        for fault in known.faults.values()
        for end, counters in fault.growing.items()
        for counter, per_s in counters.items()
    }


if __name__ == "__main__":
    with exit_on_error():
        run(sys.argv[1])
