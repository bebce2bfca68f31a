"""Names in the order that people expect: h2 before h10. Pure."""

import re
from collections.abc import Iterable

_NUMBERS = re.compile(r"(\d+)")


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """A key to sort by, in which runs of digits count as numbers."""
    parts = _NUMBERS.split(name)
    return tuple((part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts if part)


def in_order(names: Iterable[str]) -> list[str]:
    """Names, sorted so."""
    return sorted(names, key=natural)
