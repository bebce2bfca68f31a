"""Pools of RoCEv2 frames for the load generator, and a socket that sends them in batches.

A pool holds one header per flow and one payload that all share; the kernel gathers the two, so that nothing is
built or copied in Python per packet.
"""

import ctypes
import errno
import os
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import numpy as np
import numpy.typing as npt

from tools.lab.network.netns import netns_enter

ROCE_PORT = 4791
BTH_BYTES = 12

_ETHERNET_BYTES, _IPV6_BYTES, _UDP_BYTES = 14, 40, 8
_DONT_FRAGMENT, _HOP_LIMIT = 0x4000, 64
_OPCODE_RC_WRITE_MIDDLE = 0x07
_MIGRATED = 0x40
_DEFAULT_PKEY = 0xFFFF
_FIRST_SOURCE_PORT, _LAST_SOURCE_PORT = 49152, 65535
_SEND_BUFFER_BYTES = 2**24
_SO_SNDBUFFORCE = 32
_MMSGHDR_WORDS = 8
_libc = ctypes.CDLL(None, use_errno=True)
_libc.sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)

IPAddress = IPv4Address | IPv6Address
Headers = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Address:
    """Where a frame comes from or goes to."""

    mac: str
    ip: IPAddress


def header_pool(
    source: Address,
    targets: list[Address],
    frame_bytes: int,
    flows: int,
    rng: np.random.Generator,
    *,
    port: int = ROCE_PORT,
) -> Headers:
    """Build the headers of `flows` flows, spread at random over targets and source ports.

    Args:
        source: the sending NIC.
        targets: receiving NICs; `mac` is the next hop's.
        frame_bytes: length of the whole frame, Ethernet header included.
        flows: how many headers to build.
        rng: draws targets and ports.
        port: UDP destination port of all.

    Returns:
        uint8 (flows, header bytes): Ethernet, IP, UDP and BTH of an RDMA WRITE middle packet. The UDP checksum is
        zero, which RoCEv2 allows.
    """
    templates = np.array([_template(source, target, frame_bytes, port) for target in targets])
    headers: Headers = templates[rng.integers(len(targets), size=flows)]
    ports = rng.integers(_FIRST_SOURCE_PORT, _LAST_SOURCE_PORT, size=flows, endpoint=True).astype(">u2")
    udp = headers.shape[1] - BTH_BYTES - _UDP_BYTES
    headers[:, udp : udp + 2] = ports.view(np.uint8).reshape(flows, 2)
    return headers


class FrameSender:
    """A packet socket on a NIC that sends the frames of a pool in turn."""

    def __init__(self, netns: str, ifname: str, headers: Headers, frame_bytes: int) -> None:
        self._headers = np.ascontiguousarray(headers)
        self._payload = np.zeros(frame_bytes - headers.shape[1], dtype=np.uint8)
        self._parts = self._gather_list()
        self._messages = self._message_list()
        self._address = self._messages.ctypes.data
        self._stride = self._messages.strides[0]
        self._next = 0
        self.sent = 0
        self.refused = 0
        with netns_enter(netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
        self._socket.bind((ifname, 0))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, count: int) -> None:
        """Send the next `count` frames; what the queue or a dead link refuses is counted and skipped."""
        while count > 0:
            batch = min(count, len(self._messages) - self._next)
            address = self._address + self._next * self._stride
            accepted = _libc.sendmmsg(self._socket.fileno(), address, batch, socket.MSG_DONTWAIT)
            if accepted < 0:
                _require_refusal(ctypes.get_errno())
                self.refused += 1
            else:
                self.sent += accepted
            passed = max(accepted, 1)
            self._next = (self._next + passed) % len(self._messages)
            count -= passed

    def _gather_list(self) -> npt.NDArray[np.uint64]:
        """Return `struct iovec` pairs, header and payload: uint64 (flows, 2 parts, address and length)."""
        flows, header_bytes = self._headers.shape
        parts = np.empty((flows, 2, 2), dtype=np.uint64)
        parts[:, 0, 0] = self._headers.ctypes.data + np.arange(flows) * header_bytes
        parts[:, 0, 1] = header_bytes
        parts[:, 1] = self._payload.ctypes.data, self._payload.size
        return parts

    def _message_list(self) -> npt.NDArray[np.uint64]:
        """Return `struct mmsghdr` elements, of which only the gather list is set: uint64 (flows, 8 words)."""
        messages = np.zeros((len(self._parts), _MMSGHDR_WORDS), dtype=np.uint64)
        messages[:, 2] = self._parts.ctypes.data + np.arange(len(self._parts)) * self._parts.strides[0]
        messages[:, 3] = 2
        return messages


def _require_refusal(number: int) -> None:
    if number not in {errno.ENOBUFS, errno.EAGAIN, errno.ENETDOWN}:
        raise OSError(number, os.strerror(number))


def _template(source: Address, target: Address, frame_bytes: int, port: int) -> Headers:
    ip_bytes = frame_bytes - _ETHERNET_BYTES
    if source.ip.version == 4:
        ether_type, ip = 0x0800, _ipv4_header(source.ip, target.ip, ip_bytes)
    else:
        ether_type, ip = 0x86DD, _ipv6_header(source.ip, target.ip, ip_bytes)
    macs = bytes.fromhex(target.mac.replace(":", "") + source.mac.replace(":", ""))
    udp = struct.pack("!4H", 0, port, ip_bytes - len(ip), 0)
    bth = struct.pack("!BBHII", _OPCODE_RC_WRITE_MIDDLE, _MIGRATED, _DEFAULT_PKEY, 0, 0)
    return np.frombuffer(macs + struct.pack("!H", ether_type) + ip + udp + bth, dtype=np.uint8)


def _ipv4_header(source: IPAddress, target: IPAddress, ip_bytes: int) -> bytes:
    fields = (0x45, 0, ip_bytes, 0, _DONT_FRAGMENT, _HOP_LIMIT, socket.IPPROTO_UDP)
    start = struct.pack("!BBHHHBB", *fields)
    addresses = source.packed + target.packed
    total = sum(struct.unpack("!9H", start + addresses))
    folded = (total & 0xFFFF) + (total >> 16)
    checksum = 0xFFFF - ((folded & 0xFFFF) + (folded >> 16))
    return start + struct.pack("!H", checksum) + addresses


def _ipv6_header(source: IPAddress, target: IPAddress, ip_bytes: int) -> bytes:
    fields = (6 << 28, ip_bytes - _IPV6_BYTES, socket.IPPROTO_UDP, _HOP_LIMIT)
    return struct.pack("!IHBB", *fields) + source.packed + target.packed
