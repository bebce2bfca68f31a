"""`cwdp steer`: which path each queue pair takes, of this host or, through the manager, of any; TCP by `cwdp.cli.local.steer_tcp`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cwdp.cli.client import ManagerClient
from cwdp.cli.local.loaded import require_loaded
from cwdp.cli.local.params import host_option, manager_option, place, require_host
from cwdp.cli.local.steer_tcp import tcp
from cwdp.cli.output import emit
from cwdp.cli.reading import why_option
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.routes import require_routed
from cwdp.dataplane.steering.steering import QpKey, Steer, Steered, Steering, parse_address
from cwdp.rdma.ib.lid import LID_MAX

dev_option = click.option("--dev", required=True, metavar="IF", help="The interface that it leaves by.")
dst_option = click.option("--dst", required=True, metavar="ADDR", help="Destination address.")
qpn_option = click.option("--qpn", required=True, type=int, help="Destination queue pair number.")

TAKES: dict[str | None, str | Text] = {
    "primary": "its path",
    "backup": Text("its backup", "yellow"),
    "unconfirmed": "its own ports",
    None: Text("not yet", "yellow"),
}
"""What a connection does, by its standing."""


@click.group()
def steer() -> None:
    """Which path each queue pair of this host takes, and each TCP connection of the fleet."""


steer.add_command(tcp)


@steer.command("set")
@dev_option
@dst_option
@qpn_option
@click.option(
    "--sport",
    required=True,
    type=int,
    help="UDP source port, which selects the path; over InfiniBand a LID of the far port.",
)
@click.option("--backup", "backup_sport", type=int, help="Source port to take while that path is dead.")
@click.option("--flow-label", is_flag=True, help="IPv6: have the flow label follow the source port.")
@host_option
@why_option
@manager_option
def set_(
    dev: str,
    dst: str,
    qpn: int,
    *,
    host: str | None,
    why: str | None,
    url: str | None,
    **wanted_fields: Any,
) -> None:
    """Steer a queue pair, or move it to another path."""
    require_host(host, why)
    key, sport, backup = QpKey(parse_address(dst), qpn), wanted_fields["sport"], wanted_fields["backup_sport"]
    if host is not None and 0 < sport <= LID_MAX:
        ManagerClient(url).put("/v1/steer", {**_name(host, dev, key), **wanted_fields}, why=why)
        click.echo(f"{place(host, dev)}: {key.dst} QPN {key.qpn} takes the path to LID {sport}")
        return
    wanted = Steer(**wanted_fields)
    if host is not None:
        ManagerClient(url).put("/v1/steer", {**_name(host, dev, key), **wanted_fields}, why=why)
    else:
        ifindex_of(dev)
        with _changing(dev) as steering:
            require_routed(dev, key.dst)
            steering.set(key, wanted)
    backed = "" if backup is None else f", backed up by {backup}"
    click.echo(f"{place(host, dev)}: {key.dst} QPN {key.qpn} leaves from {sport}{backed}")


@steer.command()
@dev_option
@dst_option
@qpn_option
@host_option
@why_option
@manager_option
def unset(dev: str, dst: str, qpn: int, *, host: str | None, why: str | None, url: str | None) -> None:
    """Let a queue pair go where its own source port leads."""
    require_host(host, why)
    key = QpKey(parse_address(dst), qpn)
    if host is not None:
        ManagerClient(url).delete("/v1/steer", _name(host, dev, key), why=why)
    else:
        with _changing(dev) as steering:
            steering.unset(key)
    click.echo(f"{place(host, dev)}: {key.dst} QPN {key.qpn} is not steered any more")


@steer.command("list")
@click.option("--dev", metavar="IF", help="Only this interface.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@host_option
@manager_option
def list_(dev: str | None, as_json: bool, host: str | None, url: str | None) -> None:
    """Show the queue pairs that are steered, and how their paths are.

    With --host also those that no dataplane moves, and TCP connections.
    """
    if host is not None:
        told = ManagerClient(url).get("/v1/steered", {"host": host})
        wanted = {
            kind: [row for row in told.get(kind, ()) if dev in (None, row["nic"])]
            for kind in ("steered", "connections")
        }
        emit(wanted, as_json=as_json, render=lambda: _render_all_wanted(host, **wanted))
        return
    tree.require_privileges()
    if dev is not None:
        require_loaded(dev)
    rows: list[dict[str, Any]] = []
    for where in tree.trees_here():
        if dev in (None, where.ifname):
            loader.inspect(where)
            with Maps(where) as maps:
                rows += [_row(where.ifname, steered) for steered in Steering(maps).listed()]
    emit({"steered": rows}, as_json=as_json, render=lambda: _render(rows))


def _name(host: str, ifname: str, key: QpKey) -> dict[str, str | int]:
    """A queue pair as the manager names it."""
    return {"host": host, "nic": ifname, "dst": str(key.dst), "qpn": key.qpn}


@contextmanager
def _changing(ifname: str) -> Iterator[Steering]:
    with tree.locked(), Maps(require_loaded(ifname)) as maps:
        yield Steering(maps)


def _row(ifname: str, steered: Steered) -> dict[str, Any]:
    backup_state = steered.backup_state
    return {
        "ifname": ifname,
        "dst": str(steered.key.dst),
        "qpn": steered.key.qpn,
        "sport": steered.steer.sport,
        "sport_state": steered.primary_state.name.lower(),
        "backup_sport": steered.steer.backup_sport,
        "backup_state": None if backup_state is None else backup_state.name.lower(),
        "flow_label": steered.steer.flow_label,
        "set_by": "agent" if steered.steer.managed else "hand",
    }


def _render_all_wanted(
    host: str, steered: list[dict[str, Any]], connections: list[dict[str, Any]]
) -> RenderableType:
    parts: list[RenderableType] = [_render_wanted(steered)] if steered else []
    parts += [_render_connections(connections)] if connections else []
    return Group(*parts) if parts else f"nothing of {escape(host)} is to be steered"


def _render_connections(rows: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    table.add_column("CONNECTION", overflow="fold")
    for name in ("PORT", "BACKUP"):
        table.add_column(name, no_wrap=True, justify="right")
    for name in ("SET BY", "TAKES"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        backup = row["backup_sport"]
        table.add_row(
            Text(row["connection"]),
            str(row["sport"]),
            "-" if backup is None else str(backup),
            row["set_by"],
            TAKES[row["standing"]],
        )
    return table


def _render_wanted(rows: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for name in ("NIC", "DESTINATION"):
        table.add_column(name, no_wrap=True)
    for name in ("QPN", "PORT", "BACKUP"):
        table.add_column(name, no_wrap=True, justify="right")
    for name in ("SET BY", "MOVED BY", ""):
        table.add_column(name, no_wrap=True)
    for row in rows:
        backup = row["backup_sport"]
        table.add_row(
            Text(row["nic"]),
            row["dst"],
            str(row["qpn"]),
            str(row["sport"]),
            "-" if backup is None else str(backup),
            row["set_by"],
            row["actuator"],
            Text("refused" if row["refused"] else "", "red"),
        )
    return table


def _render(rows: list[dict[str, Any]]) -> RenderableType:
    if not rows:
        return "no queue pair is steered here; `cwdp steer set` steers one"
    table = Table(box=None, pad_edge=False)
    for name in ("NIC", "DESTINATION"):
        table.add_column(name, no_wrap=True)
    for name in ("QPN", "PORT"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("PATH", no_wrap=True)
    table.add_column("BACKUP", no_wrap=True, justify="right")
    for name in ("PATH", "SET BY"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        backup = row["backup_sport"]
        table.add_row(
            row["ifname"],
            row["dst"],
            str(row["qpn"]),
            str(row["sport"]),
            row["sport_state"],
            "-" if backup is None else str(backup),
            row["backup_state"] or "-",
            row["set_by"],
        )
    return table
