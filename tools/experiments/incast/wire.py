"""One-way delays of data packets on the wire, by the truth of the lab: from when they leave a host to their arrival.

Wire times as RFC 7679 (3.7.2) has them: a packet counts from when the last of it has left its NIC, so what it waited for
in its own host before is not in it. Packets are seen where they come into the first switch and where they come into the
target, by sockets in those namespaces; the kernel stamps both by one clock. One in `EVERY` is looked at.
"""

import ctypes
import selectors
import socket
import struct
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import ROCE_PORT
from tools.lab import Lab
from tools.lab.network import netns

EVERY = 8
SNAP_BYTES = 80
BUFFER_BYTES = 4 << 20
POLL_S = 0.2
SO_TIMESTAMPNS = 35
SO_ATTACH_FILTER = 26
SO_RCVBUFFORCE = 33
ETH_P_IP = 0x0800
UDP = 17
WRITE_FIRST, WRITE_ONLY_IMMEDIATE = 0x06, 0x0B
PACKET_OUTGOING = 4

_IPV4_BYTES, _UDP_BYTES = 20, 8
_BTH = _IPV4_BYTES + _UDP_BYTES
_TIMESPEC = struct.Struct("=qq")

Key = bytes
"""Source address, destination QPN and PSN."""

_LOAD_BYTE, _LOAD_HALF, _RETURN = 0x30, 0x28, 0x06
_EQUAL, _ABOVE_OR_EQUAL, _ABOVE, _ANY_BIT = 0x15, 0x35, 0x25, 0x45
_FILTER = (
    (_LOAD_BYTE, 0, 0, 9),
    (_EQUAL, 0, 9, UDP),
    (_LOAD_HALF, 0, 0, _IPV4_BYTES + 2),
    (_EQUAL, 0, 7, ROCE_PORT),
    (_LOAD_BYTE, 0, 0, _BTH),
    (_ABOVE_OR_EQUAL, 0, 5, WRITE_FIRST),
    (_ABOVE, 4, 0, WRITE_ONLY_IMMEDIATE),
    (_LOAD_BYTE, 0, 0, _BTH + 11),
    (_ANY_BIT, 2, 0, EVERY - 1),
    (_RETURN, 0, 0, SNAP_BYTES),
    (_RETURN, 0, 0, 0),
    (_RETURN, 0, 0, 0),
)
"""Classic BPF from the IP header on: IPv4 without options, UDP to the port of RoCEv2, an RC WRITE, a PSN of the sample."""


class WireTap:
    """Watches packets on their way from some hosts to one; as a context, from entry to exit.

    Args:
        lab: a lab that is up.
        sources: the hosts that send, by their first NICs.
        target: the host that receives.

    Raises:
        OSError: a socket cannot be had.
    """

    def __init__(self, lab: Lab, sources: Iterable[str], target: str) -> None:
        topology = lab.topology
        places = [
            (link.b.node, link.b.name) for link in topology.links.values() if link.a.node in set(sources)
        ]
        self._departures: dict[Key, int] = {}
        self._arrivals: dict[Key, int] = {}
        self._selector = selectors.DefaultSelector()
        for node, port in places:
            self._selector.register(_open(lab.netns(node), port), selectors.EVENT_READ, self._departures)
        arriving = _open(lab.netns(target), lab.host(target).nics[0].name)
        self._selector.register(arriving, selectors.EVENT_READ, self._arrivals)
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read, name="wire", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._reader.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def delays_ns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """When each packet that has arrived left (CLOCK_REALTIME), and how long it took; both in ns, shape (packets,).

        Of a packet that was sent again, its last departure and last arrival.
        """
        both = [
            (left, self._arrivals[key] - left)
            for key, left in self._departures.items()
            if key in self._arrivals
        ]
        rows = np.array([row for row in both if row[1] >= 0], dtype=np.int64).reshape(-1, 2)
        return rows[:, 0], rows[:, 1]

    def _read(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(POLL_S):
                _drain(key.fileobj, key.data)  # type: ignore[arg-type]


def _open(namespace: str, ifname: str) -> socket.socket:
    code = b"".join(struct.pack("=HBBI", *step) for step in _FILTER)
    held = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(_FILTER), ctypes.addressof(held))
    with netns.netns_enter(namespace):
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        opened.bind((ifname, ETH_P_IP))
    return opened


def _drain(opened: socket.socket, seen: dict[Key, int]) -> None:
    while True:
        try:
            data, ancillary, _, address = opened.recvmsg(SNAP_BYTES, socket.CMSG_SPACE(_TIMESPEC.size))
        except BlockingIOError:
            return
        if address[2] == PACKET_OUTGOING or len(data) < _BTH + 12:
            continue
        seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2][: _TIMESPEC.size])
        seen[data[12:16] + data[_BTH + 5 : _BTH + 8] + data[_BTH + 9 : _BTH + 12]] = (
            seconds * 1_000_000_000 + nanoseconds
        )
