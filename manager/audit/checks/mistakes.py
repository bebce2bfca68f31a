"""What is wrong with a file of checks: all of it at once, each with its line and what was perhaps meant."""

from collections.abc import Iterable
from difflib import get_close_matches

from msgspec import Struct


class Mistake(Struct, frozen=True, order=True):
    """One mistake: where, what is wrong, and what was meant or is allowed."""

    path: str
    line: int
    what: str
    meant: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}" + (f"; {self.meant}" if self.meant else "")


def suggestion(word: str, known: Iterable[str], *, most: int = 12) -> str:
    """What `word` was perhaps meant to be; else what there is, if that is not too much to tell."""
    names = sorted(known)
    close = [name for name in names if word and name.startswith(word)][:1]
    close = close or get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    if len(names) <= most:
        return f"there are {', '.join(names)}" if names else ""
    return f"there are {len(names)}, such as {', '.join(names[:3])}"


def kind_of(value: object) -> str:
    """A TOML value's kind, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else "a date or time"
