"""The kernel's clock, who disciplines it, and cwdp's."""

from collections.abc import Iterator

from cwdp.audit.answers import KernelClock, Own
from cwdp.audit.notes import Notes
from cwdp.audit.source import Source
from cwdp.audit.subjects import Found
from cwdp.audit.unreadable import Unreadable
from cwdp.shared.audit.daemons import DAEMONS

SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
MOST_PROCESSES = 1 << 16
TIME_ERROR, STA_UNSYNC = 5, 0x40


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `clock`."""
    del found
    notes = Notes("host")
    notes.note("clock_source", lambda: source.text(SOURCE))
    notes.note("clock_daemons", lambda: _daemons(source))
    notes.note("clock_synchronised", lambda: _is_synchronised(source.ask(KernelClock)))
    notes.note("clock_bound_ns", lambda: _bound_ns(source.ask(Own)))
    yield notes


def _daemons(source: Source) -> list[str]:
    found = set()
    for process in source.names("proc", MOST_PROCESSES):
        if process.isdigit():
            try:
                found.add(source.text(f"proc/{process}/comm"))
            except Unreadable:
                continue
    return sorted({DAEMONS[name] for name in found & DAEMONS.keys()})


def _is_synchronised(clock: KernelClock) -> bool:
    """As timedatectl(1) has it."""
    return clock.state != TIME_ERROR and not clock.status & STA_UNSYNC


def _bound_ns(own: Own) -> int:
    if not own.bounds_ns:
        raise Unreadable(own.problem or "no dataplane is loaded here")
    return max(own.bounds_ns.values())
