"""All areas, in the order in which they are read: what waits for counters to grow comes last."""

from collections.abc import Callable, Iterator

from cwdp.audit.areas import gpus, rdma
from cwdp.audit.areas.host import clock, memory, processors, software, system
from cwdp.audit.areas.nic import (
    counters,
    dcb,
    devlink,
    ecn,
    ethtool,
    interrupts,
    links,
    modules,
    nics,
    pci,
    routes,
)
from cwdp.audit.growth import First
from cwdp.audit.notes import Notes
from cwdp.audit.source import Source
from cwdp.audit.subjects import Found

Read = Callable[[Source, Found], Iterator[Notes]]
ReadTwice = Callable[[Source, Found, First], Iterator[Notes]]

ONCE: dict[str, Read] = {
    "system": system.read,
    "processors": processors.read,
    "memory": memory.read,
    "software": software.read,
    "clock": clock.read,
    "pci": pci.read,
    "interrupts": interrupts.read,
    "routes": routes.read,
    "links": links.read,
    "nics": nics.read,
    "ethtool": ethtool.read,
    "dcb": dcb.read,
    "ecn": ecn.read,
    "devlink": devlink.read,
    "modules": modules.read,
    "gpus": gpus.read,
}
TWICE: dict[str, ReadTwice] = {"counters": counters.read, "rdma": rdma.read}
AREAS = (*ONCE, *TWICE)


def notes_of(area: str, source: Source, found: Found, first: First) -> list[Notes]:
    """What an area notes of a host.

    Raises:
        Unreadable: nothing of it can be read.
    """
    each = ONCE[area](source, found) if area in ONCE else TWICE[area](source, found, first)
    return [one for one in each if one.facts or one.missing]
