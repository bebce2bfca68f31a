"""Values that hosts tell: whether they are sane, in a form that can be compared and counted, and in words.

A host may tell anything. What is not of its fact's kind, or larger than any such fact is, is garbled: nothing is concluded from it.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from manager.audit.checks.model import FACTS

MOST_TEXT = 4096
MOST_LISTED = 4096
MOST_SHOWN = 120
_SEPARATOR = "\x1f"
Key = bool | int | float | str | tuple[int | float | str, ...]

_TYPES: dict[str, frozenset[type]] = {
    "flag": frozenset({bool}),
    "number": frozenset({int, float}),
    "text": frozenset({str}),
    "numbers": frozenset({list, tuple}),
    "texts": frozenset({list, tuple}),
}
_NONE = type(None)


class Garbled:
    """In the place of a value that is not sane."""

    def __init__(self, why: str) -> None:
        self.why = why


Known = Key | Garbled | None


def column(name: str, values: list[object]) -> list[Known]:
    """Values of a fact as they can be counted: lists as tuples, sorted where their order means nothing, what is not sane as `Garbled`, None as it is.

    The common case, all of the right type, costs a pass over the types and one over the values. Equal values become one
    object: what hosts tell lies all over the memory, and is looked at there no more than once.
    """
    fact = FACTS[name]
    kind = fact.kind
    types = set(map(type, values))
    if not types <= _TYPES[kind] | {_NONE}:
        return [sane(value, kind, is_ordered=fact.is_ordered) for value in values]
    if kind in ("numbers", "texts"):
        return _lists(values, kind, is_ordered=fact.is_ordered)
    if kind == "flag":
        return values  # type: ignore[return-value]
    known: dict[object, object] = {}
    told = list(map(known.setdefault, values, values))
    known.pop(None, None)
    if all(map(_is_sane, known)):
        return told  # type: ignore[return-value]
    return [sane(value, kind) for value in values]


def _lists(values: Sequence[object], kind: str, *, is_ordered: bool) -> list[Known]:
    """A column of lists, each that differs looked at once. Texts are joined for that: it costs half of hashing each."""
    told: list[object]
    try:
        if kind == "texts":
            told = [_SEPARATOR.join(value) if value else value if value is None else () for value in values]  # type: ignore[arg-type]
        else:
            told = [None if value is None else tuple(value) for value in values]  # type: ignore[arg-type]
        first = dict(zip(told, values, strict=True))
    except TypeError:  # something in them that cannot be hashed, or is no text
        return [sane(value, kind, is_ordered=is_ordered) for value in values]
    known = {
        key: None if value is None else _listed(value, kind, is_ordered=is_ordered)
        for key, value in first.items()
    }
    if kind == "texts" and not all(map(_is_clear, known.items())):
        return [sane(value, kind, is_ordered=is_ordered) for value in values]
    return [known[key] for key in told]


def _is_clear(told: tuple[object, Known]) -> bool:
    """Whether what a list became is that of no other list: no text in it has the separator."""
    key, value = told
    return not isinstance(key, str) or (isinstance(value, tuple) and key.count(_SEPARATOR) == len(value) - 1)


def sane(value: object, kind: str, *, is_ordered: bool = False) -> Known:
    """One value, as above."""
    if value is None:
        return None
    if kind in ("numbers", "texts"):
        return _listed(value, kind, is_ordered=is_ordered)
    if type(value) not in _TYPES[kind]:
        return Garbled(f"{_type_of(value)} where there must be {_IN_WORDS[kind]}")
    if isinstance(value, bool | int | float | str) and (kind == "flag" or _is_sane(value)):
        return value
    return Garbled("a text that is too long" if isinstance(value, str) else "a number that is none")


def _is_sane(value: object) -> bool:
    """Of a single number or text."""
    if isinstance(value, str):
        return len(value) <= MOST_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < 1 << 70


def _listed(value: object, kind: str, *, is_ordered: bool) -> Known:
    if not isinstance(value, list | tuple):
        return Garbled(f"{_type_of(value)} where there must be {_IN_WORDS[kind]}")
    if len(value) > MOST_LISTED:
        return Garbled(f"a list of {len(value)}")
    element = "text" if kind == "texts" else "number"
    if set(map(type, value)) <= _TYPES[element] and _are_sane(value, kind):
        return tuple(value if is_ordered else sorted(value))
    return Garbled(f"a list with what is no {element}")


def _are_sane(values: Sequence[Any], kind: str) -> bool:
    if kind == "texts":
        return max(map(len, values), default=0) <= MOST_TEXT
    try:
        return all(map(math.isfinite, values))
    except OverflowError:
        return False


_IN_WORDS = {
    "flag": "true or false",
    "number": "a number",
    "text": "a text",
    "numbers": "numbers",
    "texts": "texts",
}


def _type_of(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return names.get(type(value), "a list" if isinstance(value, list | tuple) else "something else")


def shown(value: object) -> str:
    """A value in words: one line, no control characters, not longer than `MOST_SHOWN` characters."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        found, length = [], 0
        for one in value:
            found.append(shown(one))
            length += len(found[-1]) + 2
            if length > MOST_SHOWN:
                break
        return _short(", ".join(found)) if value else "nothing"
    if isinstance(value, float):
        return f"{value:.10g}"
    return printable(str(value)[: 2 * MOST_SHOWN]) or "an empty text"


def printable(text: str) -> str:
    """A text of others on one line: control and formatting characters as `?`, shortened."""
    clean = "".join(
        "?" if unicodedata.category(each)[0] == "C" else each for each in re.sub(r"\s", " ", text)
    )
    return _short(clean)


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"
