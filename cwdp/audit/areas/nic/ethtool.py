"""Speed, FEC, pause, rings, channels and offloads of NICs."""

from collections.abc import Iterator
from functools import partial

from cwdp.audit.answers import Ethtool
from cwdp.audit.notes import Notes, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import NET, Found
from cwdp.audit.unreadable import Unreadable
from cwdp.shared.audit.facts import Value

UNKNOWN_SPEED, UNKNOWN_DUPLEX = (1 << 32) - 1, 0xFF
DUPLEX = {0: "half", 1: "full"}
FEC = {49: "off", 50: "rs", 51: "baser", 74: "llrs"}
"""ETHTOOL_LINK_MODE_FEC_..._BIT."""

FACTS = {
    "speed_bps": "linkmodes",
    "duplex": "linkmodes",
    "autonegotiation": "linkmodes",
    "fec": "fec",
    "pause_rx": "pause",
    "pause_tx": "pause",
    "ring_rx": "rings",
    "ring_rx_max": "rings",
    "channels": "channels",
    "offloads": "features",
}
"""By which message each fact is told."""


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `ethtool`."""
    for nic in found.nics:
        notes = Notes("nic", nic.name)
        try:
            told = source.ask(Ethtool, nic.name)
        except Unreadable as reason:
            told = Ethtool(problems=dict.fromkeys(set(FACTS.values()), reason.message))
        for fact in FACTS:
            notes.note(fact, partial(_fact, fact, told))
        if "speed_bps" in notes.missing:
            _note_by_sysfs(notes, source)
        yield notes


def _note_by_sysfs(notes: Notes, source: Source) -> None:
    """Speed and duplex where netlink does not tell (Documentation/ABI/testing/sysfs-class-net), as before Linux 5.6."""
    folder = f"{NET}/{notes.name}"
    by_files = Notes("nic")
    by_files.note("speed_bps", lambda: _bps(whole(source.text(f"{folder}/speed"))))
    by_files.note("duplex", lambda: _known(source.text(f"{folder}/duplex"), tuple(DUPLEX.values())))
    notes.facts.update(by_files.facts)
    for fact in by_files.facts:
        notes.missing.pop(fact, None)


def _fact(fact: str, told: Ethtool) -> Value:
    message = FACTS[fact]
    if message in told.problems:
        raise Unreadable(told.problems[message])
    if fact == "offloads":
        return sorted(told.features)
    if fact == "channels":
        return _channels(told)
    number = told.numbers.get(NUMBERS[fact])
    if number is None:
        raise Unreadable("the driver does not tell")
    if fact == "speed_bps":
        return _bps(number)
    if fact == "duplex":
        return _known(DUPLEX.get(number, ""), tuple(DUPLEX.values()))
    if fact == "fec":
        return _known(FEC.get(number, ""), tuple(FEC.values()))
    return number if fact.startswith("ring") else number != 0


NUMBERS = {
    "speed_bps": "linkmodes.speed_mbps",
    "duplex": "linkmodes.duplex",
    "autonegotiation": "linkmodes.autonegotiation",
    "fec": "fec.active",
    "pause_rx": "pause.rx",
    "pause_tx": "pause.tx",
    "ring_rx": "rings.rx",
    "ring_rx_max": "rings.rx_max",
}


def _channels(told: Ethtool) -> int:
    """Queues that receive or do both."""
    found = [told.numbers[name] for name in ("channels.combined", "channels.rx") if name in told.numbers]
    if not found:
        raise Unreadable("the driver does not tell")
    return sum(found)


def _bps(mbps: int) -> int:
    if mbps in (-1, 0, UNKNOWN_SPEED):
        raise Unreadable("the driver does not tell")
    return mbps * 1_000_000


def _known(word: str, words: tuple[str, ...]) -> str:
    if word not in words:
        raise Unreadable("the driver does not tell")
    return word
