"""Errors that the kernel counts for NICs, and which of them grow."""

from collections.abc import Iterator
from functools import partial

from cwdp.audit import growth
from cwdp.audit.growth import First
from cwdp.audit.notes import Notes, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import NET, Found

FACTS = ("rx_errors", "rx_crc_errors", "tx_errors")


def read(source: Source, found: Found, first: First) -> Iterator[Notes]:
    """Facts of the area `counters`."""
    growth.wait(source, first)
    later = source.later()
    for nic in found.nics:
        notes = Notes("nic", nic.name)
        for fact in FACTS:
            notes.note(fact, partial(_counter, source, nic.name, fact))
        growth.note(notes, first, growth.of_nic(later, nic.name))
        yield notes


def _counter(source: Source, name: str, counter: str) -> int:
    return whole(source.text(f"{NET}/{name}/statistics/{counter}"))
