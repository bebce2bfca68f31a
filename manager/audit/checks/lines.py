"""On which lines of a TOML text its tables and keys are; tomllib does not tell."""

import re

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))""")
_QUOTES = ('"""', "'''", '"', "'")


class Lines:
    """Lines of a text that is valid TOML, counted from 1.

    Tables are told by their name and their number among those of one name, from 0; the top level by "". A table of a
    table, `[check.when]`, counts as the key `when` of the last `[[check]]`.
    """

    def __init__(self, text: str) -> None:
        self._tables: dict[tuple[str, int], int] = {}
        self._keys: dict[tuple[str, int, str], int] = {}
        self._counts: dict[str, int] = {}
        self._read(text.split("\n"))

    def of_table(self, name: str, number: int) -> int:
        """The line of a table's header; 1 where there is none."""
        return self._tables.get((name, number), 1)

    def of_key(self, name: str, number: int, key: str) -> int:
        """The line on which a key begins, or else that of its table."""
        return self._keys.get((name, number, key), self.of_table(name, number))

    def _read(self, lines: list[str]) -> None:
        table, row = ("", 0), 0
        while row < len(lines):
            line = lines[row]
            header = _HEADER.match(line)
            if header is not None:
                table = self._enter(header[1] == "[[", header[2], row + 1)
                row += 1
                continue
            key = _KEY.match(line)
            if key is None:
                row += 1
                continue
            name = next(found for found in key.groups() if found is not None)
            self._keys.setdefault((*table, name), row + 1)
            row = _end_of_value(lines, row, key.end())

    def _enter(self, is_array: bool, name: str, line: int) -> tuple[str, int]:
        head, _, rest = name.partition(".")
        if rest and head in self._counts:
            table = (head, self._counts[head] - 1)
            self._keys.setdefault((*table, rest.strip().partition(".")[0]), line)
            return f"{head}.{rest}", table[1]
        number = self._counts.get(name, 0)
        if is_array or number == 0:
            self._counts[name] = number + 1
        self._tables.setdefault((name, number), line)
        return name, number


def _end_of_value(lines: list[str], row: int, column: int) -> int:
    """The row behind the value of a key that begins at `column`: strings and arrays may go over several lines."""
    depth, quote = 0, ""
    while row < len(lines):
        line, at = lines[row], column
        while at < len(line):
            at, depth, quote = _step(line, at, depth, quote)
        if len(quote) == 1:
            quote = ""
        row, column = row + 1, 0
        if depth <= 0 and not quote:
            break
    return row


def _step(line: str, at: int, depth: int, quote: str) -> tuple[int, int, str]:
    """Past one character, quote or comment: where to go on, how many brackets are open, within which quotes."""
    if quote:
        if line[at] == "\\" and quote[0] == '"':
            return at + 2, depth, quote
        if line.startswith(quote, at):
            return at + len(quote), depth, ""
        return at + 1, depth, quote
    for each in _QUOTES:
        if line.startswith(each, at):
            return at + len(each), depth, each
    if line[at] == "#":
        return len(line), depth, quote
    return at + 1, depth + (line[at] in "[{") - (line[at] in "]}"), quote
