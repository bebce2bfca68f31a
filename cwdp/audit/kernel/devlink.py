"""What devlink tells of a PCI device; the messages are those of linux/devlink.h."""

from cwdp.audit.answers import Devlink
from cwdp.audit.unreadable import Unreadable, of_error
from cwdp.dataplane.kernel.netlink import (
    attribute,
    attributes,
    each_attribute,
    generic_body,
    generic_family,
    text,
)

ESWITCH_GET, INFO_GET = 29, 51
BUS_NAME, DEVICE_NAME = 1, 2
ESWITCH_MODE, RUNNING, STORED, VERSION_NAME, VERSION_VALUE = 25, 101, 102, 103, 104


def devlink(pci_address: str) -> Devlink:
    """All that is read of a device by devlink."""
    try:
        family = generic_family("devlink")
    except OSError as error:
        raise Unreadable("the kernel has no devlink") from error
    asked = attribute(BUS_NAME, b"pci\0") + attribute(DEVICE_NAME, f"{pci_address}\0".encode())
    problems: dict[str, str] = {}
    mode = info = None
    try:
        mode = attributes(generic_body(family, ESWITCH_GET, asked)).get(ESWITCH_MODE)
    except OSError as error:
        problems["eswitch"] = str(of_error(error))
    try:
        info = generic_body(family, INFO_GET, asked)
    except OSError as error:
        problems["info"] = str(of_error(error))
    return Devlink(
        eswitch_mode=None if mode is None else int.from_bytes(mode, "little"),
        running=None if info is None else versions(info, RUNNING),
        stored=None if info is None else versions(info, STORED),
        problems=problems,
    )


def versions(info: bytes, kind: int) -> dict[str, str]:
    """The versions of one kind, by name."""
    found = [attributes(value) for each, value in each_attribute(info) if each == kind]
    return {text(one.get(VERSION_NAME, b"")): text(one.get(VERSION_VALUE, b"")) for one in found}
