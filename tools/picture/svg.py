"""Panels with axes, and what is drawn in them, as SVG text. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` laid over pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies; beyond the ends, at the end."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, here = math.log10(low), math.log10(high), math.log10(here)
        return self.start + (here - low) / (high - low) * (self.end - self.start)


@dataclass(frozen=True)
class Panel:
    """A rectangle with a time axis below and another at its left."""

    x: Axis
    y: Axis

    def rows(self, ticks: Iterable[tuple[float, str]]) -> list[str]:
        """A line and a word for each tick of the vertical axis."""
        drawn = []
        for value, word in ticks:
            y = self.y.at(value)
            drawn.append(line((self.x.start, y), (self.x.end, y), "grid"))
            drawn.append(text((self.x.start - 8, y + 4), word, "mute end"))
        return drawn

    def steps(self, edges: Sequence[float], values: Sequence[float], kind: str) -> str:
        """A line that is level in each bin; one more edge than values."""
        path = f"M{_number(self.x.at(edges[0]))} {_number(self.y.at(values[0]))}"
        for edge, value in zip(edges[1:], [*values[1:], values[-1]], strict=True):
            path += f"H{_number(self.x.at(edge))}V{_number(self.y.at(value))}"
        return f'<path class="line {kind}" d="{path}"/>'

    def dots(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        """A dot for each pair of values, as a path of lines without length."""
        path, before = "", (0.0, 0.0)
        for x_value, y_value in points:
            here = round(self.x.at(x_value), 1), round(self.y.at(y_value), 1)
            path += "m" + _pair(here[0] - before[0], here[1] - before[1]) + "h0"
            before = here
        return f'<path class="dots {kind}" d="{path}"/>'


def line(start: Point, end: Point, kind: str) -> str:
    """A straight line."""
    (x1, y1), (x2, y2) = (map(_number, point) for point in (start, end))
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def rectangle(start: Point, end: Point, kind: str) -> str:
    """A filled rectangle between its corners, the upper left one first."""
    x, y, width, height = map(_number, (*start, end[0] - start[0], end[1] - start[1]))
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"/>'


def text(place: Point, words: str, kind: str, name: str = "") -> str:
    """A line of text that begins, or with the class `end` ends, at a place; a name goes before it in bold."""
    x, y = map(_number, place)
    bold = f'<tspan class="bold">{escape(name)}</tspan> ' if name else ""
    return f'<text class="{kind}" x="{x}" y="{y}">{bold}{escape(words)}</text>'


def _number(value: float) -> str:
    """To a tenth of a pixel, and no longer than that needs."""
    shown = f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")
    return shown.replace("0.", ".", 1) if shown.lstrip("-").startswith("0.") else shown


def _pair(x: float, y: float) -> str:
    """Two numbers; a sign parts them as well as a space does."""
    second = _number(y)
    return _number(x) + ("" if second.startswith("-") else " ") + second
