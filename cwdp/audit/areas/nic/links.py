"""Interfaces as rtnetlink has them: state, MTU, addresses, bonds."""

from collections.abc import Iterator

from cwdp.audit.answers import Addresses, Link, Links
from cwdp.audit.notes import Notes
from cwdp.audit.source import Source
from cwdp.audit.subjects import NET, Found
from cwdp.audit.unreadable import Unreadable

IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
SCOPE_UNIVERSE = 0
GIVEN = ("is_up", "has_carrier", "mtu_bytes")


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `links`."""
    by_name = {link.name: link for link in source.ask(Links).links}
    names = {link.index: link for link in by_name.values()}
    for nic in found.nics:
        notes = Notes("nic", nic.name)
        link = by_name.get(nic.name)
        if link is None:
            notes.lack(GIVEN, "no such interface")
        else:
            _note(notes, source, link, names)
        yield notes


def _note(notes: Notes, source: Source, link: Link, by_index: dict[int, Link]) -> None:
    notes.note("is_up", lambda: bool(link.flags & IFF_UP))
    notes.note("has_carrier", lambda: bool(link.flags & IFF_LOWER_UP))
    notes.note("mtu_bytes", lambda: link.mtu)
    notes.note("carrier_changes", lambda: _told(link.carrier_changes))
    notes.note("addresses", lambda: _addresses(source, link.index))
    master = by_index.get(link.master)
    if master is not None:
        notes.note("master", lambda: master.name)
        if master.kind == "bond":
            notes.note("bond_mode", lambda: _bond_mode(source, master.name))
    elif link.kind == "bond":
        notes.note("bond_mode", lambda: _bond_mode(source, link.name))


def _told(count: int | None) -> int:
    if count is None:
        raise Unreadable("the kernel does not tell")
    return count


def _addresses(source: Source, index: int) -> list[str]:
    return sorted(
        f"{one.address}/{one.prefix}"
        for one in source.ask(Addresses).addresses
        if one.index == index and one.scope == SCOPE_UNIVERSE
    )


def _bond_mode(source: Source, name: str) -> str:
    """The word in `802.3ad 4` (Documentation/networking/bonding.rst)."""
    text = source.text(f"{NET}/{name}/bonding/mode")
    return text.split()[0] if text else ""
