"""`cwdp rdma`: the RDMA devices of this host and what is on them."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from cwdp.cli.local.rdma_probe import mirror, probe
from cwdp.cli.output import emit
from cwdp.errors import ConfigError, RdmaError
from cwdp.rdma import netlink, sysfs, verbs
from cwdp.rdma.sysfs import Port

NONE = "-"
PROC = Path("/proc")

Rows = list[dict[str, Any]]


def _reading(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all commands here share."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.option("--dev", metavar="DEVICE", help="Only this RDMA device.")(command)


@click.group()
def rdma() -> None:
    """The RDMA devices of this host, their ports, and the queue pairs on them."""


rdma.add_command(mirror)
rdma.add_command(probe)


@rdma.command()
@_reading
def device(dev: str | None, as_json: bool) -> None:
    """Show the devices: driver, firmware, and how many queue pairs of how many."""
    rows: Rows = []
    chosen = _chosen(dev)
    drivers = netlink.drivers()
    in_use = Counter(qp.device for qp in netlink.queue_pairs())
    for found in chosen:
        most, _ = _limits(found.device, [])
        rows.append(
            {
                **asdict(found),
                "driver": drivers.get(found.device),
                "queue_pairs": in_use[found.device],
                "max_queue_pairs": most,
            }
        )
    columns = ("device", "driver", "node_type", "firmware", "node_guid", "queue_pairs", "max_queue_pairs")
    _show("devices", rows, columns, as_json=as_json)


@rdma.command()
@_reading
def port(dev: str | None, as_json: bool) -> None:
    """Show the ports: state, link layer, rate, MTU and network interface."""
    rows = []
    chosen = {found.device for found in _chosen(dev)}
    ports = [found for found in sysfs.ports() if found.device in chosen]
    for name in sorted(chosen):
        of_device = [found for found in ports if found.device == name]
        _, mtus = _limits(name, [found.port for found in of_device])
        rows += [_port_row(found, mtus.get(found.port)) for found in of_device]
    columns = ("device", "port", "state", "physical_state", "link_layer", "rate_bps", "mtu_bytes", "netdev")
    _show("ports", rows, columns, as_json=as_json)


@rdma.command()
@_reading
def gid(dev: str | None, as_json: bool) -> None:
    """Show the GIDs: index, address, RoCE version and network interface."""
    rows = _of_chosen(dev, sysfs.gids)
    _show("gids", rows, ("device", "port", "index", "gid", "type", "netdev"), as_json=as_json)


@rdma.command()
@_reading
def counter(dev: str | None, as_json: bool) -> None:
    """Show the counters of every port, as the kernel and the driver name them."""
    rows = _of_chosen(dev, sysfs.counters)
    _show("counters", rows, ("device", "port", "group", "name", "value"), as_json=as_json)


@rdma.command()
@_reading
def qp(dev: str | None, as_json: bool) -> None:
    """Show the queue pairs that exist, and who owns them."""
    rows = _of_chosen(dev, netlink.queue_pairs)
    for row in rows:
        row["comm"] = _comm(row["pid"])
    columns = ("device", "port", "lqpn", "rqpn", "type", "state", "sq_psn", "path_migration", "owner")
    _show("queue_pairs", rows, columns, as_json=as_json)


def _chosen(dev: str | None) -> list[sysfs.Device]:
    """The devices asked for.

    Raises:
        ConfigError: there is none of that name.
        RdmaError: there is none at all.
    """
    found = sysfs.devices()
    names = [device.device for device in found]
    if dev is not None and dev not in names:
        raise ConfigError(f"no RDMA device {dev!r}", f"devices here: {', '.join(names)}")
    return [device for device in found if dev in (None, device.device)]


def _of_chosen(dev: str | None, read: Callable[[], Iterable[Any]]) -> Rows:
    names = {device.device for device in _chosen(dev)}
    return [asdict(entry) for entry in read() if entry.device in names]


def _limits(name: str, ports: list[int]) -> tuple[int | None, dict[int, int]]:
    """What only verbs know; where they cannot say, that is told once on standard error, and left out."""
    try:
        found = verbs.limits(name, ports)
    except RdmaError as error:
        _warn_once(f"{error.message}; queue pair limits and MTUs are not shown\n  {error.hint}")
        return None, {}
    return found.max_queue_pairs, found.active_mtu_bytes


def _warn_once(text: str) -> None:
    meta = click.get_current_context().meta
    if not meta.get(text):
        meta[text] = True
        click.echo(text, err=True)


def _port_row(found: Port, mtu_bytes: int | None) -> dict[str, Any]:
    return {**asdict(found), "mtu_bytes": mtu_bytes}


def _comm(pid: int | None) -> str | None:
    """The name of a process, None where it is gone."""
    try:
        return None if pid is None else (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return None


def _show(name: str, rows: Rows, columns: tuple[str, ...], *, as_json: bool) -> None:
    emit({name: rows}, as_json=as_json, render=lambda: _table(rows, columns))


def _table(rows: Rows, columns: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = any(isinstance(row.get(column), int) for row in rows)
        table.add_column(TITLES.get(column, column), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row, column)) for column in columns))
    return table


def _cell(row: dict[str, Any], column: str) -> str:
    if column == "owner":
        return (
            f"[{row['kernel_owner']}]" if row["kernel_owner"] else f"{row['comm'] or NONE} {row['pid'] or ''}"
        )
    value = row[column]
    if value is None:
        return NONE
    if column == "rate_bps":
        return f"{value / 1e9:g} Gbit/s"
    return f"{value:,}" if column == "value" else str(value)


TITLES = {
    "node_type": "type",
    "node_guid": "GUID",
    "queue_pairs": "QPs",
    "max_queue_pairs": "of",
    "physical_state": "link",
    "link_layer": "layer",
    "rate_bps": "rate",
    "mtu_bytes": "MTU",
    "gid": "GID",
    "lqpn": "QPN",
    "rqpn": "peer",
    "sq_psn": "PSN",
    "path_migration": "migration",
}
