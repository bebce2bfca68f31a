"""Transceivers and cables by their memory: SFF-8472 (SFP), SFF-8636 (QSFP28, QSFP56), CMIS (QSFP-DD, OSFP, QSFP112)."""

import math
from collections.abc import Iterator

from msgspec import Struct

from cwdp.audit.answers import Module
from cwdp.audit.notes import Notes
from cwdp.audit.source import Source
from cwdp.audit.subjects import NET, Found
from cwdp.audit.unreadable import Unreadable

FACTS = ("module", "module_serial", "module_temperature_c", "module_rx_power_dbm", "module_tx_power_dbm")
MEMORY_BYTES = 256
MILLIWATT = 10_000
"""Powers are in tenths of a microwatt."""

DARK, DARK_DBM = bytes(2), -40.0
"""Told for no light at all, whose logarithm there is not."""

COPPER_TECHNOLOGIES = range(0xA, 0x10)
"""Device technologies of SFF-8636 (byte 147, bits 7:4) and CMIS (byte 212) that are copper's."""


class Layout(Struct, frozen=True):
    """Where things are.

    Attributes:
        vendor, part, serial: their first byte; 16 bytes each.
        temperature, rx, tx: the first byte of monitors, `rx` and `tx` two bytes a lane.
        lanes: how many.
        in_page: of what these monitors are in: `memory`, `lanes`, `diagnostics`; the temperature of CMIS is in memory.
    """

    vendor: int
    part: int
    serial: int
    temperature: int
    rx: int
    tx: int
    lanes: int
    in_page: str


SFP = Layout(20, 40, 68, 96, 104, 102, 1, "diagnostics")
QSFP = Layout(148, 168, 196, 22, 34, 50, 4, "memory")
CMIS_4 = Layout(129, 148, 166, 14, 58, 26, 4, "lanes")
CMIS_8 = Layout(129, 148, 166, 14, 58, 26, 8, "lanes")
"""In page 11h transmitted power begins at byte 154, received at 186: 26 and 58 of the page's own."""

LAYOUTS = {
    0x03: SFP,
    0x0C: QSFP,
    0x0D: QSFP,
    0x11: QSFP,
    0x18: CMIS_8,
    0x19: CMIS_8,
    0x1E: CMIS_4,
    0x1F: CMIS_8,
}
"""By the identifier of SFF-8024, table 4-1."""


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `modules`; of hardware only."""
    for nic in found.nics:
        if source.exists(f"{NET}/{nic.name}/device"):
            notes = Notes("nic", nic.name)
            try:
                _note(notes, source.ask(Module, nic.name))
            except Unreadable as reason:
                notes.lack(FACTS, reason.message)
            yield notes


def _note(notes: Notes, told: Module) -> None:
    memory = _bytes(told.memory)
    if len(memory) < MEMORY_BYTES:
        raise Unreadable("the memory of the transceiver is cut")
    layout = LAYOUTS.get(memory[0])
    if layout is None:
        raise Unreadable(f"a transceiver of kind {memory[0]:#04x}, which is not known")
    name = f"{_text(memory, layout.vendor)} {_text(memory, layout.part)}".strip()
    notes.note("module", lambda: name)
    notes.note("module_serial", lambda: _text(memory, layout.serial))
    if not _is_copper(memory, layout):
        _note_monitors(notes, told, memory, layout)


def _note_monitors(notes: Notes, told: Module, memory: bytes, layout: Layout) -> None:
    page = memory if layout.in_page == "memory" else _bytes(getattr(told, layout.in_page))
    warm = memory if layout.in_page == "lanes" else page
    notes.note("module_temperature_c", lambda: _temperature(warm, layout.temperature))
    notes.note("module_rx_power_dbm", lambda: _powers(page, layout.rx, _lanes(page, layout)))
    notes.note("module_tx_power_dbm", lambda: _powers(page, layout.tx, _lanes(page, layout)))


def _is_copper(memory: bytes, layout: Layout) -> bool:
    """SFF-8472: byte 8, bits 3:2 are of active and passive cables."""
    if layout is SFP:
        return bool(memory[8] & 0x0C)
    technology = memory[147] >> 4 if layout is QSFP else memory[212]
    return technology in COPPER_TECHNOLOGIES


def _bytes(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError as error:
        raise Unreadable("the memory of the transceiver is not in hexadecimal digits") from error


def _text(memory: bytes, at: int) -> str:
    text = memory[at : at + 16].decode("ascii", errors="replace").strip(" \0")
    return "".join(letter for letter in text if letter.isprintable())


def _temperature(page: bytes, at: int) -> float:
    """In 1/256 of a degree, two's complement."""
    return round(int.from_bytes(_word(page, at), "big", signed=True) / 256, 1)


def _lanes(page: bytes, layout: Layout) -> int:
    """How many are in use: those behind the last that sends or receives light are not; all where none does."""
    lit = (
        lane
        for lane in range(layout.lanes)
        if any(_word(page, at + 2 * lane) != DARK for at in (layout.rx, layout.tx))
    )
    return max(lit, default=layout.lanes - 1) + 1


def _powers(page: bytes, at: int, lanes: int) -> list[float]:
    return [_dbm(int.from_bytes(_word(page, at + 2 * lane), "big")) for lane in range(lanes)]


def _word(page: bytes, at: int) -> bytes:
    if len(page) < at + 2:
        raise Unreadable("the transceiver does not tell")
    return page[at : at + 2]


def _dbm(tenths_of_microwatt: int) -> float:
    if not tenths_of_microwatt:
        return DARK_DBM
    return round(10 * math.log10(tenths_of_microwatt / MILLIWATT), 2)
