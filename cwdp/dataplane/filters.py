"""Which program a filter of tc runs: one short netlink dump, some 50 us, as it is asked every second.

The messages are those of linux/rtnetlink.h, linux/pkt_sched.h and linux/pkt_cls.h.
"""

import socket
import struct
from collections.abc import Iterator

RTM_NEWTFILTER, RTM_GETTFILTER = 44, 46
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
TCA_OPTIONS, TCA_BPF_ID = 2, 11
HEADER = struct.Struct("=IHHII")
TCMSG = struct.Struct("=BxxxiIII")
ATTRIBUTE = struct.Struct("=HH")
TYPE_MASK = 0x3FFF
PRIORITY_SHIFT = 16
ANSWER_BYTES = 65536


def program_of(ifindex: int, parent: int, priority: int) -> int | None:
    """The kernel's number of the program that a filter runs; None where there is no such filter.

    Raises:
        OSError: the kernel cannot be asked.
    """
    for info, attributes in _dump(ifindex, parent):
        if info >> PRIORITY_SHIFT == priority and TCA_OPTIONS in attributes:
            number = _attributes(attributes[TCA_OPTIONS]).get(TCA_BPF_ID, bytes(4))
            return int.from_bytes(number, "little")
    return None


def _dump(ifindex: int, parent: int) -> Iterator[tuple[int, dict[int, bytes]]]:
    """The `tcm_info` and the attributes of each filter of a parent."""
    body = TCMSG.pack(socket.AF_UNSPEC, ifindex, 0, parent, 0)
    request = HEADER.pack(HEADER.size + len(body), RTM_GETTFILTER, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.sendto(request, (0, 0))
        while True:
            for kind, message in _messages(netlink.recv(ANSWER_BYTES)):
                if kind in (NLMSG_DONE, NLMSG_ERROR):
                    return  # an interface that is gone has no filters
                if kind == RTM_NEWTFILTER:
                    *_, info = TCMSG.unpack_from(message)
                    yield info, _attributes(message[TCMSG.size :])


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    while len(answer) >= HEADER.size:
        length, kind, _, _, _ = HEADER.unpack_from(answer)
        yield kind, answer[HEADER.size : length]
        answer = answer[_aligned(length) :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        found[kind & TYPE_MASK] = data[ATTRIBUTE.size : length]
        data = data[max(_aligned(length), ATTRIBUTE.size) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3
