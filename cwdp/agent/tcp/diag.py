"""TCP sockets as the kernel's inet_diag tells of them, for connections of this network namespace.

Requests, answers, and the bytecode by which the kernel itself leaves out what is not asked for: include/uapi/linux/inet_diag.h,
net/ipv4/inet_diag.c of the Linux kernel; what is told of a connection is its `struct tcp_info` (include/uapi/linux/tcp.h).
"""

import os
import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST_DUMP = 0x301
INET_DIAG_INFO, INET_DIAG_CGROUP_ID = 2, 21
INET_DIAG_REQ_BYTECODE = 1
BC_JMP, BC_S_GE, BC_S_LE, BC_D_GE, BC_D_LE, BC_CGROUP = 1, 2, 3, 4, 5, 13

RECEIVE_BYTES = 1 << 18
MOST_CONDITIONS = 1_024
"""Of ports and cgroups together that the kernel is asked for; jumps in its bytecode reach 64 KiB."""

ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2, CLOSE_WAIT, LAST_ACK, CLOSING = 1, 4, 5, 8, 9, 11
STATES = {
    ESTABLISHED: "established",
    FIN_WAIT_1: "fin_wait_1",
    FIN_WAIT_2: "fin_wait_2",
    CLOSE_WAIT: "close_wait",
    LAST_ACK: "last_ack",
    CLOSING: "closing",
}
"""Those in which a connection may have data under way (include/net/tcp_states.h); others are not asked for."""

HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct("=BBBBI48s")
ATTRIBUTE = struct.Struct("=HH")
_INSTRUCTION = struct.Struct("=BBH")
_PORT = struct.Struct("=BBH")
_CGROUP = struct.Struct("=Q")

_MESSAGE = np.dtype(
    [
        ("family", "u1"),
        ("state", "u1"),
        ("timer", "u1"),
        ("retrans", "u1"),
        ("local_port", ">u2"),
        ("remote_port", ">u2"),
        ("local", "u1", (16,)),
        ("remote", "u1", (16,)),
        ("ifindex", "=u4"),
        ("cookie", "=u8"),
        ("expires", "=u4"),
        ("rqueue", "=u4"),
        ("wqueue", "=u4"),
        ("uid", "=u4"),
        ("inode", "=u4"),
    ]
)
"""`struct inet_diag_msg`."""

_INFO = np.dtype(
    {
        "names": [
            "rtt_us",
            "cwnd",
            "mss",
            "retransmissions",
            "bytes_acked",
            "bytes_received",
            "min_rtt_us",
            "delivery_rate",
            "bytes_sent",
            "bytes_retransmitted",
        ],
        "formats": ["=u4", "=u4", "=u4", "=u4", "=u8", "=u8", "=u4", "=u8", "=u8", "=u8"],
        "offsets": [68, 80, 16, 100, 120, 128, 148, 160, 200, 208],
        "itemsize": 216,
    }
)
"""What is read of `struct tcp_info`, which has been longer than this since Linux 4.19."""

SOCKET = np.dtype(
    [
        ("local_addr", "u1", (16,)),
        ("remote_addr", "u1", (16,)),
        ("local_port", "<u2"),
        ("remote_port", "<u2"),
        ("state", "u1"),
        ("has_info", "u1"),
        ("cookie", "<u8"),
        ("inode", "<u4"),
        ("cgroup", "<u8"),
        *((name, "<u8") for name in _INFO.names or ()),
    ]
)
"""A connection: both ends, addresses packed as in `cwdp.shared.addresses`; `cgroup` is 0 where the kernel does not tell it.
What has no info is no socket any more, but waits for its end to be over."""

Sockets = NDArray[np.void]
PortRange = tuple[int, int]


def condition(ports: Collection[PortRange], cgroups: Collection[int]) -> bytes:
    """Bytecode for connections one of whose ports is in some ranges, both ends included, or whose cgroup is one of some.

    A range is two comparisons; whoever passes the last jumps to the end, which is to be chosen. To jump 4 bytes further is
    to be left out.

    Raises:
        ValueError: there are none, or more than MOST_CONDITIONS.
    """
    terms = [
        [_compared(op, port) for op, port in zip(ops, limits, strict=True)]
        for limits in ports
        for ops in ((BC_S_GE, BC_S_LE), (BC_D_GE, BC_D_LE))
    ]
    terms += [[(BC_CGROUP, _CGROUP.pack(cgroup))] for cgroup in cgroups]
    if not 0 < len(terms) <= MOST_CONDITIONS:
        raise ValueError(f"{len(terms)} conditions for the kernel")
    code = b""
    for number, term in enumerate(reversed(terms)):
        code = _term(term, code, is_last=number == 0) + code
    return code


def request(family: int, sequence: int, bytecode: bytes) -> bytes:
    """To list a family's connections, with what the kernel knows of each; all of them without bytecode."""
    states = sum(1 << state for state in STATES)
    body = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, states, bytes(48))
    if bytecode:
        body += ATTRIBUTE.pack(ATTRIBUTE.size + len(bytecode), INET_DIAG_REQ_BYTECODE) + bytecode
    return HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, sequence, 0) + body


class Diag:
    """Asks the kernel for connections of the network namespace that its maker's thread was in; a context.

    Raises:
        OSError: the kernel has no such sockets.
    """

    def __init__(self) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def read(self, bytecode: bytes = b"") -> Sockets:
        """Those that there are, of SOCKET, shape (n,); see `condition`.

        Raises:
            OSError: the kernel refuses.
        """
        parts = []
        for sequence, family in enumerate((socket.AF_INET, socket.AF_INET6)):
            self._socket.send(request(family, sequence, bytecode))
            parts.append(parsed(list(_answers(self._socket))))
        return np.concatenate(parts)


def read(bytecode: bytes = b"") -> Sockets:
    """Those of this thread's network namespace; see `Diag`."""
    with Diag() as diag:
        return diag.read(bytecode)


def parsed(messages: Sequence[bytes]) -> Sockets:
    """What answers tell, each of whole messages and without the end's; shape (n,).

    Messages of one length have their attributes at the same places, but for some, which are read one by one.
    """
    data = b"".join(messages)
    by_length: dict[int, list[int]] = {}
    at = 0
    while at + HEADER.size <= len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        if not HEADER.size + _MESSAGE.itemsize <= length <= len(data) - at:
            break
        by_length.setdefault(length, []).append(at)
        at += length + 3 & ~3
    parts = [_alike(data, length, np.array(starts)) for length, starts in by_length.items()]
    return np.concatenate([np.zeros(0, SOCKET), *parts])


def _alike(data: bytes, length: int, starts: NDArray[np.int64]) -> Sockets:
    """Of messages of one length, at `starts`."""
    octets = np.frombuffer(data, np.uint8)
    rows = octets[starts[:, None] + np.arange(length)]
    layout = _attributes(rows[0])
    headers = [at + np.arange(ATTRIBUTE.size) for at, _ in layout.values()]
    same = np.ones(len(rows), bool)
    for places in headers:
        same &= (rows[:, places] == rows[0, places]).all(axis=1)
    found = [_taken(rows[same], layout)]
    rest = rows[~same]
    if len(rest):
        found.append(_alike(rest.tobytes(), length, np.arange(len(rest)) * length))
    return np.concatenate(found)


def _attributes(row: NDArray[np.uint8]) -> dict[int, tuple[int, int]]:
    """Where the attributes of a message are: its header, and the length with it, by kind."""
    found = {}
    at = HEADER.size + _MESSAGE.itemsize
    while at + ATTRIBUTE.size <= len(row):
        length, kind = ATTRIBUTE.unpack(row[at : at + ATTRIBUTE.size].tobytes())
        if not ATTRIBUTE.size <= length <= len(row) - at:
            break
        found[kind] = at, length
        at += length + 3 & ~3
    return found


def _taken(rows: NDArray[np.uint8], layout: dict[int, tuple[int, int]]) -> Sockets:
    """Of messages whose attributes are at the same places."""
    message = _column(rows, HEADER.size, _MESSAGE)
    found = np.zeros(len(rows), SOCKET)
    for name in ("local_port", "remote_port", "state", "cookie", "inode"):
        found[name] = message[name]
    for end in ("local", "remote"):
        found[f"{end}_addr"] = _packed(message[end], message["family"])
    at, length = layout.get(INET_DIAG_INFO, (0, 0))
    if length >= ATTRIBUTE.size + _INFO.itemsize:
        info = _column(rows, at + ATTRIBUTE.size, _INFO)
        found["has_info"] = 1
        for name in _INFO.names or ():
            found[name] = info[name]
    at, length = layout.get(INET_DIAG_CGROUP_ID, (0, 0))
    if length == ATTRIBUTE.size + _CGROUP.size:
        found["cgroup"] = _column(rows, at + ATTRIBUTE.size, np.dtype("=u8"))
    return found


def _packed(address: NDArray[np.uint8], family: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Addresses as rows have them: IPv4 as ::ffff:a.b.c.d, shape (n, 16)."""
    packed = address.copy()
    is_ipv4 = family == socket.AF_INET
    packed[is_ipv4, 12:] = address[is_ipv4, :4]
    packed[is_ipv4, :10], packed[is_ipv4, 10:12] = 0, 0xFF
    return packed


def _column(rows: NDArray[np.uint8], at: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(rows[:, at : at + dtype.itemsize]).view(dtype).reshape(-1)


def _answers(diag: socket.socket) -> Iterator[bytes]:
    """What comes of a request: whole messages, until the last."""
    while True:
        data = diag.recv(RECEIVE_BYTES)
        _, kind, *_ = HEADER.unpack_from(data)
        if kind == NLMSG_ERROR:
            code = -struct.unpack_from("=i", data, HEADER.size)[0]
            raise OSError(code, f"inet_diag: {os.strerror(code)}")
        if kind == NLMSG_DONE:
            return
        yield data


def _compared(operation: int, port: int) -> tuple[int, bytes]:
    return operation, _PORT.pack(0, 0, port)


def _term(comparisons: list[tuple[int, bytes]], rest: bytes, *, is_last: bool) -> bytes:
    """Whoever passes all comparisons jumps over the rest, others go on with it."""
    jump = b"" if is_last else _INSTRUCTION.pack(BC_JMP, _INSTRUCTION.size, _INSTRUCTION.size + len(rest))
    code = jump
    for operation, operand in reversed(comparisons):
        size = _INSTRUCTION.size + len(operand)
        failed = size + len(code) + (_INSTRUCTION.size if is_last else 0)
        code = _INSTRUCTION.pack(operation, size, failed) + operand + code
    return code
