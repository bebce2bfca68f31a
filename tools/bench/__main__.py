"""`python -m tools.bench [PART ...]`: one JSON line per figure; without a part, all of them."""

import importlib
import json

import click

from cwdp.cli.output import progress
from tools.lab.process import end_on_signals

PARTS = {
    "clock": "clocks.synchronisation",
    "changing": "clocks.changing",
    "programs": "programs",
    "dataplane": "dataplane",
    "tcp": "packet_costs.tcp",
    "agent": "agent",
    "lab": "lab",
    "slices": "slices",
    "failover": "failover",
    "liveness": "liveness",
    "faults": "faults",
    "ib-faults": "ib.faults",
    "ib-known": "ib.known",
    "fabric": "fabric",
    "qp": "qp",
    "placement": "placement.plans",
    "planner": "placement.steps",
    "history": "history",
    "audit": "audit.judging",
    "throughput": "audit.throughput",
    "page": "page.costs",
    "viewers": "page.period",
    "takeover": "bus.takeover",
    "swarm": "swarm.figures",
    "jobs": "swarm.inference",
    "moves": "bus.moves",
    "verbs": "verbs",
    "shim": "shim",
    "nccl": "collectives.plugin",
    "uprobes": "collectives.uprobes",
}
"""Their modules in here."""

NICS_A_HOST = 8
"""Of a swarm."""


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--nics", type=click.IntRange(16), help="Of the swarm; of two sizes by default.")
@click.option("--pods", type=click.IntRange(1, 16), default=1, help="Into which the swarm is divided.")
def main(parts: tuple[str, ...], nics: int | None, pods: int) -> None:
    """Measure PARTS and print their figures."""
    if pods > 1 and (nics is None or nics % (pods * NICS_A_HOST) or nics < 2 * pods * NICS_A_HOST):
        raise click.UsageError(
            f"--pods {pods} takes --nics of two hosts a pod or more, {NICS_A_HOST} NICs each"
        )
    end_on_signals()
    for part in parts or PARTS:
        progress(f"measuring: {part}")
        options = {"nics": nics, "pods": pods} if part == "swarm" else {}
        for figure in importlib.import_module(f"tools.bench.{PARTS[part]}").figures(**options):
            click.echo(json.dumps(figure))


if __name__ == "__main__":
    main()
