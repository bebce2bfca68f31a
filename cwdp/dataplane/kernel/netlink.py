"""Questions to the kernel by netlink, and the answers' attributes.

The messages are those of linux/netlink.h and linux/genetlink.h.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator

NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLMSGERR_ATTR_MSG = 1
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
NLA_F_NESTED, TYPE_MASK = 0x8000, 0x3FFF
HEADER, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
GENLMSG = struct.Struct("=BBxx")
NETLINK_GENERIC, GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 16, 16, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
ANSWER_BYTES = 65536


def generic_family(name: str) -> int:
    """The number of a family of generic netlink.

    Raises:
        OSError: ENOENT where the kernel does not have it.
    """
    found = generic(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, attribute(CTRL_ATTR_FAMILY_NAME, f"{name}\0".encode()))
    return int.from_bytes(found[CTRL_ATTR_FAMILY_ID], "little")


def generic(family: int, command: int, asked: bytes) -> dict[int, bytes]:
    """The attributes of the answer of a family of generic netlink.

    Raises:
        OSError: the kernel refuses, or answers nothing (ENODATA).
    """
    return attributes(generic_body(family, command, asked))


def generic_body(family: int, command: int, asked: bytes) -> bytes:
    """The same, as the attributes lie there: those of a type may be several.

    Raises:
        OSError: as `generic`.
    """
    for answer in ask(family, GENLMSG.pack(command, 1) + asked, protocol=NETLINK_GENERIC):
        return answer[GENLMSG.size :]
    raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))


def ask(
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
        words = attributes(message[4 + HEADER.size :]).get(NLMSGERR_ATTR_MSG, b"")
        raise OSError(code, text(words) or os.strerror(code))


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the body of each message."""
    while len(answer) >= HEADER.size:
        length, kind, _, _, _ = HEADER.unpack_from(answer)
        message, answer = answer[HEADER.size : length], answer[_aligned(length) :]
        yield kind, message


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute, padded."""
    length = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def attributes(data: bytes) -> dict[int, bytes]:
    """Attributes by type; of several of a type the last one."""
    return dict(each_attribute(data))


def each_attribute(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each attribute."""
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        yield kind & TYPE_MASK, data[ATTRIBUTE.size : length]
        data = data[max(_aligned(length), ATTRIBUTE.size) :]


def text(value: bytes) -> str:
    """A string of the kernel, without the zero at its end."""
    return value.rstrip(b"\0").decode(errors="replace")


def _aligned(length: int) -> int:
    return (length + 3) & ~3
