"""Facts of where NICs are in the fabric, which the manager adds to those that hosts tell. Pure."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from cwdp.shared.audit.facts import HostFacts, Subject, Value
from cwdp.shared.bus.messages import nic_id
from manager.fabric.model import Model
from manager.fabric.routes import MARK
from manager.fabric.wiring import Miswired

NO_PATH = "no path from or to it is known"
SILENT = "its switch answers no traced packet"
NAMES = ("leaf", "leaf_expected")


def wired(
    facts: Iterable[HostFacts], model: Model, miswired: Iterable[Miswired], nics: Collection[str]
) -> list[HostFacts]:
    """Facts with those of the fabric, in place of what hosts may have told in their names.

    Args:
        facts: of hosts.
        model: the fabric.
        miswired: what seems to be plugged in wrongly.
        nics: those that probe, or ought to.
    """
    expected = {one.what: one.expected for one in miswired if one.expected is not None}
    rails = {leaf: number for number, leaves in enumerate(model.rails.values()) for leaf in leaves}

    def seen(host: str, subject: Subject) -> Subject:
        nic = nic_id(host, subject.name)
        if subject.kind != "nic" or nic not in nics:
            return subject
        known, missing = _of(nic, model.seats.get(nic, ()), expected, rails)
        others = {name: value for name, value in subject.facts.items() if name not in (*NAMES, "rail")}
        return replace(subject, facts=others | known, missing={**subject.missing, **missing})

    return [replace(each, subjects=[seen(each.host, one) for one in each.subjects]) for each in facts]


def _of(
    nic: str, leaves: Collection[str], expected: Mapping[str, str], rails: Mapping[str, int]
) -> tuple[dict[str, Value], dict[str, str]]:
    """The facts of a NIC, and why there are none."""
    if not leaves or any(leaf.startswith(MARK) for leaf in leaves):
        return {}, dict.fromkeys(NAMES, SILENT if leaves else NO_PATH)
    leaf = ", ".join(leaves)
    known: dict[str, Value] = {"leaf": leaf, "leaf_expected": expected.get(nic, leaf)}
    return known | ({"rail": rails[leaf]} if leaf in rails else {}), {}
