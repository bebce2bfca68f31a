"""Tables for people from what the manager answers; they fit 80 columns."""

from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

NONE = "-"
TEXT_COLUMNS = {
    "host",
    "state",
    "clock",
    "NIC",
    "address",
    "mode",
    "probed",
    "path",
    "counter",
    "time",
    "event",
    "what",
    "queue pair",
    "switch",
    "switches",
    "ports",
    "NICs",
    "link",
    "to",
    "rail",
    "leaves",
    "suspected",
    "is at",
    "belongs at",
    "why",
}
FOLDED_COLUMNS = {
    "path",
    "queue pair",
    "host",
    "address",
    "what",
    "switches",
    "ports",
    "NICs",
    "leaves",
    "is at",
    "belongs at",
    "why",
}
EVENT_STYLES = {
    "path_down": "red",
    "link_down": "red",
    "host_lost": "red",
    "path_up": "green",
    "link_up": "green",
}
STATE_STYLES = {
    "synced": "green",
    "up": "green",
    "ok": "green",
    "holdover": "yellow",
    "unsynced": "yellow",
    "set_aside": "red",
    "lost": "red",
}


def owd(answer: Any) -> RenderableType:
    """One row per path; delays there over those back."""
    table = new_table("path", "port", "loss", "queued", "min", "p50", "p99", "bound")
    for row in answer["paths"]:
        table.add_row(
            f"{row['src']} > {row['dst']}",
            f"{row['sport']}\n{row['reply_sport']}",
            share(row["loss"]),
            share(row["queued_share"]),
            *(_both(row, quantile) for quantile in ("min", "p50", "p99")),
            duration(row["bound_ns"]),
        )
    shown, count = len(answer["paths"]), answer["path_count"]
    note = f"{shown} of {count} paths, last {answer['window_s']:g} s; first line there, second line back"
    return Group(table, Text(note, style="dim"))


def hosts(answer: Any) -> RenderableType:
    """One row per NIC."""
    table = new_table("host", "state", "clock", "NIC", "address", "carrier", "mode", "probed", "seen")
    for row in answer["hosts"]:
        first = [row["host"], state_text(row["state"]), state_text(row["clock_state"])]
        for nic in row["nics"] or [None]:
            cells = [NONE] * 5 if nic is None else _nic_cells(nic)
            table.add_row(*first, *cells, seconds(row["last_seen_s"]) if first[0] else "")
            first = ["", "", ""]
    by = answer["transports"]
    if not (by["xdp"] and by["ud"]):
        return table
    note = f"{by['ud']} NICs probe by UD queue pairs, {by['xdp']} by XDP: no path between the two kinds is probed"
    return Group(table, Text(note, style="yellow"))


def one_host(answer: Any) -> RenderableType:
    """A host with its NICs and all counters."""
    row = answer["hosts"][0]
    facts = Table.grid(padding=(0, 2))
    for key in ("version", "dataplane_tag", "boot_id", "restarts", "desired_version", "key_ids"):
        facts.add_row(key.replace("_", " "), str(row[key]))
    counters = new_table("counter", "total")
    for name, value in row["counters"].items():
        counters.add_row(name, f"{value:,}")
    return Group(hosts(answer), facts, counters)


def events(answer: Any) -> RenderableType:
    """One row per event, the oldest first, at the local time of who asks."""
    table = new_table("time", "host", "NIC", "event", "what")
    for row in answer["events"]:
        when = datetime.fromtimestamp(row["time_s"]).astimezone()
        table.add_row(
            f"{when:%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}",
            row["host"],
            row["nic"] or NONE,
            Text(row["kind"].replace("_", " "), EVENT_STYLES.get(row["kind"], "")),
            row["detail"],
        )
    notes = []
    if answer.get("incomplete"):
        notes.append(
            Text(f"history cannot be read, these are the last in memory: {answer['incomplete']}", "red")
        )
    elif answer["more"]:
        notes.append(Text(f"the newest {len(answer['events'])}; there are more: --limit, --until", "dim"))
    return Group(table, *notes)


def duration(ns: float | None) -> str:
    """Nanoseconds in the unit that reads best, to three or four digits."""
    if ns is None:
        return NONE
    if abs(ns) < 10_000:
        return f"{ns:,.0f} ns"
    if abs(ns) < 10_000_000:
        return f"{ns / 1e3:,.1f} us"
    if abs(ns) < 10_000_000_000:
        return f"{ns / 1e6:,.1f} ms"
    return f"{ns / 1e9:,.1f} s"


def exact_seconds(ns: int) -> str:
    """Whole nanoseconds as signed seconds, to the last digit."""
    whole, rest = divmod(abs(ns), 10**9)
    return f"{'-' if ns < 0 else '+'}{whole}.{rest:09d}"


def seconds(value: float | None) -> str:
    """An age."""
    return NONE if value is None else f"{value:.1f} s"


def quantity(value: float | None) -> str:
    """A count or a rate in three digits, with k, M, G or T for thousands."""
    if value is None:
        return NONE
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    """A ratio as a percentage."""
    return NONE if value is None else f"{100 * value:.3g}%"


def new_table(*columns: str) -> Table:
    """A table whose columns know by their names how they are laid out."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for column in columns:
        table.add_column(
            column,
            justify="left" if column in TEXT_COLUMNS else "right",
            no_wrap=column not in FOLDED_COLUMNS,
            overflow="fold",
        )
    return table


def _nic_cells(nic: Any) -> list[RenderableType]:
    carrier = Text("yes", "green") if nic["carrier"] else Text("no", "red")
    addresses = "\n".join(address for address in (nic["ipv4"], nic["ipv6"]) if address) or NONE
    mode = "ud" if nic["transport"] == "ud" else nic["mode"]
    return [nic["ifname"], addresses, carrier, mode, state_text(nic["reason"])]


def _both(row: Any, quantile: str) -> str:
    return f"{duration(row[f'fwd_{quantile}_ns'])}\n{duration(row[f'rev_{quantile}_ns'])}"


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state.replace("_", " "), STATE_STYLES.get(state, ""))
