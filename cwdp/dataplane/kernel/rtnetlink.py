"""Short questions to the kernel by netlink, some 50 us each: they are asked every second, from a running event loop.

The messages are those of linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/pkt_cls.h, linux/genetlink.h and
linux/netdev.h.
"""

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cwdp.dataplane.kernel.libbpf import XDP_FLAGS_DRV_MODE

RTM_SETLINK, RTM_GETLINK, RTM_GETTFILTER = 19, 18, 46
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLMSGERR_ATTR_MSG = 1
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
TCA_OPTIONS, TCA_BPF_ID = 2, 11
IFLA_LINK, IFLA_MASTER, IFLA_LINKINFO, IFLA_XDP = 5, 10, 18, 43
IFLA_PARENT_DEV_BUS_NAME = 57
IFLA_INFO_KIND, IFLA_INFO_SLAVE_KIND = 1, 4
IFLA_XDP_FD, IFLA_XDP_FLAGS = 1, 3
XDP_FLAGS_UPDATE_IF_NOEXIST = 1
NLA_F_NESTED, TYPE_MASK = 0x8000, 0x3FFF
HEADER, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
IFINFOMSG, TCMSG, GENLMSG = struct.Struct("=BxHiII"), struct.Struct("=BxxxiIII"), struct.Struct("=BBxx")
NETLINK_GENERIC, GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 16, 16, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
NETDEV_CMD_DEV_GET = 1
NETDEV_A_DEV_IFINDEX, NETDEV_A_DEV_XDP_FEATURES = 1, 3
PRIORITY_SHIFT = 16
ANSWER_BYTES = 65536


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
    (message,) = _ask(RTM_GETLINK, IFINFOMSG.pack(socket.AF_UNSPEC, 0, ifindex, 0, 0))
    _, hardware, _, _, _ = IFINFOMSG.unpack_from(message)
    found = _attributes(message[IFINFOMSG.size :])
    info = _attributes(found.get(IFLA_LINKINFO, b""))
    return LinkInfo(
        kind=_text(info.get(IFLA_INFO_KIND, b"")),
        hardware=hardware,
        port_kind=_text(info.get(IFLA_INFO_SLAVE_KIND, b"")),
        bus=_text(found.get(IFLA_PARENT_DEV_BUS_NAME, b"")),
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
        filters = list(_ask(RTM_GETTFILTER, body, NLM_F_DUMP))
    except OSError:
        return None  # the interface is gone, and its filters with it
    for message in filters:
        *_, info = TCMSG.unpack_from(message)
        found = _attributes(message[TCMSG.size :])
        if info >> PRIORITY_SHIFT == priority and TCA_OPTIONS in found:
            return int.from_bytes(_attributes(found[TCA_OPTIONS]).get(TCA_BPF_ID, b""), "little")
    return None


def xdp_features(ifindex: int) -> int | None:
    """What a driver can do with XDP, as bits of `enum netdev_xdp_act`; None where the kernel is older than 6.3.

    Raises:
        OSError: there is no such interface.
    """
    try:
        family = _generic(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, _attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0"))
    except OSError:
        return None
    number = int.from_bytes(family[CTRL_ATTR_FAMILY_ID], "little")
    which = _attribute(NETDEV_A_DEV_IFINDEX, struct.pack("=I", ifindex))
    found = _generic(number, NETDEV_CMD_DEV_GET, which)
    return int.from_bytes(found.get(NETDEV_A_DEV_XDP_FEATURES, b""), "little")


def _generic(family: int, command: int, attributes: bytes) -> dict[int, bytes]:
    (answer,) = _ask(family, GENLMSG.pack(command, 1) + attributes, protocol=NETLINK_GENERIC)
    return _attributes(answer[GENLMSG.size :])


def _set_xdp(ifindex: int, program_fd: int) -> None:
    flags = XDP_FLAGS_DRV_MODE | (XDP_FLAGS_UPDATE_IF_NOEXIST if program_fd >= 0 else 0)
    xdp = _attribute(IFLA_XDP_FD, struct.pack("=i", program_fd))
    xdp += _attribute(IFLA_XDP_FLAGS, struct.pack("=I", flags))
    body = IFINFOMSG.pack(socket.AF_UNSPEC, 0, ifindex, 0, 0) + _attribute(IFLA_XDP | NLA_F_NESTED, xdp)
    list(_ask(RTM_SETLINK, body))


def _ask(
    kind: int, body: bytes, flags: int = NLM_F_ACK, protocol: int = socket.NETLINK_ROUTE
) -> Iterator[bytes]:
    """The answers to a question, without their headers.

    Raises:
        OSError: the kernel refuses; `strerror` is what it says, in its own words where it has any.
    """
    request = HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | flags, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as netlink:
        for option in (NETLINK_CAP_ACK, NETLINK_EXT_ACK):
            netlink.setsockopt(SOL_NETLINK, option, 1)
        netlink.sendto(request, (0, 0))
        while True:
            for answer, message in _messages(netlink.recv(ANSWER_BYTES)):
                if answer == NLMSG_ERROR:
                    _raise_error(message)
                if answer in (NLMSG_ERROR, NLMSG_DONE):
                    return
                yield message


def _raise_error(message: bytes) -> None:
    """Raise what an acknowledgement says, if it is an error: its number, the capped request, words."""
    code = -struct.unpack_from("=i", message)[0]
    if code:
        words = _attributes(message[4 + HEADER.size :]).get(NLMSGERR_ATTR_MSG, b"")
        raise OSError(code, _text(words) or os.strerror(code))


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the body of each message."""
    while len(answer) >= HEADER.size:
        length, kind, _, _, _ = HEADER.unpack_from(answer)
        message, answer = answer[HEADER.size : length], answer[_aligned(length) :]
        yield kind, message


def _attribute(kind: int, value: bytes) -> bytes:
    length = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        found[kind & TYPE_MASK] = data[ATTRIBUTE.size : length]
        data = data[max(_aligned(length), ATTRIBUTE.size) :]
    return found


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")


def _aligned(length: int) -> int:
    return (length + 3) & ~3
