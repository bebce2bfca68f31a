"""`cwdp event`: what happened to links, paths, clocks and agents."""

import re
from datetime import datetime
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show

SECONDS_OF = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
EVENT_STYLES = {
    "path_down": "red",
    "link_down": "red",
    "host_lost": "red",
    "path_up": "green",
    "link_up": "green",
}


class _Duration(click.ParamType[float]):
    """A time such as 90s, 15m, 2h or 1d, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds that a text stands for."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", str(value))
        if match is None:
            self.fail(f"{value!r} is no time; give one like 90s, 15m, 2h or 1d.", param, ctx)
        return float(match[1]) * SECONDS_OF[match[2]]


DURATION = _Duration()


@click.command()
@click.option("--host", "name", default="", metavar="HOST", help="Only of this host.")
@click.option("--since", type=DURATION, metavar="TIME", help="Only of the last 90s, 15m, 2h or 1d.")
@reading
def event(*, name: str, since: float | None, url: str | None, as_json: bool, watch: float | None) -> None:
    """Show what happened: links, paths, clocks, agents; the manager keeps the last 1,000."""
    client = ManagerClient(url)
    query: dict[str, str | int] = {"host": name}
    if since is not None:
        query["last"] = str(since)
    show(lambda: client.get("/v1/events", query), _table, as_json=as_json, watch_s=watch)


def _table(answer: Any) -> RenderableType:
    """One row per event, the oldest first, at the local time of who asks."""
    table = tables.new_table("time", "host", "NIC", "event", "what")
    for row in answer["events"]:
        when = datetime.fromtimestamp(row["time_s"]).astimezone()
        table.add_row(
            f"{when:%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}",
            row["host"],
            row["nic"] or tables.NONE,
            Text(row["kind"].replace("_", " "), EVENT_STYLES.get(row["kind"], "")),
            row["detail"],
        )
    return table
