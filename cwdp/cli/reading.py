"""What all commands that read from the manager share: their options, and showing once or again and again."""

import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import click
from rich.console import RenderableType
from rich.live import Live

from cwdp.cli.output import console, emit
from cwdp.shared.identity.why import read_why

DEFAULT_WATCH_S = 1.0

_P = ParamSpec("_P")
_R = TypeVar("_R")


manager_option = click.option(
    "--manager",
    "url",
    envvar="CWDP_MANAGER",
    metavar="URL",
    help="unix:///PATH or https://HOST:PORT; else the only manager on this host.",
)


def _read_why(_context: click.Context, _option: click.Parameter, given: str) -> str | None:
    return read_why(given)


why_option = click.option(
    "--why",
    default="",
    metavar="TEXT",
    callback=_read_why,
    help="What it is for; history keeps it with the change.",
)


def reading(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """The options that they share."""
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
        manager_option,
    ):
        command = option(command)
    return command


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
