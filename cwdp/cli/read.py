"""The commands that read from the manager: `cwdp clock`, `cwdp owd`, `cwdp host`, `cwdp event`."""

import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import click
from rich.console import RenderableType
from rich.live import Live

from cwdp.cli import clock_table, tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.output import console, emit, rows_that_fit
from cwdp.cli.times import TIME
from cwdp.errors import ManagerError

DEFAULT_WATCH_S = 1.0

_P = ParamSpec("_P")
_R = TypeVar("_R")


def reading(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """The options that all commands here share."""
    for option in (
        click.option(
            "--watch",
            type=click.FloatRange(min=0.1),
            is_flag=False,
            flag_value=DEFAULT_WATCH_S,
            metavar="[SECONDS]",
            help="Show it anew every so often, until ctrl-c.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
        click.option(
            "--manager",
            "url",
            envvar="CWDP_MANAGER",
            metavar="URL",
            help="unix:///PATH or http://HOST:PORT; else the only manager on this host.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@reading
def clock(url: str | None, as_json: bool, watch: float | None) -> None:
    """Show every host's clock against the timeline.

    The offset is the timeline minus the host's clock, and lies within the bound of the truth. The discipline is what
    chrony and its like do to CLOCK_MONOTONIC, which is taken out: its rate, how often that changed, how long ago.
    """
    client = ManagerClient(url)
    show(lambda: client.get("/v1/clock"), clock_table.clock, as_json=as_json, watch_s=watch)


@click.command()
@click.option("--src", default="", metavar="HOST[/NIC]", help="Only paths from here.")
@click.option("--dst", default="", metavar="HOST[/NIC]", help="Only paths to there.")
@click.option("--sort", type=click.Choice(["worst", "name"]), default="worst", show_default=True)
@click.option(
    "--limit", type=click.IntRange(min=0), help="Show so many paths, 0 for all; else what fits the terminal."
)
@reading
def owd(
    *,
    src: str,
    dst: str,
    sort: str,
    limit: int | None,
    url: str | None,
    as_json: bool,
    watch: float | None,
) -> None:
    """Show the one-way delay of every path, there (>) and back (<), over the last seconds."""
    client = ManagerClient(url)
    if limit is None:
        limit = 0 if as_json else rows_that_fit(lines_each=2)
    query: dict[str, str | int] = {"src": src, "dst": dst, "sort": sort, "limit": limit}
    show(lambda: client.get("/v1/owd", query), tables.owd, as_json=as_json, watch_s=watch)


@click.command()
@click.argument("name", default="")
@reading
def host(name: str, url: str | None, as_json: bool, watch: float | None) -> None:
    """Show hosts and their interfaces; one host with all its counters when NAME is given."""
    client = ManagerClient(url)

    def fetch() -> Any:
        answer = client.get("/v1/host", {"name": name})
        if name and not answer["hosts"]:
            raise ManagerError(f"the manager knows no host {name!r}", "`cwdp host` lists those that it knows")
        return answer

    show(fetch, tables.one_host if name else tables.hosts, as_json=as_json, watch_s=watch)


@click.command()
@click.option("--host", "name", default="", metavar="HOST", help="Only of this host.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only of this kind; may be given again.")
@click.option(
    "--since", type=TIME, metavar="TIME", help="Only since 15m or 3d ago, 17:05, '2026-11-22 17:05'."
)
@click.option("--until", type=TIME, metavar="TIME", help="Only until then.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=1_000, show_default=True, help="The newest.")
@reading
def event(
    *,
    name: str,
    kinds: tuple[str, ...],
    since: float | None,
    until: float | None,
    limit: int,
    url: str | None,
    as_json: bool,
    watch: float | None,
) -> None:
    """Show what happened: links, paths, clocks, agents, queue pairs moved, operators' changes."""
    client = ManagerClient(url)
    query: dict[str, str | int] = {"host": name, "limit": limit}
    if kinds:
        query["kind"] = ",".join(kind.replace(" ", "_") for kind in kinds)
    query |= {key: str(time_s) for key, time_s in (("since", since), ("until", until)) if time_s is not None}
    show(lambda: client.get("/v1/events", query), tables.events, as_json=as_json, watch_s=watch)


def show(
    fetch: Callable[[], Any],
    render: Callable[[Any], RenderableType],
    *,
    as_json: bool,
    watch_s: float | None,
) -> None:
    """Print once, or again and again: JSON documents one after the other, tables in place."""
    if watch_s is None:
        data = fetch()
        emit(data, as_json=as_json, render=lambda: render(data))
    elif as_json:
        while True:
            emit(fetch(), as_json=True, render=lambda: "")
            time.sleep(watch_s)
    else:
        with Live(render(fetch()), console=console(), auto_refresh=False, screen=False) as live:
            while True:
                time.sleep(watch_s)
                live.update(render(fetch()), refresh=True)
