"""Short questions to the kernel by netlink, some 50 us each: they are asked every second, from a running event loop.

The messages are those of linux/rtnetlink.h, linux/if_link.h, linux/pkt_cls.h and linux/netdev.h.
"""

import socket
import struct
from dataclasses import dataclass

from cwdp.dataplane.kernel.libbpf import XDP_FLAGS_DRV_MODE
from cwdp.dataplane.kernel.netlink import (
    NLA_F_NESTED,
    NLM_F_DUMP,
    ask,
    attribute,
    attributes,
    generic,
    generic_family,
    text,
)

RTM_SETLINK, RTM_GETLINK, RTM_GETTFILTER = 19, 18, 46
TCA_OPTIONS, TCA_BPF_ID = 2, 11
IFLA_LINK, IFLA_MASTER, IFLA_LINKINFO, IFLA_XDP = 5, 10, 18, 43
IFLA_PARENT_DEV_BUS_NAME = 57
IFLA_INFO_KIND, IFLA_INFO_SLAVE_KIND = 1, 4
IFLA_XDP_FD, IFLA_XDP_FLAGS = 1, 3
XDP_FLAGS_UPDATE_IF_NOEXIST = 1
IFINFOMSG, TCMSG = struct.Struct("=BxHiII"), struct.Struct("=BxxxiIII")
NETDEV_CMD_DEV_GET = 1
NETDEV_A_DEV_IFINDEX, NETDEV_A_DEV_XDP_FEATURES = 1, 3
PRIORITY_SHIFT = 16


@dataclass(frozen=True)
class LinkInfo:
    """An interface as the kernel describes it.

    Attributes:
        kind: of a virtual one, such as `veth` or `bond`; "" of hardware and of the loopback.
        hardware: ARPHRD_...
        port_kind: what its master is, such as `bridge`; "" where it has none.
        bus: of its device, such as `pci` or `virtio`; "" of a virtual one.
        master, lower: the index of that, and of the interface that it is on top of; 0 where there is none.
    """

    kind: str
    hardware: int
    port_kind: str
    bus: str
    master: int
    lower: int


def link_info(ifindex: int) -> LinkInfo:
    """What an interface is.

    Raises:
        OSError: ENODEV where there is none.
    """
    (message,) = ask(RTM_GETLINK, IFINFOMSG.pack(socket.AF_UNSPEC, 0, ifindex, 0, 0))
    _, hardware, _, _, _ = IFINFOMSG.unpack_from(message)
    found = attributes(message[IFINFOMSG.size :])
    info = attributes(found.get(IFLA_LINKINFO, b""))
    return LinkInfo(
        kind=text(info.get(IFLA_INFO_KIND, b"")),
        hardware=hardware,
        port_kind=text(info.get(IFLA_INFO_SLAVE_KIND, b"")),
        bus=text(found.get(IFLA_PARENT_DEV_BUS_NAME, b"")),
        master=int.from_bytes(found.get(IFLA_MASTER, b""), "little"),
        lower=int.from_bytes(found.get(IFLA_LINK, b""), "little"),
    )


def why_no_native_xdp(ifindex: int, program_fd: int) -> str:
    """The driver's own words for why it takes no program; "" where it has none.

    A link cannot be asked: only this way of attaching has an answer in words (extended acknowledgements).
    """
    try:
        _set_xdp(ifindex, program_fd)
    except OSError as error:
        return error.strerror or ""
    _set_xdp(ifindex, -1)
    return ""


def filter_program(ifindex: int, parent: int, priority: int) -> int | None:
    """The kernel's number of the program that a filter of tc runs; None where there is no such filter.

    Raises:
        OSError: the kernel cannot be asked.
    """
    body = TCMSG.pack(socket.AF_UNSPEC, ifindex, 0, parent, 0)
    try:
        filters = list(ask(RTM_GETTFILTER, body, NLM_F_DUMP))
    except OSError:
        return None  # the interface is gone, and its filters with it
    for message in filters:
        *_, info = TCMSG.unpack_from(message)
        found = attributes(message[TCMSG.size :])
        if info >> PRIORITY_SHIFT == priority and TCA_OPTIONS in found:
            return int.from_bytes(attributes(found[TCA_OPTIONS]).get(TCA_BPF_ID, b""), "little")
    return None


def xdp_features(ifindex: int) -> int | None:
    """What a driver can do with XDP, as bits of `enum netdev_xdp_act`; None where the kernel is older than 6.3.

    Raises:
        OSError: there is no such interface.
    """
    try:
        family = generic_family("netdev")
    except OSError:
        return None
    which = attribute(NETDEV_A_DEV_IFINDEX, struct.pack("=I", ifindex))
    found = generic(family, NETDEV_CMD_DEV_GET, which)
    return int.from_bytes(found.get(NETDEV_A_DEV_XDP_FEATURES, b""), "little")


def _set_xdp(ifindex: int, program_fd: int) -> None:
    flags = XDP_FLAGS_DRV_MODE | (XDP_FLAGS_UPDATE_IF_NOEXIST if program_fd >= 0 else 0)
    xdp = attribute(IFLA_XDP_FD, struct.pack("=i", program_fd))
    xdp += attribute(IFLA_XDP_FLAGS, struct.pack("=I", flags))
    body = IFINFOMSG.pack(socket.AF_UNSPEC, 0, ifindex, 0, 0) + attribute(IFLA_XDP | NLA_F_NESTED, xdp)
    list(ask(RTM_SETLINK, body))
