"""`cwdp event`: what happened to links, paths, clocks and agents."""

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show
from cwdp.cli.times import TIME
from cwdp.shared.bus.messages import nic_id
from cwdp.shared.tcp import TCP

EVENT_STYLES = {
    "path_down": "red",
    "link_down": "red",
    "host_lost": "red",
    "path_up": "green",
    "link_up": "green",
}


@click.command()
@click.option("--host", "name", default="", metavar="HOST", help="Only of this host.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only of this kind; may be given again.")
@click.option(
    "--since", type=TIME, metavar="TIME", help="Only since 15m or 3d ago, 17:05, '2026-11-22 17:05'."
)
@click.option("--until", type=TIME, metavar="TIME", help="Only until then.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=1_000, show_default=True, help="The newest.")
@reading
def event(
    *,
    name: str,
    kinds: tuple[str, ...],
    since: float | None,
    until: float | None,
    limit: int,
    url: str | None,
    as_json: bool,
    watch: float | None,
) -> None:
    """Show what happened: links, paths, clocks, agents, queue pairs moved, operators' changes."""
    client = ManagerClient(url)
    query: dict[str, str | int] = {"host": name, "limit": limit}
    if kinds:
        query["kind"] = ",".join(kind.replace(" ", "_") for kind in kinds)
    query |= {key: str(time_s) for key, time_s in (("since", since), ("until", until)) if time_s is not None}
    show(
        lambda: client.get("/v1/events", query),
        partial(_table, lists_moves=bool(kinds)),
        as_json=as_json,
        watch_s=watch,
    )


def _lines(row: Any, *, lists_moves: bool) -> Iterator[str]:
    """What an event says, what a change was for, and the queue pairs that were moved, each with before and after."""
    yield row["detail"] + (f"; why: {row['why']}" if row.get("why") else "")
    moves = row.get("moves") if lists_moves else None
    if not moves:
        return
    for move in moves["listed"]:
        before, after = _way(move, "before_"), _way(move, "")
        yield f"{_queue_pair(move)}: {before} -> {after}: {move['why']}"
    rest = moves["count"] - len(moves["listed"])
    if rest:
        yield f"and {rest} more"


def _queue_pair(move: Any) -> str:
    """A queue pair, or a TCP connection, whose number is its two ports."""
    src, dst, number = nic_id(move["host"], move["nic"]), move["dst_addr"], move["qpn"]
    if dst.startswith(TCP):
        return f"{src}:{number >> 16} > {dst.removeprefix(TCP)}:{number & 0xFFFF}"
    return f"{src} > {dst} QPN {number}"


def _way(move: Any, when: str) -> str:
    """Ports, and the switches that only this one of its two ways crosses."""
    sport, backup = move[f"{when}sport"], move[f"{when}backup_sport"]
    others = move["switches" if when else "before_switches"]
    over = [switch for switch in move[f"{when}switches"] if switch not in others]
    shown = "its own port" if sport is None else f"{sport}"
    shown += f" over {' '.join(over)}" if over else ""
    return shown + (f", backup {backup}" if backup is not None else "")


def _table(answer: Any, *, lists_moves: bool) -> RenderableType:
    """One row per event, the oldest first, at the local time of who asks."""
    table = tables.new_table("time", "host", "NIC", "event", "what")
    for row in answer["events"]:
        when = datetime.fromtimestamp(row["time_s"]).astimezone()
        table.add_row(
            f"{when:%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}",
            row["host"],
            row["nic"] or tables.NONE,
            Text(row["kind"].replace("_", " "), EVENT_STYLES.get(row["kind"], "")),
            Text("\n".join(_lines(row, lists_moves=lists_moves))),
        )
    notes = []
    if answer.get("incomplete"):
        notes.append(
            Text(f"history cannot be read, these are the last in memory: {answer['incomplete']}", "red")
        )
    elif answer["more"]:
        notes.append(Text(f"the newest {len(answer['events'])}; there are more: --limit, --until", "dim"))
    return Group(table, *notes)
