"""Probes between UD queue pairs: their layout, and who signed what.

A request carries t1, a reply t2 and t3. All fields are in network byte order, 40 bytes in each direction. As
in the kernel's probes, the signature of a request covers both addresses, so that it cannot be sent to or
answered for somebody else; the reply's covers the request's signature, so that it answers that request alone.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Self

from cwdp.rdma import siphash

MAGIC = b"CW"
VERSION = 1
HEAD = struct.Struct(">2sBBIIHH")
STAMPS = struct.Struct(">QQQ")
STAMP = struct.Struct(">Q")
MESSAGE_BYTES = HEAD.size + STAMPS.size
SIGNED_REQUEST_BYTES = 16 + 16 + HEAD.size + STAMP.size
SIGNED_REPLY_BYTES = HEAD.size + 3 * STAMP.size
QPN_MASK = 0xFFFFFF
KNOWN_PAIRS = 4096

Clock = Callable[[], int]


class Kind(IntEnum):
    """Which of the two a message is."""

    REQUEST = 1
    REPLY = 2


class WireError(ValueError):
    """What arrived is no probe of this version."""


@dataclass(frozen=True)
class Head:
    """The part that is known before the clock is read.

    Attributes:
        kind: request or reply.
        key_id: which cluster key signs, 0 to 255.
        qpn: the sender's queue pair, where answers go.
        seq: chosen by the initiator, 32 bits.
        sport, reply_sport: UDP source ports of this message and of its answer; swapped in the reply.
    """

    kind: Kind
    key_id: int
    qpn: int
    seq: int
    sport: int
    reply_sport: int

    def pack(self) -> bytes:
        """16 bytes."""
        key_and_qpn = self.key_id << 24 | self.qpn
        return HEAD.pack(MAGIC, VERSION, self.kind, key_and_qpn, self.seq, self.sport, self.reply_sport)


@dataclass(frozen=True)
class Message:
    """A message as it arrived, its signature not verified yet; `stamps` are (t1, 0) or (t2, t3), in ns."""

    head: Head
    stamps: tuple[int, int]
    mac: int

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read a message.

        Raises:
            WireError: it has another length, magic, version or kind, or says what no request does.
        """
        if len(data) != MESSAGE_BYTES:
            raise WireError(f"{len(data)} bytes")
        magic, version, kind, key_and_qpn, seq, sport, reply_sport = HEAD.unpack_from(data)
        if magic != MAGIC or version != VERSION or kind not in (Kind.REQUEST, Kind.REPLY):
            raise WireError(f"magic {magic!r}, version {version}, kind {kind}")
        first, second, mac = STAMPS.unpack_from(data, HEAD.size)
        if kind == Kind.REQUEST and second != 0:
            raise WireError("a second stamp in a request")
        head = Head(Kind(kind), key_and_qpn >> 24, key_and_qpn & QPN_MASK, seq, sport, reply_sport)
        return cls(head, (first, second), mac)


@dataclass(frozen=True)
class Signed:
    """A message ready to be sent, its signature, and when the clock was read for it."""

    data: bytes
    mac: int
    stamp_ns: int


def sign_request(key: bytes, head: Head, src: bytes, dst: bytes, clock: Clock) -> Signed:
    """Stamp and sign a request from one GID to another; the clock is read as late as can be."""
    packed = head.pack()
    state = siphash.absorb(_between(key, src, dst), packed)
    t1 = clock()
    mac = _finish(state, t1, SIGNED_REQUEST_BYTES)
    return Signed(packed + STAMPS.pack(t1, 0, mac), mac, t1)


def request_is_valid(key: bytes, message: Message, src: bytes, dst: bytes) -> bool:
    """Whether a request was signed under this key and sent from one GID to the other."""
    state = siphash.absorb(_between(key, src, dst), message.head.pack())
    return _finish(state, message.stamps[0], SIGNED_REQUEST_BYTES) == message.mac


def sign_reply(key: bytes, head: Head, request_mac: int, t2: int, clock: Clock) -> Signed:
    """Stamp and sign the answer to a request that arrived at `t2`."""
    packed = head.pack()
    state = _reply_state(key, packed, request_mac, t2)
    t3 = clock()
    mac = _finish(state, t3, SIGNED_REPLY_BYTES)
    return Signed(packed + STAMPS.pack(t2, t3, mac), mac, t3)


def reply_is_valid(key: bytes, message: Message, request_mac: int) -> bool:
    """Whether a reply was signed under this key, and answers the request with this signature."""
    t2, t3 = message.stamps
    state = _reply_state(key, message.head.pack(), request_mac, t2)
    return _finish(state, t3, SIGNED_REPLY_BYTES) == message.mac


@lru_cache(maxsize=KNOWN_PAIRS)
def _between(key: bytes, src: bytes, dst: bytes) -> siphash.State:
    return siphash.absorb(siphash.start(key), src + dst)


def _reply_state(key: bytes, packed: bytes, request_mac: int, t2: int) -> siphash.State:
    return siphash.absorb(siphash.start(key), packed + STAMP.pack(request_mac) + STAMP.pack(t2))


def _finish(state: siphash.State, stamp_ns: int, length: int) -> int:
    return siphash.finish(siphash.absorb(state, STAMP.pack(stamp_ns)), length)
