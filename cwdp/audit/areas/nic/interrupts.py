"""Interrupts of NICs, and which processors they may go to."""

from collections.abc import Iterator

from cwdp.audit.notes import Notes, cpus, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import PCI, Found, Nic

NODES, IRQS = "sys/devices/system/node", "proc/irq"


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `interrupts`."""
    yield from (_nic(source, nic) for nic in found.nics if nic.pci)


def _nic(source: Source, nic: Nic) -> Notes:
    notes = Notes("nic", nic.name)
    notes.note("irqs", lambda: len(_irqs(source, nic)))
    notes.note("irqs_off_node", lambda: _off_node(source, nic))
    return notes


def _irqs(source: Source, nic: Nic) -> list[str]:
    """Documentation/ABI/testing/sysfs-bus-pci: a file for each vector."""
    return source.names(f"{PCI}/{nic.pci}/msi_irqs")


def _off_node(source: Source, nic: Nic) -> int | None:
    """By Documentation/core-api/irq/irq-affinity.rst; None where the device is near to no node."""
    node = whole(source.text(f"{PCI}/{nic.pci}/numa_node"))
    if node < 0:
        return None
    near = cpus(source.text(f"{NODES}/node{node}/cpulist"))
    allowed = (cpus(source.text(f"{IRQS}/{irq}/smp_affinity_list")) for irq in _irqs(source, nic))
    return sum(near.isdisjoint(one) for one in allowed)
