"""What ethtool's netlink tells of a NIC; the messages are those of linux/ethtool_netlink.h."""

from cwdp.audit.answers import Driver, Ethtool, Module
from cwdp.audit.unreadable import Unreadable, of_error
from cwdp.dataplane.kernel.drvinfo import driver_info
from cwdp.dataplane.kernel.netlink import (
    NLA_F_NESTED,
    attribute,
    attributes,
    each_attribute,
    generic,
    generic_family,
    text,
)

FAMILY = "ethtool"
HEADER, HEADER_NAME = 1, 2
FEATURES_GET, FEATURES_ACTIVE = 11, 4
BITSET_BITS, BIT, BIT_NAME = 3, 1, 2
MODULE_EEPROM_GET = 31
EEPROM_OFFSET, EEPROM_LENGTH, EEPROM_PAGE, EEPROM_BANK, EEPROM_ADDRESS, EEPROM_DATA = range(2, 8)
PAGE_BYTES = 128
CMIS = (0x18, 0x19, 0x1E, 0x1F)
"""Identifiers of modules with CMIS (SFF-8024, table 4-1)."""
SFP = 0x03

NUMBERS = {
    "linkmodes": (4, {2: "autonegotiation", 5: "speed_mbps", 6: "duplex"}),
    "rings": (15, {2: "rx_max", 6: "rx"}),
    "channels": (17, {6: "rx", 7: "tx", 9: "combined"}),
    "pause": (21, {3: "rx", 4: "tx"}),
    "fec": (29, {4: "active"}),
}
"""Messages that are read: their number, and the attributes of their answer."""


def driver(ifname: str) -> Driver:
    """What a NIC's driver tells of itself."""
    try:
        told = driver_info(ifname)
    except OSError as error:
        raise of_error(error) from error
    return Driver(told.driver, told.version, told.firmware)


def ethtool(ifname: str) -> Ethtool:
    """All that is read of a NIC by ethtool."""
    family = _family()
    numbers: dict[str, int] = {}
    problems: dict[str, str] = {}
    for message, (command, names) in NUMBERS.items():
        try:
            told = generic(family, command, _named(ifname))
        except OSError as error:
            problems[message] = str(of_error(error))
            continue
        numbers |= {
            f"{message}.{name}": int.from_bytes(told[kind], "little")
            for kind, name in names.items()
            if kind in told
        }
    features: list[str] = []
    try:
        features = _features(generic(family, FEATURES_GET, _named(ifname)))
    except OSError as error:
        problems["features"] = str(of_error(error))
    return Ethtool(numbers=numbers, features=features, problems=problems)


def module(ifname: str) -> Module:
    """The memory of a NIC's transceiver."""
    family = _family()
    try:
        lower = _page(family, ifname, 0, 0)
        upper = _page(family, ifname, PAGE_BYTES, 0)
        memory = lower + upper
        is_paged = memory[0] in CMIS and not memory[2] & 0x80
        has_diagnostics = memory[0] == SFP and memory[92] & 0x40
        return Module(
            memory=memory.hex(),
            lanes=_page(family, ifname, PAGE_BYTES, 0x11).hex() if is_paged else "",
            diagnostics=_page(family, ifname, 0, 0, 0x51).hex() if has_diagnostics else "",
        )
    except OSError as error:
        raise of_error(error) from error
    except IndexError as error:
        raise Unreadable("the transceiver does not answer") from error


def _family() -> int:
    try:
        return generic_family(FAMILY)
    except OSError as error:
        raise Unreadable("the kernel has no netlink for ethtool (before 5.6)") from error


def _named(ifname: str) -> bytes:
    name = attribute(HEADER_NAME, f"{ifname}\0".encode())
    return attribute(HEADER | NLA_F_NESTED, name)


def _features(told: dict[int, bytes]) -> list[str]:
    """Names of the bits of a bitset that has no mask, so that only bits that are set are listed."""
    bits = attributes(told.get(FEATURES_ACTIVE, b"")).get(BITSET_BITS, b"")
    names = [text(attributes(bit).get(BIT_NAME, b"")) for kind, bit in each_attribute(bits) if kind == BIT]
    return sorted(name for name in names if name)


def _page(family: int, ifname: str, offset: int, page: int, address: int = 0x50) -> bytes:
    asked = _named(ifname)
    for kind, value, size in (
        (EEPROM_OFFSET, offset, 4),
        (EEPROM_LENGTH, PAGE_BYTES, 4),
        (EEPROM_PAGE, page, 1),
        (EEPROM_BANK, 0, 1),
        (EEPROM_ADDRESS, address, 1),
    ):
        asked += attribute(kind, value.to_bytes(size, "little"))
    return generic(family, MODULE_EEPROM_GET, asked).get(EEPROM_DATA, b"")
