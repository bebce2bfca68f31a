"""Reads a host's facts in a process of its own, which may hang or crash: orders by standard input, facts by standard output."""

import resource
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from cwdp.audit import growth, subjects
from cwdp.audit.areas.all import notes_of
from cwdp.audit.live import Live
from cwdp.audit.notes import clipped
from cwdp.audit.recorded import Recorded
from cwdp.audit.recording import Recording
from cwdp.audit.source import Source
from cwdp.audit.unreadable import Unreadable
from cwdp.audit.wire import MOST_FRAME_BYTES, SUBJECTS, Order, Said, framed

MEMORY_BYTES = 2 << 30
"""Address space; a process that wants more ends by it, and nothing else does."""


def main() -> None:
    """Read what is ordered, one area after another."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    told, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints is not to come between frames
    carry_out(order, told)


def carry_out(order: Order, told: BinaryIO) -> None:
    """Read all areas of an order."""
    source = source_of(order)
    for area in order.areas:
        _tell(told, Said(area=area, begins=True))
        said = _read(area, order, source)
        if said.found is not None and said.first is not None:
            order = msgspec.structs.replace(order, found=said.found, first=said.first)
        _tell(told, said)


def source_of(order: Order) -> Source:
    """Where an order is to be read."""
    source: Source = Recorded(Path(order.root)) if order.root else Live()
    return Recording(source, Path(order.record)) if order.record else source


def _read(area: str, order: Order, source: Source) -> Said:
    try:
        if area == SUBJECTS:
            found = subjects.find(source, order.roles)
            return Said(area=area, found=found, first=growth.take(source, found))
        return Said(area=area, notes=notes_of(area, source, order.found, order.first))
    except Unreadable as reason:
        return Said(area=area, trouble=clipped(reason.message))
    except Exception as error:  # noqa: BLE001 - no area may keep the others from being read
        return Said(area=area, trouble=clipped(f"crashed: {type(error).__name__}: {error}"))


def _tell(told: BinaryIO, said: Said) -> None:
    frame = framed(said)
    if len(frame) > MOST_FRAME_BYTES:
        frame = framed(Said(area=said.area, trouble=f"more than {MOST_FRAME_BYTES >> 20} MiB of facts"))
    told.write(frame)
    told.flush()


if __name__ == "__main__":
    main()
