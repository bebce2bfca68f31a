"""Text that fits a screen: names cut in their middle, tables that leave out their last columns. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

CUT = "…"
LEAST_NAME = 12
"""Columns that the name in a row keeps before others are left out."""

MOST_WORD = 24
LEAST_SECTION = 2
"""Lines: a title and a row."""


def harmless(text: str) -> str:
    """A text without anything that a terminal obeys: what is not printable is escaped, as Python writes it."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def fitted(text: str, width: int) -> str:
    """A text cut in its middle to so many columns: the beginnings and ends of names tell them apart."""
    if cell_len(text) <= width:
        return text
    if width < 3:
        return text[:0] if width < 1 else set_cell_size(text, width)
    left = (width - 1) // 2
    right = width - 1 - left
    end = text
    while cell_len(end) > right:
        end = end[1:]
    return set_cell_size(text, left) + CUT + end


def wrapped(text: str, width: int, most: int | None = None, *, indent: str = "") -> list[str]:
    """A text in lines, broken at blanks where it can be; the last of `most` is cut in its middle."""
    if width <= len(indent):
        return []
    room_columns = width - len(indent)
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= room_columns:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        while cell_len(word) > room_columns:
            head = set_cell_size(word, room_columns).rstrip() or word[:1]
            lines[-1], word = head, word[len(head) :]  # noqa: PLW2901 - the rest of it
            lines.append("")
        lines[-1] = word
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], fitted(" ".join(lines[most - 1 :]), room_columns)]
    return [indent + line for line in lines]


@dataclass(frozen=True)
class Column:
    """A column of a table but for its first."""

    title: str
    left: bool = False


@dataclass(frozen=True)
class Section:
    """A table with a title: each row is a name, then a cell for each column, the most telling first."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Text, ...]]

    def lines(self, width: int, most: int) -> list[Text]:
        """At most so many lines, the title among them; none where a row does not fit."""
        shown = self.rows[: max(most - 1, 0)]
        if not shown:
            return []
        widths = [self._width(i, shown) for i in range(len(self.columns))]
        while widths and width - sum(each + 2 for each in widths) < LEAST_NAME:
            widths.pop()
        name_width = width - sum(each + 2 for each in widths)
        of = f" ({len(shown)} of {len(self.rows)})" if len(shown) < len(self.rows) else ""
        titles = [Text(self.title + of), *(Text(column.title) for column in self.columns)]
        made = [
            self._line(titles, name_width, widths),
            *(self._line(row, name_width, widths) for row in shown),
        ]
        made[0].stylize("bold")
        return made

    def _width(self, i: int, rows: Sequence[tuple[Text, ...]]) -> int:
        widest = max(cell_len(row[i + 1].plain) for row in rows)
        return min(max(widest, len(self.columns[i].title)), MOST_WORD)

    def _line(self, cells: Sequence[Text], name_width: int, widths: Sequence[int]) -> Text:
        line = Text(_padded(cells[0].plain, name_width), cells[0].style)
        for column, cell, width in zip(self.columns, cells[1:], widths, strict=False):
            line.append("  ")
            line.append(_padded(cell.plain, width, left=column.left), cell.style)
        return line


def room(lines: int, found: Sequence[int], rows: Sequence[int]) -> tuple[int, list[int]]:
    """How many lines each part of a screen gets.

    Args:
        lines: that there are.
        found: the lines of each finding; they come first and get half at least, if they need it.
        rows: how many rows each table has.

    Returns:
        Lines for the findings with their title, and for each table with its title.
    """
    wanted = 1 + sum(found) if found else 0
    found_lines = min(wanted, max(lines // 2, lines - sum(each + 1 for each in rows)))
    left = max(lines - found_lines, 0)
    rooms = [0] * len(rows)
    for i in range(len(rows)):
        if left >= LEAST_SECTION:
            rooms[i], left = LEAST_SECTION, left - LEAST_SECTION
    while left and any(0 < each <= want for each, want in zip(rooms, rows, strict=True)):
        for i, want in enumerate(rows):
            if left and 0 < rooms[i] <= want:
                rooms[i], left = rooms[i] + 1, left - 1
    return found_lines, rooms


def _padded(text: str, width: int, *, left: bool = True) -> str:
    cut = fitted(text, width)
    blanks = " " * (width - cell_len(cut))
    return cut + blanks if left else blanks + cut
