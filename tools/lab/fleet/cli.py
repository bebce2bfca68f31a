"""`cwdp lab fleet`: a manager and agents that stay in a lab."""

from dataclasses import dataclass
from pathlib import Path

import click

from cwdp.errors import ConfigError
from manager.access.listeners import is_loopback
from manager.config import host_port
from tools.lab import parts
from tools.lab.fleet.processes import FLEET
from tools.lab.lab import Lab
from tools.lab.topology import LabSpec

DEFAULT_PAGE = "127.0.0.1:9465"

name_option = click.option("--name", default=LabSpec().name, show_default=True, help="The lab's name.")
page_option = click.option(
    "--page",
    default=DEFAULT_PAGE,
    show_default=True,
    metavar="HOST:PORT",
    help="Where the manager's page is to be had on this machine.",
)
planner_option = click.option(
    "--planner/--no-planner",
    default=True,
    show_default=True,
    help="Whether the manager may move queue pairs by itself.",
)


@dataclass(frozen=True)
class Started:
    """A fleet that has come up, and how long that took."""

    socket: Path
    page_url: str
    after_s: float


def start(name: str, *, planner: bool, page: str) -> Started:
    """Start a fleet that stays.

    Raises:
        ConfigError: the page's address is none of loopback.
        LabError: there is no such lab, a fleet is up in it, or it did not come up.
    """
    require_loopback(page)
    arguments = ["--planner" if planner else "--no-planner", "--page", page]
    up = parts.start(name, FLEET, "tools.lab.fleet.keeper", arguments)
    return Started(Path(up["socket"]), f"http://{page}/", up["after_s"])


def require_loopback(page: str) -> None:
    """Raise `ConfigError` for a page's address that is none of loopback."""
    if not is_loopback(host_port(page, "--page")[0]):
        raise ConfigError(
            f"--page: {page} can be reached from other machines, and who looks at a lab is asked for no token",
            "give one of loopback; from elsewhere: ssh -L 9465:127.0.0.1:9465 MACHINE",
        )


@click.group()
def fleet() -> None:
    """A manager and an agent on each host, which stay until `down`."""


@fleet.command()
@name_option
@planner_option
@page_option
def up(name: str, planner: bool, page: str) -> None:
    """Start a fleet in a lab that is up, and wait until its clocks agree."""
    started = start(name, planner=planner, page=page)
    hosts = len(Lab.open(name).hosts)
    click.echo(
        f"The fleet is up: a manager and {hosts} agents, clocks in agreement after {started.after_s:.1f} s."
    )
    click.echo(f"manager: unix://{started.socket}")
    click.echo(f"page: {started.page_url}")


@fleet.command()
@name_option
def down(name: str) -> None:
    """Stop the fleet of a lab; the lab stays."""
    if parts.stop(name, FLEET):
        click.echo(f"The fleet of the lab {name!r} is gone.")
    else:
        click.echo(f"No fleet stands in the lab {name!r}: nothing to do.")
