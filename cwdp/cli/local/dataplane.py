"""`cwdp dataplane`: the eBPF programs on this host's interfaces."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import click
from rich.console import Group, RenderableType
from rich.table import Table

from cwdp.cli.output import emit
from cwdp.dataplane.abi import ROCE_PORT, XdpMode
from cwdp.dataplane.kernel.interface import Generic
from cwdp.dataplane.loading import loader
from cwdp.dataplane.loading.loader import Loaded, Settings
from cwdp.dataplane.loading.status import describe, refused
from cwdp.dataplane.pinned import tree
from cwdp.errors import DataplaneError

all_or_some = click.argument("ifnames", metavar="[IFNAME]...", nargs=-1)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def dataplane() -> None:
    """The eBPF programs on this host's interfaces."""


@dataplane.command()
@click.argument("ifname")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=ROCE_PORT, show_default=True, help="UDP port of probes."
)
@click.option(
    "--generic",
    type=click.Choice(get_args(Generic)),
    default="refuse",
    show_default=True,
    help="What to do where the driver takes no XDP program (veth and lo are always allowed).",
)
def load(ifname: str, port: int, generic: Generic) -> None:
    """Load, pin and attach the programs on IFNAME."""
    _say(loader.load(ifname, Settings(probe_port=port, generic=generic)), "loaded")


@dataplane.command()
@all_or_some
def upgrade(ifnames: tuple[str, ...]) -> None:
    """Replace another build's programs on each IFNAME, or wherever they are here, without losing a packet."""
    _each(ifnames, lambda ifname: _say(loader.upgrade(ifname), "upgraded"))


@dataplane.command()
@all_or_some
def unload(ifnames: tuple[str, ...]) -> None:
    """Detach and remove the programs of each IFNAME, or wherever they are here."""
    _each(ifnames, _unload)


def _unload(ifname: str) -> None:
    click.echo(f"{ifname}: unloaded" if loader.unload(ifname) else f"{ifname}: nothing is loaded")


def _each(ifnames: Sequence[str], do: Callable[[str], None]) -> None:
    """Do it to each of these interfaces, or to all that have a dataplane in this network namespace.

    Raises:
        DataplaneError: some failed, after all others are done.
    """
    tree.require_privileges()
    failed = []
    for ifname in ifnames or [where.ifname for where in tree.trees_here()]:
        try:
            do(ifname)
        except DataplaneError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        hints = dict.fromkeys(error.hint for error in failed if error.hint)
        raise DataplaneError("; ".join(error.message for error in failed), "\n".join(hints))


@dataplane.command()
@click.option("--all", "everywhere", is_flag=True, help="Other network namespaces' interfaces too.")
@json_option
def status(everywhere: bool, as_json: bool) -> None:
    """Show what is loaded, and what it has counted."""
    tree.require_privileges()
    found = [describe(where) for where in (tree.all_trees() if everywhere else tree.trees_here())]
    emit({"interfaces": found}, as_json=as_json, render=lambda: _render(found))


def _say(loaded: Loaded, done: str) -> None:
    state = done if loaded.changed else f"already {done}, nothing to do"
    if loaded.repaired:
        state = f"put right what was not as it should be ({', '.join(loaded.repaired)})"
    click.echo(f"{loaded.where.ifname}: {state} (build {loaded.tag}, {loaded.mode.name.lower()} XDP)")
    if loaded.mode is XdpMode.GENERIC:
        why = f" ({loaded.why_generic})" if loaded.why_generic else ""
        click.echo(
            f"  this driver takes no native XDP program{why}, so the generic path is used:"
            " timestamps are later and noisier",
            err=True,
        )


def _render(found: list[dict[str, Any]]) -> RenderableType:
    if not found:
        return "no dataplane is loaded here; `cwdp dataplane load IFNAME` loads one"
    table = Table(box=None, pad_edge=False)
    for name in ("NIC", "XDP", "TC", "BUILD", "KEYS"):
        table.add_column(name, no_wrap=True)
    for name in ("BOUND NS", "SENT", "ANSWERED", "REFLECTED", "REFUSED"):
        table.add_column(name, no_wrap=True, justify="right")
    notes = []
    for nic in found:
        if "error" in nic:
            notes.append(f"{nic['ifname']}: {nic['error']}")
            continue
        counters = nic["counters"]
        bound = nic["clock"]["bound_ns"]
        table.add_row(
            nic["ifname"]
            if nic["netns_cookie"] == tree.netns_cookie()
            else f"{nic['netns_cookie']}/{nic['ifname']}",
            nic["mode"],
            nic["egress"],
            nic["tag"][:6] if nic["current"] else "other",
            ",".join(map(str, nic["key_ids"])) or "none",
            "-" if bound is None else str(bound),
            *(str(counters[name]) for name in ("probe_sent", "reply_accepted", "request_reflected")),
            str(refused(counters)),
        )
        notes += [f"{nic['ifname']}: {fault}" for fault in nic["faults"]]
        if nic["takes_detours"] is False:
            notes.append(f"{nic['ifname']}: no detours over it, its driver has no XDP metadata")
        if nic["slices"] != "none":
            notes.append(f"{nic['ifname']}: slices held by {nic['slices']}, see: cwdp slice list")
    if any(nic.get("faults") for nic in found):
        notes.append(
            "`cwdp dataplane load IFNAME` puts right what is there, `unload` clears away what is gone"
        )
    return Group(table, *notes)
