"""`cwdp clock`: a line a host, and below it why its clock is not as good as others'."""

from typing import Any

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show
from cwdp.cli.tables import NONE, duration, exact_seconds, state_text

HEADINGS = ("host", "state", "offset s", "drift ppb", "bound", "edges", "discipline")
LEFT = ("host", "state", "discipline")
GAP = "  "
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400

_Cells = list[Text]


@click.command()
@reading
def clock(url: str | None, as_json: bool, watch: float | None) -> None:
    """Show every host's clock against the timeline.

    The offset is the timeline minus the host's clock, and lies within the bound of the truth. The discipline is what
    chrony and its like do to CLOCK_MONOTONIC, which is taken out: its rate, how often that changed, how long ago.
    """
    client = ManagerClient(url)
    show(lambda: client.get("/v1/clock"), table, as_json=as_json, watch_s=watch)


class _Rows:
    """Aligned cells, with lines between them that take the whole width; the last column moves below if it must."""

    def __init__(self, rows: list[tuple[_Cells, list[Text]]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One text a line."""
        headings = [Text(name, "bold") for name in HEADINGS]
        cells = [headings, *(row for row, _ in self._rows)]
        widths = [max(row[i].cell_len for row in cells) for i in range(len(HEADINGS))]
        fits = sum(widths) + len(GAP) * (len(widths) - 1) <= options.max_width
        shown = len(HEADINGS) if fits else len(HEADINGS) - 1
        yield _line(headings[:shown], widths)
        for row, below in self._rows:
            yield _line(row[:shown], widths)
            if not fits:
                yield Text.assemble(GAP, (f"{HEADINGS[-1]} ", "dim"), row[-1])
            yield from (Text.assemble(GAP, text) for text in below)


def table(answer: Any) -> RenderableType:
    """One row per host."""
    rows = [(_cells(row), _why(row)) for row in answer["hosts"]]
    notes = [
        f"timeline {answer['timeline'][:8]}; edges used of all measured",
        "discipline: rate that it gives, how often that changed, the last time",
    ]
    if answer["allowance_ns"] > 0:
        notes.append(
            f"bounds hold an allowance of {duration(answer['allowance_ns'])} for what is not seen yet"
        )
    return Group(_Rows(rows), *(Text(note, style="dim") for note in notes))


def discipline(row: Any) -> str:
    """What disciplines a host's clock, in few characters."""
    if row["discipline_source"] is None:
        return NONE
    if row["discipline_source"] == "none":
        return "not readable"
    rate = _ppm(row["discipline_ppb"] / 1e3)
    if not row["discipline_changes"]:
        return f"{rate}, steady"
    text = f"{rate}, {row['discipline_changes']}x"
    return text if row["discipline_changed_s"] is None else f"{text}, {_age(row['discipline_changed_s'])}"


def _cells(row: Any) -> _Cells:
    used, rejected = row["edges_used"], row["edges_rejected"]
    has_discipline = row["discipline_source"] != "none"
    return [
        Text(row["host"]),
        state_text(row["state"]),
        Text(NONE if row["offset_ns"] is None else exact_seconds(row["offset_ns"])),
        Text(NONE if row["drift_ppb"] is None else f"{row['drift_ppb']:+.1f}"),
        Text(duration(row["bound_ns"])),
        Text(f"{used}/{used + rejected}", "red" if rejected else ""),
        Text(discipline(row), "" if has_discipline else "yellow"),
    ]


def _why(row: Any) -> list[Text]:
    """Lines below the row: why its bound is wide, or the clock set aside."""
    since = "" if row["age_s"] is None else f", last synced {_age(row['age_s'])} ago"
    lines = []
    if row["cause"] is not None:
        lines.append(Text(f"{row['cause']}{since}", "red"))
    if row["widened"] == "clock_changed":
        lines.append(Text(f"clock changed {row['clock_changed_s']:.1f} s ago, being found anew", "yellow"))
    elif row["widened"] == "out_of_touch":
        lines.append(Text(f"out of touch{since}: not confirmed, the bound grows", "yellow"))
    return lines


def _line(cells: _Cells, widths: list[int]) -> Text:
    line = Text(overflow="fold")
    for name, cell, width in zip(HEADINGS, cells, widths, strict=False):
        pad = " " * (width - cell.cell_len)
        line.append_text(
            Text.assemble(GAP if line else "", cell, pad) if name in LEFT else Text.assemble(GAP, pad, cell)
        )
    line.rstrip()
    return line


def _ppm(value: float) -> str:
    return f"{value:+.2f} ppm" if abs(value) < 10 else f"{value:+.1f} ppm"


def _age(value_s: float) -> str:
    """A time in whole units, short."""
    for unit, size_s in (("d", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if value_s >= 2 * size_s:
            return f"{value_s / size_s:.0f} {unit}"
    return f"{value_s:.1f} s" if value_s < 10 else f"{value_s:.0f} s"
