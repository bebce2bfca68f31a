"""Facts of one subject as an area notes them, and how texts of the kernel become values."""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from cwdp.audit.unreadable import Unreadable
from cwdp.shared.audit.facts import SubjectKind, Value

MOST_VALUES, MOST_CHARACTERS, MOST_NUMBER = 1024, 256, (1 << 63) - 1
SHOWN_CHARACTERS = 32


class Notes(Struct, frozen=True):
    """What an area has found out about a subject: facts, and why others are not available.

    A fact that does not apply is in neither.
    """

    kind: SubjectKind
    name: str = ""
    facts: dict[str, Value] = {}
    missing: dict[str, str] = {}

    def note(self, fact: str, read: Callable[[], Value | None]) -> None:
        """Take down a fact; None where it does not apply."""
        try:
            value = read()
            if value is not None:
                self.facts[fact] = _bounded(value)
        except Unreadable as reason:
            self.missing[fact] = clipped(reason.message)

    def lack(self, facts: Sequence[str], reason: str) -> None:
        """Take down that several facts are not available."""
        self.missing.update(dict.fromkeys(facts, clipped(reason)))


def clipped(text: str) -> str:
    """A text in one line that is not too long."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}..."


def whole(text: str) -> int:
    """A whole number, in decimal digits or as `0x1f`.

    Raises:
        Unreadable: it is none, or a larger one than 63 bits hold.
    """
    if not re.fullmatch(r"-?\d{1,19}|0x[0-9a-fA-F]{1,16}", text, re.ASCII):
        raise Unreadable(f"not a number: '{shown(text)}'")
    return _number(int(text, 16 if text.startswith("0x") else 10))


def cpus(text: str) -> set[int]:
    """The processors or nodes of a list such as `0-3,8` (cpuset(7), list format).

    Raises:
        Unreadable: it is none.
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        pair = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip(), re.ASCII)
        if pair is None:
            raise Unreadable(f"not a list of numbers: '{shown(text)}'")
        found.update(range(int(pair[1]), int(pair[2] or pair[1]) + 1))
    return found


def table(text: str, separator: str = ":") -> dict[str, str]:
    """Lines of names and values, such as those of /proc/meminfo; of a name that comes again the first."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, between, value = line.partition(separator)
        if between:
            found.setdefault(name.strip(), value.strip())
    return found


def one_of(text: str, known: dict[str, str]) -> str:
    """What is meant by one of several words.

    Raises:
        Unreadable: it is none of them.
    """
    if text not in known:
        raise Unreadable(f"not understood: '{shown(text)}'")
    return known[text]


def shown(text: str) -> str:
    """The beginning of a text that was not understood."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}..."


def _bounded(value: Value) -> Value:
    if isinstance(value, bool | float | int | str):
        return _bounded_one(value)
    if len(value) > MOST_VALUES:
        raise Unreadable(f"more than {MOST_VALUES:,} values")
    return [_bounded_one(one) for one in value]


def _bounded_one(value: float | str) -> float | str:
    if isinstance(value, str):
        return clipped(value)
    return _number(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _number(value: int) -> int:
    if abs(value) > MOST_NUMBER:
        raise Unreadable(f"not a sane number: {str(value)[:SHOWN_CHARACTERS]}")
    return value
