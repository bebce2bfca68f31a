"""Congestion control of RoCEv2 in NICs, as NVIDIA's driver shows it: a folder for each end, a file for each priority."""

from collections.abc import Iterator
from functools import partial

from cwdp.audit.answers import Links
from cwdp.audit.notes import Notes, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import NET, Found
from cwdp.audit.unreadable import Unreadable

ENDS = {"ecn_receiver": "roce_np", "ecn_sender": "roce_rp"}
"""Notification point and reaction point (IEEE 802.1Qau's words, IBTA annex A17)."""

PRIORITIES = 8


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `ecn`: of NICs on a bus with an RDMA device there, or whose bond has one."""
    hardware = {port.nic for port in found.ports if port.pci}
    masters = _masters(source)
    for nic in found.nics:
        if nic.pci and hardware & {nic.name, masters.get(nic.name)}:
            notes = Notes("nic", nic.name)
            for fact, end in ENDS.items():
                notes.note(fact, partial(_priorities, source, nic.name, end))
            yield notes


def _masters(source: Source) -> dict[str, str]:
    """The interface that each is a port of."""
    try:
        links = source.ask(Links).links
    except Unreadable:
        return {}
    names = {link.index: link.name for link in links}
    return {link.name: names[link.master] for link in links if link.master in names}


def _priorities(source: Source, name: str, end: str) -> list[int]:
    folder = f"{NET}/{name}/ecn/{end}/enable"
    if not source.exists(folder):
        raise Unreadable("the driver does not tell")
    return [one for one in range(PRIORITIES) if whole(source.text(f"{folder}/{one}"))]
