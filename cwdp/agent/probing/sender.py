"""Many packets with one system call: sendmmsg over buffers that are built once."""

import ctypes
import socket
import sys
from ctypes import c_int, c_uint, c_void_p
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Sender

_IPV6_HDRINCL = 36  # linux/in6.h
SO_COOKIE = 57
MAX_BATCH = 1024  # UIO_MAXIOV: sendmmsg takes no more at once

MSGHDR = np.dtype(
    {
        "names": ["name", "namelen", "iov", "iovlen", "control", "controllen", "flags", "sent"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
"""struct mmsghdr of 64-bit Linux."""

IOVEC = np.dtype([("base", "u8"), ("length", "u8")])

_libc = ctypes.CDLL(None, use_errno=True)
_libc.sendmmsg.argtypes = [c_int, c_void_p, c_uint, c_int]


class Signing(Protocol):
    """Who has the dataplane sign; see `cwdp.dataplane.pinned.maps.Maps`."""

    def sign_for(self, sender: Sender, cookie: int) -> None:
        """Have the probes of a socket signed."""


def cookie_of(sock: socket.socket) -> int:
    """The kernel's number of a socket, never used again."""
    return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), sys.byteorder)


class BatchSender:
    """Sends the rows of one array of templates from a raw socket bound to an interface.

    The kernel routes the packets and resolves their next hop. The dataplane signs those with the mark if it knows
    the socket.

    Args:
        ifname: the interface.
        family: of the templates.
        templates: rows of `packets.requests`.
        opened: another one's socket to use, which stays that one's: of two for the same, one only would be signed for.

    Attributes:
        raw: the socket.
        cookie: the kernel's number of the socket, never used again.

    Raises:
        OSError: the socket cannot be made or bound.
    """

    def __init__(
        self,
        ifname: str,
        family: socket.AddressFamily,
        templates: NDArray[np.void],
        opened: socket.socket | None = None,
    ) -> None:
        self._is_ours = opened is None
        self.raw = _marked_socket(ifname, family) if opened is None else opened
        self.cookie = cookie_of(self.raw)
        self.templates = templates
        self._names = _addresses(family, templates["ip"]["destination"])
        self._iov = np.zeros(len(templates), dtype=IOVEC)
        self._iov["base"] = templates.ctypes.data + np.arange(len(templates)) * templates.itemsize
        self._iov["length"] = templates.itemsize
        self._messages = np.zeros(len(templates), dtype=MSGHDR)
        self._messages["name"] = self._names.ctypes.data + np.arange(len(templates)) * self._names.itemsize
        self._messages["namelen"] = self._names.itemsize
        self._messages["iov"] = self._iov.ctypes.data + np.arange(len(templates)) * self._iov.itemsize
        self._messages["iovlen"] = 1

    def send(self, start: int, stop: int) -> tuple[int, int]:
        """Send rows [start, stop), at most MAX_BATCH.

        Returns:
            How many packets the kernel took, and the error number that stopped it (0 if none).
        """
        return self._send(self._messages.ctypes.data + start * MSGHDR.itemsize, stop - start)

    def send_rows(self, rows: NDArray[np.intp]) -> tuple[int, int]:
        """Send chosen rows, at most MAX_BATCH; returns what `send` does."""
        chosen = self._messages[rows]
        return self._send(chosen.ctypes.data, len(chosen))

    def _send(self, at: int, count: int) -> tuple[int, int]:
        sent: int = _libc.sendmmsg(self.raw.fileno(), c_void_p(at), c_uint(count), 0)
        return (sent, 0) if sent >= 0 else (0, ctypes.get_errno())

    def close(self) -> None:
        """Close the socket, if it is this one's."""
        if self._is_ours:
            self.raw.close()


def sending_socket(ifname: str, family: socket.AddressFamily) -> socket.socket:
    """A raw socket for whole IP packets; without the mark by which the dataplane signs probes.

    Raises:
        OSError: it cannot be made or bound to the interface.
    """
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    out = socket.socket(family, kind, socket.IPPROTO_RAW)
    try:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, ifname.encode() + b"\0")
        if family == socket.AF_INET6:
            out.setsockopt(socket.IPPROTO_IPV6, _IPV6_HDRINCL, 1)
    except OSError:
        out.close()
        raise
    return out


def _marked_socket(ifname: str, family: socket.AddressFamily) -> socket.socket:
    """One whose packets have the mark."""
    out = sending_socket(ifname, family)
    try:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, abi.MARK)
        out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    except OSError:
        out.close()
        raise
    return out


def _addresses(family: socket.AddressFamily, destinations: NDArray[np.bytes_]) -> NDArray[np.void]:
    if family == socket.AF_INET:
        layout = [("family", "u2"), ("port", ">u2"), ("address", "S4"), ("zero", "S8")]
    else:
        layout = [("family", "u2"), ("port", ">u2"), ("flow", "u4"), ("address", "S16"), ("scope", "u4")]
    names = np.zeros(len(destinations), dtype=layout)
    names["family"] = family
    names["address"] = destinations
    return names
