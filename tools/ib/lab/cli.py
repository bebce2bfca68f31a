"""`cwdp lab ib`: a subnet of InfiniBand that stays, from the command line."""

import os

import click

from cwdp.cli.output import emit
from cwdp.errors import LabError
from tools.ib.lab import faults, lifecycle, links, programs, state
from tools.ib.lab import fleet as fleets
from tools.ib.lab import status as report
from tools.ib.lab.state import Spec
from tools.lab.fleet.cli import page_option, require_loopback
from tools.lab.params import RATE

_DEFAULT = Spec()
_name_option = click.option("--name", default=_DEFAULT.name, show_default=True, help="The lab's name.")
_port_option = click.option(
    "--port", type=int, help="Of the node that LINK names first.  [default: all links between the two]"
)


@click.group()
def ib() -> None:
    """Raise, break, mend and remove a subnet of InfiniBand: ibsim's switches and hosts, opensm's routes (needs root)."""


@ib.command()
@_name_option
@click.option("--leaves", default=_DEFAULT.leaves, show_default=True, help="Leaf switches.")
@click.option("--spines", default=_DEFAULT.spines, show_default=True, help="Spine switches.")
@click.option("--hosts", default=_DEFAULT.hosts, show_default=True, help="Hosts per leaf.")
@click.option(
    "--parallel", default=_DEFAULT.parallel, show_default=True, help="Links between a leaf and a spine."
)
@click.option("--lmc", default=_DEFAULT.lmc, show_default=True, help="A host's port owns 2^lmc LIDs.")
@click.option("--engine", default=_DEFAULT.engine, show_default=True, help="Of routes, as opensm names it.")
def up(*, name: str, leaves: int, spines: int, hosts: int, parallel: int, lmc: int, engine: str) -> None:
    """Raise a lab. The same lab twice is one lab."""
    spec = Spec(
        name=name, leaves=leaves, spines=spines, hosts=hosts, parallel=parallel, lmc=lmc, engine=engine
    )
    if lifecycle.up(spec):
        click.echo(f"The InfiniBand lab {name!r} is up: {spec.describe()}.")
    else:
        click.echo(f"The InfiniBand lab {name!r} is already up and complete.")


@ib.command()
@_name_option
def down(name: str) -> None:
    """Remove a lab and all that runs in it."""
    if lifecycle.down(name):
        click.echo(f"The InfiniBand lab {name!r} is gone.")
    else:
        click.echo(f"There is no InfiniBand lab {name!r}: nothing to do.")


@ib.command()
@_name_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str, as_json: bool) -> None:
    """Show a lab's nodes, the links that are not whole, and what does not run."""
    found = report.collect(name)
    emit(found, as_json=as_json, render=lambda: report.render(found))


@ib.command()
@_name_option
@click.argument("link")
@_port_option
def cut(name: str, link: str, port: int | None) -> None:
    """Take the carrier of LINK (h1-l1, l1-s2)."""
    faults.cut(name, link, port)


@ib.command()
@_name_option
@click.argument("link")
@_port_option
@click.option("--width", type=click.Choice([str(lanes) for lanes in faults.WIDTHS]), help="Lanes, of 12.")
@click.option("--speed", type=RATE, help="What a lane carries on the wire: 2.5gbit or 5gbit, not 10gbit.")
def degrade(*, name: str, link: str, port: int | None, width: str | None, speed: int | None) -> None:
    """Have LINK use fewer lanes, or slower ones."""
    if not width and not speed:
        raise click.UsageError("Give --width, --speed, or both.")
    if speed and speed not in faults.SPEEDS:
        raise click.UsageError("--speed is 2.5gbit or 5gbit.")
    faults.degrade(name, link, port, width=int(width or 0), speed_bps=speed or 0)


@ib.command()
@_name_option
@click.argument("link")
@_port_option
@click.option(
    "--rate", type=click.FloatRange(0, 1e5), required=True, help="Symbol errors in a second; 0 ends them."
)
def errors(name: str, link: str, port: int | None, rate: float) -> None:
    """Have the node that LINK names first receive symbol errors on it."""
    faults.grow(name, link, port, faults.SYMBOL_ERRORS, rate)


@ib.command()
@_name_option
@click.argument("link")
@_port_option
@click.option(
    "--rate",
    type=click.FloatRange(0, 1e9),
    required=True,
    help="Ticks of PortXmitWait in a second; 0 ends it.",
)
def congest(name: str, link: str, port: int | None, rate: float) -> None:
    """Have the node that LINK names first wait for credits before it sends on it."""
    faults.grow(name, link, port, faults.WAIT, rate)


@ib.command()
@_name_option
@click.argument("link")
@_port_option
def heal(name: str, link: str, port: int | None) -> None:
    """Undo everything that was done to LINK; what its ports counted stays."""
    faults.heal(name, link, port)


@ib.group()
def fleet() -> None:
    """A manager and agents that read the subnet, which stay until `down`."""


@fleet.command("up")
@_name_option
@click.option(
    "--at", "readers", default=("h1",), multiple=True, show_default=True, help="A host with an agent."
)
@page_option
def fleet_up(name: str, readers: tuple[str, ...], page: str) -> None:
    """Start a fleet in a lab that is up, and wait until its manager knows the subnet."""
    require_loopback(page)
    socket = fleets.start(name, readers, page)
    click.echo(
        f"The fleet is up: a manager, and agents at {', '.join(dict.fromkeys(readers))} that read the subnet."
    )
    click.echo(f"manager: unix://{socket}")
    click.echo(f"page: http://{page}/")


@fleet.command("down")
@_name_option
def fleet_down(name: str) -> None:
    """Stop the fleet of a lab; the lab stays."""
    if fleets.stop(name):
        click.echo(f"The fleet of the InfiniBand lab {name!r} is gone.")
    else:
        click.echo(f"No fleet stands in the InfiniBand lab {name!r}: nothing to do.")


@ib.command("exec", context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(name: str, node: str, command: tuple[str, ...]) -> None:
    """Run COMMAND at NODE (h1, l1, s1): the InfiniBand that it sees is the lab's. `down` ends it too."""
    links.require_node(state.require(name).spec.topology, node)
    try:
        os.execvpe(command[0], command, programs.environment(name, node))  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise LabError(f"cannot run {command[0]!r}: {error.strerror}", "Check its name and path.") from error
