"""NICs' drivers."""

from collections.abc import Iterator

from cwdp.audit.answers import Driver
from cwdp.audit.notes import Notes
from cwdp.audit.source import Source
from cwdp.audit.subjects import NET, Found
from cwdp.audit.unreadable import Unreadable


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `nics`."""
    for nic in found.nics:
        notes = Notes("nic", nic.name)
        _note(notes, source)
        yield notes


def _note(notes: Notes, source: Source) -> None:
    try:
        told = source.ask(Driver, notes.name)
    except Unreadable as reason:
        notes.note("driver", lambda: _by_sysfs(source, notes.name))
        notes.lack(("driver_version", "firmware"), reason.message)
        return
    notes.note("driver", lambda: told.driver)
    notes.note("driver_version", lambda: _told(told.version))
    notes.note("firmware", lambda: _told(told.firmware))


def _by_sysfs(source: Source, name: str) -> str:
    return source.target(f"{NET}/{name}/device/driver").rpartition("/")[2]


def _told(text: str) -> str:
    if text in ("", "N/A"):
        raise Unreadable("the driver does not tell")
    return text
