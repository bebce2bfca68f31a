"""What is expected of a single value: each expectation as a function of the value. Pure.

| expectation | holds of |
| --- | --- |
| `value` | the value itself; lists count as sets, but those whose order means something |
| `one_of` | a value that is listed |
| `min`, `max` | a number; of a list of numbers, each of them |
| `version_min` | a text whose dotted version is no older; a text that is no version is not judged |
| `contains` | a list with all that is named; a name may be a pattern (`fnmatch`) that some member fits |
| `excludes` | a list with nothing that is named; patterns as above |
| `equals_fact` | a value that another fact has too |
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest

from manager.audit.checks.model import FACTS, Check, Plain
from manager.audit.judging.values import Key, shown

_VERSION = re.compile(r"(?:[A-Za-z_]{1,24}[-_ ]?)?(\d{1,9}(?:[.\-_+~]\d{1,9})*)")

Holds = Callable[[Key], bool | None]
"""Whether a value is as expected; None where that cannot be said."""


def version(text: str) -> tuple[int, ...] | None:
    """The numbers of a dotted version at the begin of a text; None where there is none.

    A word may stand before it: `28.39.1002 (MT_0000000838)`, `6.1.0-18-amd64`, `OFED-23.10-1.1.9`, `v5`.
    """
    found = _VERSION.match(text)
    return tuple(map(int, re.split(r"[.\-_+~]", found[1]))) if found else None


def is_older(mine: Sequence[int], least: Sequence[int]) -> bool:
    """Whether a version is older than another; numbers that one has less count as 0."""
    for a, b in zip_longest(mine, least, fillvalue=0):
        if a != b:
            return a < b
    return False


def holds(check: Check) -> Holds:
    """The expectation of a check that needs no other value."""
    return _HOLDS[check.expectation](check)


def _value(check: Check) -> Holds:
    if isinstance(check.wanted, tuple):
        if FACTS[check.fact].is_ordered:
            return lambda value: value == check.wanted
        wanted = frozenset(check.wanted)
        return lambda value: isinstance(value, tuple) and frozenset(value) == wanted
    return lambda value: value == check.wanted


def _one_of(check: Check) -> Holds:
    wanted = frozenset(_named(check))
    return lambda value: value in wanted


def _min(check: Check) -> Holds:
    least = _number(check)
    return lambda value: min(_numbers(value), default=least) >= least


def _max(check: Check) -> Holds:
    most = _number(check)
    return lambda value: max(_numbers(value), default=most) <= most


def _version_min(check: Check) -> Holds:
    least = version(str(check.wanted)) or ()

    def is_new_enough(value: Key) -> bool | None:
        mine = version(str(value))
        return None if mine is None else not is_older(mine, least)

    return is_new_enough


def _contains(check: Check) -> Holds:
    wanted = _named(check)
    return lambda value: all(_is_among(each, value) for each in wanted)


def _excludes(check: Check) -> Holds:
    wanted = _named(check)
    return lambda value: not any(_is_among(each, value) for each in wanted)


_HOLDS: dict[str, Callable[[Check], Holds]] = {
    "value": _value,
    "one_of": _one_of,
    "min": _min,
    "max": _max,
    "version_min": _version_min,
    "contains": _contains,
    "excludes": _excludes,
}


def fits_condition(value: Key, wanted: Iterable[Plain]) -> bool:
    """Whether a fact has one of some values; or holds one, if it is a list."""
    if isinstance(value, tuple):
        return any(_is_among(each, value) for each in wanted)
    return value in wanted


def expected(check: Check) -> str:
    """What a check expects, in words."""
    wanted = check.wanted
    if check.expectation == "value":
        return shown(wanted)
    if check.expectation == "equals_fact":
        return f"the same as {wanted}"
    if check.expectation == "same_in_group":
        return "the same on all hosts of the group"
    words = {
        "one_of": "one of",
        "min": "at least",
        "max": "at most",
        "version_min": "version",
        "contains": "with",
        "excludes": "without",
    }
    said = f"{words[check.expectation]} {shown(wanted)}"
    return f"{said} or newer" if check.expectation == "version_min" else said


def _named(check: Check) -> tuple[Plain, ...]:
    return check.wanted if isinstance(check.wanted, tuple) else (check.wanted,)


def _number(check: Check) -> float:
    assert isinstance(check.wanted, int | float)
    return check.wanted


def _numbers(value: Key) -> Sequence[float]:
    return value if isinstance(value, tuple) else (value,)  # type: ignore[return-value]


def _is_among(wanted: Plain, value: Key) -> bool:
    listed = value if isinstance(value, tuple) else (value,)
    if isinstance(wanted, str):
        return any(fnmatchcase(each, wanted) for each in listed if isinstance(each, str))
    return wanted in listed
