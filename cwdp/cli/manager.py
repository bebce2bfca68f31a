"""`cwdp manager`: the service that decides for all hosts."""

import asyncio
from pathlib import Path

import click
import msgspec

from cwdp.cli import manager_table
from cwdp.cli.client import ManagerClient
from cwdp.cli.read import reading, show
from cwdp.shared.service import log_to_stderr
from manager.config import DEFAULT_BUS_LISTEN, DEFAULT_SOCKET, DEFAULT_STATE_DIR, ManagerConfig, load
from manager.service import serve


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
@click.option("--listen", metavar="HOST:PORT", help="Serve HTTP here too, for Prometheus for instance.")
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
    asyncio.run(serve(settings))


@manager.command()
@reading
def status(url: str | None, as_json: bool, watch: float | None) -> None:
    """Show which manager leads, and what it does about queue pairs by itself."""
    client = ManagerClient(url)
    show(lambda: client.get("/v1/manager"), manager_table.status, as_json=as_json, watch_s=watch)
