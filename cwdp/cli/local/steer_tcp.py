"""`cwdp steer tcp`: which paths a TCP connection takes, both ways, by way of the manager."""

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import click

from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import manager_option, why_option
from cwdp.shared.bus.messages import nic_id

PATH = "/v1/steer/tcp"

_P = ParamSpec("_P")
_R = TypeVar("_R")


def connection_argument(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """The connection's name, in one word or in three."""
    return click.argument("words", metavar="END - END", nargs=-1, required=True)(command)


@click.group()
def tcp() -> None:
    """Which paths a TCP connection of the fleet takes.

    A connection is named as `cwdp tcp` shows it, such as h1/nic0:41556 - h3/nic0:5201.
    """


@tcp.command("set")
@connection_argument
@click.option("--sport", required=True, type=int, help="Source port of the path from the end named first.")
@click.option("--backup", "backup_sport", type=int, help="Source port to take while that path is dead.")
@click.option("--back-sport", type=int, help="Source port of the path back; else of one over the same links.")
@click.option(
    "--back-backup",
    "back_backup_sport",
    type=int,
    help="Of its backup; else of one over the links of --backup.",
)
@why_option
@manager_option
def set_(words: tuple[str, ...], why: str | None, url: str | None, **wanted: int | None) -> None:
    """Steer a connection at both its ends, or move it; the planner leaves it alone from then on."""
    told = ManagerClient(url).put(PATH, {"connection": " ".join(words), **wanted}, why=why)
    near, far = told["near"], told["far"]
    click.echo(f"{_name(near)} - {_name(far)} leaves from {_path(near)}; comes back from {_path(far)}")


@tcp.command()
@connection_argument
@why_option
@manager_option
def unset(words: tuple[str, ...], why: str | None, url: str | None) -> None:
    """Leave a connection to the planner again."""
    name = " ".join(words)
    ManagerClient(url).delete(PATH, {"connection": name}, why=why)
    click.echo(f"{name} is left to the planner")


def _name(end: Mapping[str, Any]) -> str:
    return f"{nic_id(end['host'], end['nic'])}:{end['port']}"


def _path(end: Mapping[str, Any]) -> str:
    backup = end["backup_sport"]
    return f"{end['sport']}" if backup is None else f"{end['sport']}, backed up by {backup}"
