"""Embedded switch and stored firmware of NICs (Documentation/networking/devlink)."""

from collections.abc import Iterator
from functools import partial

from cwdp.audit.answers import Devlink
from cwdp.audit.notes import Notes
from cwdp.audit.source import Source
from cwdp.audit.subjects import Found
from cwdp.audit.unreadable import Unreadable

MODES = {0: "legacy", 1: "switchdev"}
FIRMWARE = ("fw.version", "fw", "fw.mgmt")
"""What the firmware is called; devlink-info.rst."""


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `devlink`."""
    for nic in found.nics:
        if nic.pci:
            notes = Notes("nic", nic.name)
            try:
                told = source.ask(Devlink, nic.pci)
            except Unreadable as reason:
                told = Devlink(problems=dict.fromkeys(("eswitch", "info"), reason.message))
            notes.note("eswitch_mode", partial(_mode, told))
            notes.note("firmware_stored", partial(_stored, told))
            yield notes


def _mode(told: Devlink) -> str:
    if told.eswitch_mode not in MODES:
        raise Unreadable(told.problems.get("eswitch", "the driver does not tell"))
    return MODES[told.eswitch_mode]


def _stored(told: Devlink) -> str:
    found = [told.stored[name] for name in FIRMWARE if name in told.stored] if told.stored else []
    if not found:
        raise Unreadable(told.problems.get("info", "the driver does not tell"))
    return found[0]
