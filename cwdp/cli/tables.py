"""Tables for people from what the manager answers; they fit 80 columns."""

from rich.table import Table
from rich.text import Text

NONE = "-"
TEXT_COLUMNS = {
    "name",
    "role",
    "kind",
    "given by",
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
    "moved by",
    "program",
    "counted",
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
    "job",
    "sends as",
    "waits for",
    "sure",
    "cause",
    "where",
}
FOLDED_COLUMNS = {
    "path",
    "queue pair",
    "program",
    "counted",
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
    "waits for",
    "where",
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


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state.replace("_", " "), STATE_STYLES.get(state, ""))
