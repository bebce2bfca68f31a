"""Names of many hosts in few words: `gpu[001-040,043]`."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MOST_NAMED = 8
_BETWEEN = re.compile(r", (?![^\[]*\])|( and \d+ more)$")
_PIECE = re.compile(r"(.*)\[(\d[\d,-]*)(,\d+ more)?\](\D*)")


@dataclass(frozen=True)
class _Told:
    """Numbers of a piece: pairs of first and last, their width where they begin with 0 (else 0), and whether some are only counted."""

    runs: list[tuple[int, int]]
    width: int
    is_cut: bool

    def has_digits(self, count: int) -> bool:
        """Whether numbers of so many digits are in this piece, and so in no other: `ranges` joins them."""
        if self.width:
            return self.width == count
        return any(len(str(low)) <= count <= len(str(high)) for low, high in self.runs)

    def may_hold(self, number: int) -> bool:
        return any(low <= number <= high for low, high in self.runs) or (
            self.is_cut and number > self.runs[-1][1]
        )


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


def among(told: str) -> Callable[[str], bool]:
    """Whether a name is one of those that `ranges` told of, or may be one of those that it only counted."""
    pieces = [piece for piece in _BETWEEN.split(told) if piece]
    is_cut = bool(pieces) and pieces[-1].startswith(" and ")
    families: defaultdict[tuple[str, str], list[_Told]] = defaultdict(list)
    for piece in pieces:
        if found := _PIECE.fullmatch(piece):
            families[found[1], found[4]].append(_told(found[2], is_cut=found[3] is not None))

    def is_among(name: str) -> bool:
        if name in pieces:
            return True
        head, digits, tail = _last_number(name) or (name, "0", "")
        own = [each for each in families.get((head, tail), ()) if f"{int(digits):0{each.width}d}" == digits]
        is_shown = any(each.has_digits(len(digits)) for each in own)
        return any(each.may_hold(int(digits)) for each in own) or (is_cut and not is_shown)

    return is_among


def _told(numbers: str, *, is_cut: bool) -> _Told:
    ends = [run.split("-") for run in numbers.split(",")]
    width = len(ends[0][0]) if ends[0][0].startswith("0") else 0
    return _Told([(int(end[0]), int(end[-1])) for end in ends], width, is_cut)


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
