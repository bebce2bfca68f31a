"""`cwdp fleet`: which hosts are let onto the bus, who may ask managers by TCP, and the authority that says so."""

import time
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.cluster import access
from cwdp.cli.reading import manager_option, reading, show, why_option
from cwdp.cli.times import shown_time
from cwdp.errors import ConfigError, IdentityError
from manager.bus.server_config import Cluster, write_config
from manager.config import ManagerConfig, host_port
from manager.identity.authority import FILE, Authority

_directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=ManagerConfig().authority_dir,
    show_default=True,
    help="Where the authority is kept.",
)


@click.group()
def fleet() -> None:
    """Which hosts are let onto the bus, and who may ask managers by TCP."""


for _command in access.COMMANDS:
    fleet.add_command(_command)


@fleet.command()
@_directory_option
def init(directory: Path) -> None:
    """Make the fleet's authority: the keys that sign for its managers, hosts and bus servers.

    A manager with a bus of its own makes one itself. With several managers, make it once and copy DIR to each.
    """
    if (directory / FILE).exists():
        raise IdentityError(
            f"there is an authority in {directory} already",
            "it stays as it is: all that it has signed would be lost with it",
        )
    Authority.new().save(directory)
    click.echo(f"wrote {directory / FILE}: keep a copy where nobody else can read it")


@fleet.command()
@click.argument("name")
@_directory_option
@click.option("--listen", required=True, metavar="HOST:PORT", help="Where agents and managers reach it.")
@click.option("--cluster", metavar="HOST:PORT", help="Where the other servers of its cluster reach it.")
@click.option("--route", "routes", multiple=True, metavar="HOST:PORT", help="Where it reaches each of them.")
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/cwdp-bus"),
    show_default=True,
    help="Where the directory will lie on the server's machine.",
)
def server(
    name: str, directory: Path, *, listen: str, cluster: str | None, routes: tuple[str, ...], home: Path
) -> None:
    """Write what the bus server NAME is configured with into the directory ./NAME: copy it to its machine."""
    for address in (listen, *routes, *([cluster] if cluster else [])):
        host_port(address, "an address")
    if bool(cluster) != bool(routes):
        raise ConfigError(
            "--cluster and --route go together", "give both for one of several servers, or neither"
        )
    place = Cluster(name, cluster, routes) if cluster else None
    path = write_config(listen, Path(name), Authority.load(directory), place, home=home)
    click.echo(f"wrote {path.parent}: copy it to {home} there, and run: nats-server -c {home / path.name}")


@fleet.command()
@click.argument("host")
@click.option("--bus", metavar="URL", help="Where the host reaches the bus, if not as the manager does.")
@click.option("--hours", type=float, default=24.0, show_default=True, help="How long the token is good.")
@why_option
@manager_option
def invite(host: str, bus: str | None, hours: float, *, why: str | None, url: str | None) -> None:
    """Print a token by which HOST may join, once: `cwdp agent join TOKEN`."""
    wanted = {"host": host, "bus": bus, "hours": hours}
    answer = ManagerClient(url).put("/v1/credential", wanted, why=why)
    click.echo(answer["token"])


@fleet.command()
@click.argument("host")
@why_option
@manager_option
def revoke(host: str, why: str | None, url: str | None) -> None:
    """Let HOST onto the bus no more, at once, nor join. Its packets flow on as they did last."""
    answer = ManagerClient(url).delete("/v1/credential", {"host": host}, why=why)
    if not answer["keys"]:
        click.echo(f"{host} may not join: its token counts no more")
        return
    keys = "its key counts" if answer["keys"] == 1 else f"its {answer['keys']} keys count"
    click.echo(f"{host} is off the bus: {keys} no more")


@fleet.command("rotate-keys")
@why_option
@manager_option
def rotate_keys(why: str | None, url: str | None) -> None:
    """Replace the key that probes are signed with, without losing one; `cwdp event` tells when it is done."""
    answer = ManagerClient(url).put("/v1/credential/keys", {}, why=why)
    click.echo(f"a new key is on its way to {answer['hosts']} hosts")


@fleet.command()
@reading
def hosts(url: str | None, as_json: bool, watch: float | None) -> None:
    """List the hosts that have joined, and those that may."""
    client = ManagerClient(url)
    show(lambda: client.get("/v1/credential"), _table, as_json=as_json, watch_s=watch)


def _table(answer: Any) -> Table:
    table = tables.new_table("host", "pod", "state", "ends", "left")
    for row in answer["hosts"]:
        left_days = (row["expires_s"] - time.time()) / 86_400
        table.add_row(
            row["host"], row["pod"], row["state"], shown_time(row["expires_s"]), f"{left_days:.1f} days"
        )
    return table
