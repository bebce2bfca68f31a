"""`cwdp agent`: the service on each host."""

import asyncio
from pathlib import Path

import click
import msgspec

from cwdp.agent import service
from cwdp.agent.config import DEFAULT_CONFIG, DEFAULT_CREDENTIAL, read_config
from cwdp.agent.joining import join as ask_to_join
from cwdp.dataplane.pinned.tree import require_privileges
from cwdp.shared.identity import joining
from cwdp.shared.service import log_to_stderr


@click.group()
def agent() -> None:
    """The service on each host."""


@agent.command()
@click.option("--config", type=click.Path(path_type=Path), default=DEFAULT_CONFIG, show_default=True)
@click.option("--nats", metavar="URL", help="The bus, instead of the one in the configuration.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def run(config: Path, nats: str | None, log_level: str) -> None:
    """Keep the dataplane loaded, send probes, fit edges, follow the timeline."""
    require_privileges()
    log_to_stderr(log_level)
    settings = read_config(config)
    service.run(msgspec.structs.replace(settings, nats=nats) if nats else settings)


@agent.command()
@click.argument("token")
@click.option(
    "--credential",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_CREDENTIAL,
    show_default=True,
    help="Where to keep it.",
)
def join(token: str, credential: Path) -> None:
    """Join the fleet with the TOKEN that `cwdp fleet invite` printed: have a key made here signed."""
    invitation = joining.read(token)
    asyncio.run(ask_to_join(invitation)).save(credential)
    click.echo(f"{invitation.host} has joined: wrote {credential}; the bus is at {invitation.bus}")
