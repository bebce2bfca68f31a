"""NICs on the PCI bus, and bridges that stand between devices."""

import re
from collections.abc import Iterator

from cwdp.audit.areas import pcie
from cwdp.audit.notes import Notes, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import PCI, Found, Nic
from cwdp.audit.unreadable import Unreadable

BRIDGE = "0x0604"
"""PCI-to-PCI bridge (PCI Code and ID Assignment Specification)."""


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `pci`."""
    host = Notes("host")
    host.note("acs_bridges", lambda: _acs_bridges(source))
    yield host
    yield from (_nic(source, nic) for nic in found.nics if nic.pci)


def _acs_bridges(source: Source) -> list[str] | None:
    if not source.exists(PCI):
        return None
    return [
        address
        for address in source.names(PCI)
        if _is_bridge(source, address) and _redirects(source, address)
    ]


def _is_bridge(source: Source, address: str) -> bool:
    try:
        return source.text(f"{PCI}/{address}/class").startswith(BRIDGE)
    except Unreadable:
        return False


def _redirects(source: Source, address: str) -> bool:
    return pcie.redirects(source.data(f"{PCI}/{address}/config"))


def _nic(source: Source, nic: Nic) -> Notes:
    notes, folder = Notes("nic", nic.name), f"{PCI}/{nic.pci}"
    notes.note("pci_address", lambda: nic.pci)
    notes.note("device", lambda: f"{_ids(source, folder, '')} {_ids(source, folder, 'subsystem_')}")
    pcie.note_link(notes, source, nic.pci)
    notes.note("pcie_read_request_bytes", lambda: pcie.read_request_bytes(source.data(f"{folder}/config")))
    notes.note("pcie_payload_bytes", lambda: pcie.payload_bytes(source.data(f"{folder}/config")))
    notes.note("pcie_errors", lambda: _correctable(source.text(f"{folder}/aer_dev_correctable")))
    return notes


def _ids(source: Source, folder: str, of: str) -> str:
    numbers = (whole(source.text(f"{folder}/{of}{what}")) for what in ("vendor", "device"))
    return ":".join(f"{number:04x}" for number in numbers)


def _correctable(text: str) -> int:
    """The total of Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats."""
    total = re.search(r"^TOTAL_ERR_COR (\S+)$", text, re.MULTILINE)
    if total is None:
        raise Unreadable("the kernel does not tell")
    return whole(total[1])
