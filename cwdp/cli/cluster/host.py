"""`cwdp host`: hosts, their interfaces and counters."""

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show
from cwdp.errors import ManagerError


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

    show(fetch, _one_host if name else table, as_json=as_json, watch_s=watch)


def table(answer: Any) -> RenderableType:
    """One row per NIC."""
    table = tables.new_table("host", "state", "clock", "NIC", "address", "carrier", "mode", "probed", "seen")
    for row in answer["hosts"]:
        first = [row["host"], tables.state_text(row["state"]), tables.state_text(row["clock_state"])]
        for nic in row["nics"] or [None]:
            cells = [tables.NONE] * 5 if nic is None else _nic_cells(nic)
            table.add_row(*first, *cells, tables.seconds(row["last_seen_s"]) if first[0] else "")
            first = ["", "", ""]
    by = answer["transports"]
    if not (by["xdp"] and by["ud"]):
        return table
    note = f"{by['ud']} NICs probe by UD queue pairs, {by['xdp']} by XDP: no path between the two kinds is probed"
    return Group(table, Text(note, style="yellow"))


def _one_host(answer: Any) -> RenderableType:
    """A host with its NICs and all counters."""
    row = answer["hosts"][0]
    facts = Table.grid(padding=(0, 2))
    for key in ("version", "dataplane_tag", "boot_id", "restarts", "desired_version", "key_ids"):
        facts.add_row(key.replace("_", " "), str(row[key]))
    counters = tables.new_table("counter", "total")
    for name, value in row["counters"].items():
        counters.add_row(name, f"{value:,}")
    return Group(table(answer), facts, counters)


def _nic_cells(nic: Any) -> list[RenderableType]:
    carrier = Text("yes", "green") if nic["carrier"] else Text("no", "red")
    addresses = "\n".join(address for address in (nic["ipv4"], nic["ipv6"]) if address) or tables.NONE
    mode = "ud" if nic["transport"] == "ud" else nic["mode"]
    return [nic["ifname"], addresses, carrier, mode, tables.state_text(nic["reason"])]
