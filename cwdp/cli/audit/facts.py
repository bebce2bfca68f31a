"""Facts of a host as tables: of like subjects together, with the value that they share once."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cwdp.shared.audit.catalogue import CATALOGUE
from cwdp.shared.audit.facts import HostFacts, Subject, Value

TITLES = {"host": "host", "nic": "NICs", "rdma": "RDMA ports", "gpu": "GPUs"}
NOT_AVAILABLE = "not available: "


def render(found: HostFacts) -> RenderableType:
    """All facts, subjects of a kind and a role in one table; then what could not be read at all."""
    parts: list[RenderableType] = []
    for kind, role in dict.fromkeys((one.kind, one.role) for one in found.subjects):
        them = [one for one in found.subjects if (one.kind, one.role) == (kind, role)]
        parts += [Text(_title(found, them), "bold"), _table(them), Text()]
    parts += [Text(f"{area}: {why}", "red") for area, why in found.troubles.items()]
    return Group(*parts)


def _title(found: HostFacts, them: list[Subject]) -> str:
    first = them[0]
    if first.kind == "host":
        return found.host
    role = f", {first.role}" if first.role else ""
    return f"{TITLES[first.kind]}{role}: {', '.join(one.name for one in them)}"


def _table(them: list[Subject]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column("fact", no_wrap=True)
    table.add_column("value", overflow="fold")
    if len(them) > 1:
        table.add_column("of", overflow="fold")
    for fact in _facts_of(them):
        for text, names in _values(them, fact):
            style = "dim" if text.startswith(NOT_AVAILABLE) else ""
            of = [] if len(them) == 1 else [Text("" if len(names) == len(them) else " ".join(names))]
            table.add_row(Text(fact), Text(text, style), *of)
    return table


def _facts_of(them: Iterable[Subject]) -> Iterator[str]:
    """Names of the facts that there are of them, in the order of the catalogue."""
    them = list(them)
    for full in CATALOGUE:
        kind, _, fact = full.partition(".")
        if any(one.kind == kind and (fact in one.facts or fact in one.missing) for one in them):
            yield fact


def _values(them: Iterable[Subject], fact: str) -> Iterable[tuple[str, list[str]]]:
    """Each value that there is, and who has it."""
    found: dict[str, list[str]] = {}
    for one in them:
        if fact in one.facts:
            found.setdefault(_text(fact, one.facts[fact]), []).append(one.name)
        elif fact in one.missing:
            found.setdefault(f"{NOT_AVAILABLE}{one.missing[fact]}", []).append(one.name)
    return found.items()


def _text(fact: str, value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        is_count = fact.endswith(("_bytes", "_errors"))
        return f"{value:,}" if is_count else f"{value:g}" if isinstance(value, float) else _rate(fact, value)
    return ", ".join(map(str, value)) or "none"


def _rate(fact: str, value: int) -> str:
    return f"{value / 1e9:g} Gb/s" if fact.endswith("_bps") else str(value)
