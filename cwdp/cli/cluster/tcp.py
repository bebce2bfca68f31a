"""`cwdp tcp`: TCP connections of named services as the manager knows them."""

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.output import rows_that_fit
from cwdp.cli.reading import reading, show
from cwdp.shared.bus.messages import nic_id

SORTS = ("rate", "bytes", "rtt", "resent")
US_NS = 1_000


@click.command()
@click.option("--host", default="", metavar="HOST[/NIC]", help="Only as this end tells.")
@click.option("--service", default="", metavar="NAME", help="Only of this service.")
@click.option("--sort", type=click.Choice(SORTS), default="rate", show_default=True, help="Largest first.")
@click.option("--limit", type=click.IntRange(min=0), help="Show so many, 0 for all; else what fits.")
@reading
def tcp(
    *,
    host: str,
    service: str,
    sort: str,
    limit: int | None,
    url: str | None,
    as_json: bool,
    watch: float | None,
) -> None:
    """Show TCP connections of the services that agents' configurations name, by end: rates, round trips, what was sent again."""
    if limit is None:
        limit = 0 if as_json else rows_that_fit(lines_each=1)
    client = ManagerClient(url)
    query: dict[str, str | int] = {"host": host, "service": service, "sort": sort, "limit": limit}
    show(lambda: client.get("/v1/tcp", query), _render, as_json=as_json, watch_s=watch)


def _render(answer: Any) -> RenderableType:
    table = tables.new_table("connection", "service", "out", "in", "rtt", "resent", "path")
    for row in answer["connections"]:
        resent = row["bytes_retransmitted"]
        table.add_row(
            _name(row),
            row["service"],
            *(tables.quantity(row[name]) for name in ("bps", "received_bps")),
            tables.duration(US_NS * row["rtt_us"]),
            Text(tables.quantity(resent), "red" if resent else ""),
            _path(row),
        )
    text = f"{len(answer['connections'])} of {answer['connection_count']}; out, in: bit/s; resent: bytes"
    text += "; path: steered, its backup; own: by its own ports, one: these too, as one end tells only"
    if any(row.get("override") for row in answer["connections"]):
        text += "; *: an operator has steered it"
    if answer["unlisted"]:
        text += f"; {answer['unlisted']} more than agents list"
    return Group(table, Text(text, style="dim"))


def _path(row: Any) -> Text:
    shown = _taken(row)
    return shown.append("*") if row.get("override") else shown


def _taken(row: Any) -> Text:
    steered = row.get("steered")
    if steered is None:
        return Text("own" if row["both_ends"] else "one")
    if steered["standing"] == "unconfirmed":
        return Text("own")
    return Text("backup", "yellow") if steered["failed_over"] else Text("path")


def _name(row: Any) -> str:
    here = f"{nic_id(row['host'], row['nic'])}:{row['local_port']}"
    return f"{here} - {row['peer'] or row['remote_addr']}:{row['remote_port']}"
