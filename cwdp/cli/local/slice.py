"""`cwdp slice`: bandwidth slices of this host's interfaces or, through the manager, of any host's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from pyroute2 import IPRoute
from rich.console import RenderableType
from rich.table import Table

from cwdp.cli.client import ManagerClient
from cwdp.cli.local.loaded import require_loaded
from cwdp.cli.local.params import host_option, manager_option, place, require_host
from cwdp.cli.output import emit
from cwdp.cli.reading import why_option
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.shared.config import read_document
from cwdp.shared.rates import format_rate
from cwdp.shared.slices import SliceSet
from cwdp.slices.slicing import Listed, Slicing

dev_option = click.option("--dev", required=True, metavar="IF", help="The interface that they are slices of.")
REST = "(the rest)"


@click.group(name="slice")
def slice_() -> None:
    """Bandwidth slices of interfaces."""


@slice_.command()
@click.argument("file", type=click.Path(path_type=Path))
@dev_option
@click.option(
    "--link-rate", metavar="RATE", help="Of the link, in place of the file's and of what the driver says."
)
@host_option
@why_option
@manager_option
def apply(
    file: Path, dev: str, link_rate: str | None, *, host: str | None, why: str | None, url: str | None
) -> None:
    """Have exactly the slices of FILE (TOML, or JSON by its name) on an interface."""
    require_host(host, why)
    wanted = read_document(file, SliceSet)
    if link_rate is not None:
        wanted = msgspec.structs.replace(wanted, link_rate=link_rate)
    count = f"{len(wanted.slice)} slice{'' if len(wanted.slice) == 1 else 's'}"
    if host is not None:
        override = {"host": host, "nic": dev, "wanted": msgspec.to_builtins(wanted)}
        ManagerClient(url).put("/v1/slice", override, why=why)
        click.echo(f"{place(host, dev)}: {count} wanted; what the host refuses becomes an event")
        return
    ifindex_of(dev)
    with tree.locked(), _opened(require_loaded(dev)) as slicing:
        if not wanted.slice:
            click.echo(f"{dev}: {slicing.delete().value}")
            return
        slicing.apply(wanted)
        enforcer, link_bps = slicing.enforcer.name.lower(), slicing.link_bps
    click.echo(f"{dev}: {count} of {format_rate(link_bps)}, held by {enforcer}")


@slice_.command()
@dev_option
@host_option
@why_option
@manager_option
def delete(dev: str, host: str | None, why: str | None, url: str | None) -> None:
    """Have no slices on an interface any more."""
    require_host(host, why)
    if host is not None:
        ManagerClient(url).delete("/v1/slice", {"host": host, "nic": dev}, why=why)
        click.echo(f"{place(host, dev)}: no slices wanted any more")
        return
    ifindex_of(dev)
    with tree.locked(), _opened(require_loaded(dev)) as slicing:
        deletion = slicing.delete()
    click.echo(f"{dev}: {deletion.value}")


@slice_.command("list")
@click.option("--dev", metavar="IF", help="Only this interface.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(dev: str | None, as_json: bool) -> None:
    """Show the slices, and what passes them."""
    tree.require_privileges()
    found = [_described(where) for where in ([require_loaded(dev)] if dev else tree.trees_here())]
    emit({"interfaces": found}, as_json=as_json, render=lambda: _render(found))


@contextmanager
def _opened(where: TreePath) -> Iterator[Slicing]:
    with Maps(where) as maps, IPRoute() as ip:
        yield Slicing(maps, ip, where.ifname)


def _described(where: TreePath) -> dict[str, Any]:
    loader.inspect(where)
    with _opened(where) as slicing:
        listed = slicing.listed()
        return {
            "ifname": where.ifname,
            "enforcer": slicing.enforcer.name.lower(),
            "link_bps": slicing.link_bps,
            "set_by": "agent" if slicing.managed else "hand",
            "slices": [_row(one) for one in listed if one.number],
            "rest": next((_row(one) for one in listed if not one.number), None),
        }


def _row(listed: Listed) -> dict[str, Any]:
    usage = msgspec.to_builtins(listed.usage)
    if not listed.number:
        return {"queue_pairs": listed.queue_pairs, **usage}
    return {
        "name": listed.name,
        "guaranteed_bps": listed.guaranteed_bps,
        "ceiling_bps": listed.ceiling_bps,
        "priority": listed.priority,
        "qp_bps": listed.qp_bps or None,
        "match": [msgspec.to_builtins(match) for match in listed.matches],
        "queue_pairs": listed.queue_pairs,
        **usage,
    }


def _render(found: list[dict[str, Any]]) -> RenderableType:
    """One row a slice; those of other interfaces below."""
    sliced = [nic for nic in found if nic["slices"]]
    if not sliced:
        return "there are no slices here; `cwdp slice apply FILE --dev IF` makes them"
    table = Table(box=None, pad_edge=False)
    for name in ("NIC", "SLICE"):
        table.add_column(name, no_wrap=True)
    for name in ("RATE", "CEILING", "PRIO", "PER QP", "QPS", "SENT", "WAITING", "LOST"):
        table.add_column(name, no_wrap=True, justify="right")
    for nic in sliced:
        for row in nic["slices"]:
            table.add_row(nic["ifname"], row["name"], *_rates(row), *_traffic(row))
        table.add_row(
            nic["ifname"], REST, "-", format_rate(nic["link_bps"]), "-", "-", *_traffic(nic["rest"])
        )
    return table


def _rates(row: dict[str, Any]) -> tuple[str, ...]:
    per_pair = "-" if row["qp_bps"] is None else format_rate(row["qp_bps"])
    return format_rate(row["guaranteed_bps"]), format_rate(row["ceiling_bps"]), str(row["priority"]), per_pair


def _traffic(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(row["queue_pairs"]),
        _size(row["sent_bytes"]),
        _size(row["backlog_bytes"]),
        str(row["dropped_packets"]),
    )


def _size(count_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.4g} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.4g} TiB"
