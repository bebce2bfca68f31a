"""`cwdp manager`: the service that decides for all hosts."""

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table

from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show
from cwdp.shared.service import hold_little_memory, log_to_stderr, switch_often
from manager.config import (
    DEFAULT_BUS_LISTEN,
    DEFAULT_PAGE,
    DEFAULT_SOCKET,
    DEFAULT_STATE_DIR,
    ManagerConfig,
    load,
)
from manager.service import serve

_DONE = {
    "moved": "moved for room",
    "rerouted": "moved off dead links",
    "backed_up": "given a way round",
    "released": "let go of, idle",
    "adopted": "taken up from another manager",
    "refused": "not steered by their host",
    "held_back": "moves held back by a limit",
    "no_way_round": "without any way round",
}


@click.group()
def manager() -> None:
    """The service that decides for all hosts."""


@manager.command()
@click.option("--config", type=click.Path(path_type=Path), help="Settings in TOML; options override them.")
@click.option("--nats", metavar="URL", help="Use this bus instead of starting a private nats-server.")
@click.option(
    "--bus-listen",
    metavar="HOST:PORT",
    help=f"Where the private nats-server listens; {DEFAULT_BUS_LISTEN} unless set.",
)
@click.option("--listen", metavar="HOST:PORT", help="Serve the API here too; beyond loopback by HTTPS.")
@click.option(
    "--page", metavar="HOST:PORT", help=f"Serve the page here, '' for nowhere; {DEFAULT_PAGE} unless set."
)
@click.option("--socket", metavar="PATH", help=f"The unix socket for HTTP; {DEFAULT_SOCKET} unless set.")
@click.option(
    "--state-dir", metavar="DIR", help=f"What must outlive a restart; {DEFAULT_STATE_DIR} unless set."
)
def run(config: Path | None, **overrides: str | None) -> None:
    """Run the manager in the foreground until SIGTERM or ctrl-c."""
    settings = load(config) if config is not None else ManagerConfig()
    given = {name: value for name, value in overrides.items() if value is not None}
    settings = msgspec.structs.replace(settings, **given)
    log_to_stderr(settings.log_level)
    hold_little_memory()
    switch_often()
    asyncio.run(serve(settings))


@manager.command()
@reading
def status(url: str | None, as_json: bool, watch: float | None) -> None:
    """Show which manager leads, and what it does about queue pairs by itself."""
    client = ManagerClient(url)
    show(lambda: client.get("/v1/manager"), _table, as_json=as_json, watch_s=watch)


def _table(answer: Any) -> Table:
    """Who leads, and the planner."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    planner = answer["planner"]
    leads = "leads" if answer["leads"] else f"waits; {answer['leader'] or 'nobody'} leads"
    table.add_row("manager", f"{answer['name']}: {leads}")
    table.add_row("hosts", f"{answer['hosts_up']} up")
    for pod in answer["pods"] if len(answer["pods"]) > 1 else ():
        is_root = ", the root" if pod["pod"] == answer["root"] else ""
        table.add_row(f"pod {pod['pod']}", f"{pod['hosts_up']} hosts up; {pod['leader']} leads{is_root}")
    table.add_row("planner", _state(answer))
    table.add_row("queue pairs", f"{planner['queue_pairs']} send, {planner['steered']} are steered")
    table.add_row("ways round", f"{planner['backed_up']} ready")
    table.add_row("fullest link", f"{planner['fullest_link_share']:.0%} of what it carries, as planned")
    table.add_row("dead links", ", ".join(planner["dead_links"]) or "none")
    for name, meaning in _DONE.items():
        table.add_row(meaning, str(planner["totals"][name]))
    return table


def _state(answer: Any) -> str:
    if not answer["planner"]["enabled"]:
        return "off"
    return "on" if answer["leads"] else "the leader's business"
