"""Two audits, or two readings of facts, held against each other: what is new, gone, or another. Pure."""

from collections.abc import Iterable

from msgspec import Struct

from cwdp.shared.audit.catalogue import CATALOGUE
from cwdp.shared.audit.facts import HostFacts, Subject
from manager.audit.judging.values import shown
from manager.audit.results import Result

RESTLESS = frozenset(
    {
        "host.bus_rtt_ns",
        "host.clock_bound_ns",
        "nic.module_rx_power_dbm",
        "nic.module_temperature_c",
        "nic.module_tx_power_dbm",
        "gpu.pcie_gtps",
        "gpu.throttled_by",
    }
)
"""Facts that are never twice the same, or depend on what a host does just now."""

OF_NETWORK = frozenset(name for name, fact in CATALOGUE.items() if fact.area in ("reach", "fabric"))
"""Facts that audits of the network alone have: compared where both readings have them."""


class Changes(Struct, frozen=True):
    """Findings of two audits.

    Attributes:
        new: which only the later has.
        gone: which only the earlier has.
        changed: which both have, with another verdict, or something else found or expected; the earlier first.
    """

    new: list[Result]
    gone: list[Result]
    changed: list[tuple[Result, Result]]


class FactChange(Struct, frozen=True):
    """A fact that is not as it was; `before` or `after` is "" where it was not told.

    Of a subject that is new or gone, `fact` is its kind.
    """

    host: str
    subject: str
    fact: str
    before: str
    after: str


def compare(before: Iterable[Result], after: Iterable[Result]) -> Changes:
    """What became of the findings. Hosts of a divided group may change without making another finding of it."""
    old, new = _by_place(before), _by_place(after)
    return Changes(
        [result for place, result in new.items() if place not in old],
        [result for place, result in old.items() if place not in new],
        [
            (old[place], result)
            for place, result in new.items()
            if place in old and _differ(old[place], result)
        ],
    )


def changed_facts(before: Iterable[HostFacts], after: Iterable[HostFacts]) -> list[FactChange]:
    """Facts of hosts that both readings have, by host, subject and name; but those that change all the time (`RESTLESS`)."""
    old = {facts.host: facts for facts in before}
    found = []
    for facts in after:
        if facts.host in old:
            found += _of_host(old[facts.host], facts)
    return sorted(found, key=lambda change: (change.host, change.fact, change.subject))


def _by_place(results: Iterable[Result]) -> dict[tuple[str, ...], Result]:
    places: dict[tuple[str, ...], Result] = {}
    for result in results:
        where = result.group if result.verdict == "divided" or result.is_shared else result.host
        places[result.check, where, result.subject, result.reason if not result.fact else ""] = result
    return places


def _differ(a: Result, b: Result) -> bool:
    return (a.verdict, a.found, a.expected) != (b.verdict, b.found, b.expected)


def _of_host(before: HostFacts, after: HostFacts) -> list[FactChange]:
    old, new = _by_name(before), _by_name(after)
    found = [
        FactChange(
            after.host,
            name,
            kind,
            "" if (kind, name) in new else "there",
            "there" if (kind, name) in new else "",
        )
        for kind, name in sorted(old.keys() ^ new.keys())
    ]
    for place in sorted(old.keys() & new.keys()):
        found += _of_subject(after.host, old[place], new[place])
    return found


def _by_name(facts: HostFacts) -> dict[tuple[str, str], Subject]:
    return {(subject.kind, subject.name): subject for subject in facts.subjects}


def _of_subject(host: str, before: Subject, after: Subject) -> list[FactChange]:
    return [
        FactChange(host, after.name, fact, _said(before, name), _said(after, name))
        for name in sorted(before.facts.keys() | after.facts.keys())
        if (fact := f"{after.kind}.{name}") not in RESTLESS
        if fact not in OF_NETWORK or (name in before.facts and name in after.facts)
        if _value(before, name) != _value(after, name)
    ]


def _value(subject: Subject, name: str) -> object:
    value = subject.facts.get(name)
    if isinstance(value, bool):
        return str(value)
    return tuple(value) if isinstance(value, list | tuple) else value


def _said(subject: Subject, name: str) -> str:
    return shown(subject.facts[name]) if name in subject.facts else ""
