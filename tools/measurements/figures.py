"""Figures out of a measurement's JSON: found, judged by their target, and written for people."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from cwdp.errors import CwdpError
from tools.measurements.catalogue import Row

NONE = "-"
LACKING = "**not in the result**"
_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def pick(found: Any, path: str) -> list[float | None]:
    """The numbers that a path leads to.

    A path such as `arms[arm=cwdp&load=0.6].stall_p99_ns` has keys of objects, and in brackets what the items of a list
    must have; `[*]` are all items. Both may be patterns: `[name=clos_*].value` are the values of all such items. A list of
    numbers at the end is all of them.

    Raises:
        CwdpError: there is nothing, or no number.
    """
    nodes = [found]
    for step in _STEP.finditer(path):
        nodes = [inner for node in nodes for inner in _step(node, step, path)]
    flat = [inner for node in nodes for inner in (node if isinstance(node, list) else [node])]
    if not flat or not all(_is_number(value) for value in flat):
        raise _nothing(path)
    return flat


def values(row: Row, found: Any) -> list[float]:
    """A row's figures, in its unit; None of them where the measurement has no number to tell.

    Raises:
        CwdpError: a path leads to nothing.
    """
    picked = [value for value in pick(found, row.figure) if value is not None]
    if row.over is None:
        return [value * row.times for value in picked]
    over = [value for value in pick(found, row.over) if value is not None]
    if len(over) == 1:
        over *= len(picked)
    if len(over) != len(picked) or not all(over):
        raise _nothing(row.over)
    return [value / by * row.times for value, by in zip(picked, over, strict=True)]


def is_missed(row: Row, shown: list[float]) -> bool:
    """Whether one of a row's figures is beyond its target, before rounding."""
    too_large = row.at_most is not None and any(value > row.at_most for value in shown)
    return too_large or (row.at_least is not None and any(value < row.at_least for value in shown))


def measured(row: Row, found: Any) -> str:
    """What was measured, from the least to the largest; bold if the target is missed, or there is no such figure."""
    try:
        shown = values(row, found)
    except CwdpError:
        return LACKING
    if not shown:
        return NONE
    texts = list(dict.fromkeys(f"{value:,.{row.digits}f}" for value in (min(shown), max(shown))))
    text = _with_unit(" to ".join(texts), row)
    return f"**{text}**" if is_missed(row, shown) else text


def target(row: Row) -> str:
    """A row's target; nothing if it has none."""
    bounds = (("at most", row.at_most), ("at least", row.at_least))
    texts = (f"{word} {bound:,g}" if bound else "0" for word, bound in bounds if bound is not None)
    return ", ".join(_with_unit(text, row) for text in texts)


def _step(node: Any, step: "re.Match[str]", path: str) -> Iterator[Any]:
    wanted, key = step.groups()
    if key is not None:
        inner = [node[name] for name in node if fnmatchcase(name, key)] if isinstance(node, dict) else []
    else:
        pairs = [pair.partition("=")[::2] for pair in wanted.split("&")] if wanted != "*" else []
        inner = [item for item in node if _has(item, pairs)] if isinstance(node, list) else []
    if not inner:
        raise _nothing(path)
    yield from inner


def _has(item: dict[str, Any], pairs: list[tuple[str, str]]) -> bool:
    return all(name in item and fnmatchcase(_text(item[name]), wanted) for name, wanted in pairs)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _with_unit(text: str, row: Row) -> str:
    return f"{text} {row.unit}".strip()


def _nothing(path: str) -> CwdpError:
    return CwdpError(
        f"there is no figure at {path!r}", "Compare `tools/measurements/tables` with what the command prints."
    )
