"""Memory, its pages, and what moves them."""

import re
from collections.abc import Iterator

from cwdp.audit.notes import Notes, shown, table, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import Found
from cwdp.audit.unreadable import Unreadable

HUGEPAGES = "sys/kernel/mm/hugepages"
TRANSPARENT = "sys/kernel/mm/transparent_hugepage/enabled"
BALANCING = "proc/sys/kernel/numa_balancing"


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `memory`."""
    del found
    notes = Notes("host")
    notes.note("memory_bytes", lambda: _bytes(source, "MemTotal"))
    notes.note("swap_bytes", lambda: _bytes(source, "SwapTotal"))
    notes.note("hugepages_2m", lambda: whole(source.text(f"{HUGEPAGES}/hugepages-2048kB/nr_hugepages")))
    notes.note("hugepages_1g", lambda: whole(source.text(f"{HUGEPAGES}/hugepages-1048576kB/nr_hugepages")))
    notes.note("transparent_hugepages", lambda: _chosen(source.text(TRANSPARENT)))
    notes.note("numa_balancing", lambda: whole(source.text(BALANCING)) != 0)
    yield notes


def _bytes(source: Source, name: str) -> int:
    """A line of /proc/meminfo (proc(5)), which is in KiB."""
    told = table(source.text("proc/meminfo"))
    if name not in told:
        raise Unreadable("the kernel does not tell")
    return whole(told[name].removesuffix(" kB")) * 1024


def _chosen(text: str) -> str:
    """The word in brackets, as in `always [madvise] never`."""
    word = re.search(r"\[(\w+)\]", text)
    if word is None:
        raise Unreadable(f"not understood: '{shown(text)}'")
    return word[1]
