"""What sysfs and the configuration space of a PCI device tell (Documentation/ABI/testing/sysfs-bus-pci; PCIe Base Specification 6.0)."""

import re
import struct
from collections.abc import Iterator

from cwdp.audit.notes import Notes, shown, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import PCI
from cwdp.audit.unreadable import Unreadable

READABLE_BYTES = 64
"""Of a configuration space by others than root."""

CAPABILITIES_AT, STATUS_AT, HAS_CAPABILITIES = 0x34, 0x06, 0x10
EXPRESS, DEVICE_CONTROL = 0x10, 0x08
"""Number of the PCI Express capability, and where in it the device's control word is (7.5.3)."""

EXTENDED_AT, ACS, ACS_CONTROL, REQUEST_REDIRECT = 0x100, 0x000D, 0x06, 1 << 2
"""Access Control Services: number of the extended capability, its control word and its bit (7.7.11)."""

MOST_CAPABILITIES = 64
SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
SMALLEST_BYTES = 128


def note_link(notes: Notes, source: Source, address: str) -> None:
    """Take down speed and width of a device's link, and its NUMA node."""
    folder = f"{PCI}/{address}"
    notes.note("pcie_gtps", lambda: speed(source.text(f"{folder}/current_link_speed")))
    notes.note("pcie_gtps_max", lambda: speed(source.text(f"{folder}/max_link_speed")))
    notes.note("pcie_width", lambda: width(source.text(f"{folder}/current_link_width")))
    notes.note("pcie_width_max", lambda: width(source.text(f"{folder}/max_link_width")))
    notes.note("numa_node", lambda: whole(source.text(f"{folder}/numa_node")))


def speed(text: str) -> float:
    """GT/s in `16.0 GT/s PCIe`, or `8 GT/s` of older kernels.

    Raises:
        Unreadable: none is told.
    """
    found = SPEED.match(text)
    if found is None:
        raise Unreadable(
            "the device does not tell" if text == "Unknown speed" else f"not a speed: '{shown(text)}'"
        )
    return float(found[1])


def width(text: str) -> int:
    """Lanes; 0 and 255 stand for no link (`PCIE_LNK_WIDTH_UNKNOWN`).

    Raises:
        Unreadable: none are told.
    """
    lanes = whole(text)
    if lanes in (0, 255):
        raise Unreadable("the device does not tell")
    return lanes


def read_request_bytes(config: bytes) -> int:
    """Maximum read request size: bits 14:12 of the device's control word.

    Raises:
        Unreadable: the configuration space cannot be read as far as that.
    """
    return SMALLEST_BYTES << (_device_control(config) >> 12 & 7)


def payload_bytes(config: bytes) -> int:
    """Maximum payload size: bits 7:5 of the device's control word.

    Raises:
        Unreadable: as `read_request_bytes`.
    """
    return SMALLEST_BYTES << (_device_control(config) >> 5 & 7)


def redirects(config: bytes) -> bool:
    """Whether a bridge redirects requests between the devices below it to the root complex.

    Raises:
        Unreadable: the configuration space cannot be read as far as that.
    """
    if len(config) <= READABLE_BYTES:
        raise Unreadable("permission denied: root only")
    return any(
        number == ACS and _word(config, at + ACS_CONTROL) & REQUEST_REDIRECT
        for number, at in _extended(config)
    )


def _device_control(config: bytes) -> int:
    if len(config) <= READABLE_BYTES:
        raise Unreadable("permission denied: root only")
    if _word(config, STATUS_AT) & HAS_CAPABILITIES:
        at = config[CAPABILITIES_AT] & 0xFC
        for _ in range(MOST_CAPABILITIES):
            if not at or at + 2 > len(config):
                break
            if config[at] == EXPRESS:
                return _word(config, at + DEVICE_CONTROL)
            at = config[at + 1] & 0xFC
    raise Unreadable("no PCI Express device")


def _extended(config: bytes) -> Iterator[tuple[int, int]]:
    """Number and place of each extended capability (7.6.3)."""
    at = EXTENDED_AT
    for _ in range(MOST_CAPABILITIES):
        if at < EXTENDED_AT or at + 4 > len(config):
            return
        (header,) = struct.unpack_from("<I", config, at)
        yield header & 0xFFFF, at
        at = header >> 20


def _word(config: bytes, at: int) -> int:
    if at + 2 > len(config):
        raise Unreadable("the configuration space is cut")
    return int.from_bytes(config[at : at + 2], "little")
