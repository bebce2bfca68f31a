"""Names of many hosts in few words: `gpu[001-040,043]`."""

import re
from collections.abc import Iterable

MOST_NAMED = 8


def ranges(names: Iterable[str], *, most: int = MOST_NAMED) -> str:
    """Host names by ranges of their last number; beyond `most` pieces it says how many more there are.

    Numbers of differing width are told apart, as `gpu9` and `gpu09` are two hosts.
    """
    families: dict[tuple[str, int, str], list[int]] = {}
    alone = []
    for name in sorted(set(names)):
        found = _last_number(name)
        if found is None:
            alone.append(name)
        else:
            head, digits, tail = found
            families.setdefault((head, len(digits) if digits[0] == "0" else 0, tail), []).append(int(digits))
    families = _joined(families)
    pieces = [_piece(*family, sorted(numbers)) for family, numbers in families.items()] + alone
    if len(pieces) <= most:
        return ", ".join(pieces)
    return f"{', '.join(pieces[:most])} and {len(pieces) - most} more"


def _last_number(name: str) -> tuple[str, str, str] | None:
    found = re.fullmatch(r"(.*?)(\d{1,9})(\D*)", name)
    return (found[1], found[2], found[3]) if found else None


def _joined(families: dict[tuple[str, int, str], list[int]]) -> dict[tuple[str, int, str], list[int]]:
    """Numbers that begin with no 0 belong to those of their width that do: `gpu099` and `gpu100`."""
    joined = {family: list(numbers) for family, numbers in families.items() if family[1]}
    for (head, width, tail), numbers in families.items():
        for number in numbers if not width else []:
            padded = (head, len(str(number)), tail)
            joined.setdefault(padded if padded in joined else (head, 0, tail), []).append(number)
    return joined


def _piece(head: str, width: int, tail: str, numbers: list[int]) -> str:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return f"{head}{runs[0][0]:0{width}d}{tail}"
    told = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs[:MOST_NAMED]]
    more = [f"{len(runs) - MOST_NAMED} more"] if len(runs) > MOST_NAMED else []
    return f"{head}[{','.join(told + more)}]{tail}"
