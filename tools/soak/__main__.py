"""`python -m tools.soak`: random faults of all kinds in a lab, and what must hold meanwhile."""

import sys

import click

from cwdp.cli.output import emit
from cwdp.errors import CwdpError
from tools.clocks import ClockKind
from tools.lab import process
from tools.lab.params import CLOCKS
from tools.soak.report import render
from tools.soak.run import soak, spec_for

NAME = "soak"
SHORTEST_MIN = 1.5


@click.command()
@click.option("--minutes", type=click.FloatRange(min=SHORTEST_MIN), default=30.0, show_default=True)
@click.option(
    "--seed", default=1, show_default=True, help="Draws what goes wrong when, and the hosts' clocks."
)
@click.option("--name", default=NAME, show_default=True, help="Of the lab that is raised for it.")
@CLOCKS
@click.option("--calm", is_flag=True, help="No trouble at all: what grows then grows by itself.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(*, minutes: float, seed: int, name: str, clocks: ClockKind, calm: bool, as_json: bool) -> None:
    """Let everything go wrong in a lab, at random. Exit status 1 where something did not hold that must."""
    process.end_on_signals()
    try:
        result = soak(spec_for(name, seed, clocks), minutes, seed, calm=calm)
    except KeyboardInterrupt:
        click.echo("interrupted; the lab is taken away", err=True)
        sys.exit(130)
    except CwdpError as error:
        click.echo(f"{error.message}\n{error.hint}", err=True)
        sys.exit(error.exit_status)
    emit(result, as_json=as_json, render=lambda: render(result))
    sys.exit(1 if result["failed"] else 0)


if __name__ == "__main__":
    main()
