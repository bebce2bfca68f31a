"""Probes between UD queue pairs: their layout, and who signed what.

A request carries t1, a reply t2, t3 and how the responder's clock stood to the common timeline. All fields are in
network byte order, 52 bytes in each direction. As in the kernel's probes, the signature of a request covers both
addresses, so that it cannot be sent to or answered for somebody else; the reply's covers the request's signature, so
that it answers that request alone.

Signatures are keyed BLAKE2b (RFC 7693) of 64 bits and not the kernel's SipHash, which takes 20 us in Python: as much as
all else that is done for a probe.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Self

MAGIC = b"CW"
VERSION = 2
HEAD = struct.Struct(">2sBBIIHH")
BODY = struct.Struct(">QQqI")
MAC = struct.Struct(">Q")
STAMP = struct.Struct(">Q")
MESSAGE_BYTES = HEAD.size + BODY.size + MAC.size
QPN_MASK = 0xFFFFFF
UNSYNCED_BOUND_NS = 0xFFFFFFFF

_PURPOSE = b"cwdp UD probe"  # so that no other use of the key gives the same signature

Clock = Callable[[], int]


class Kind(IntEnum):
    """Which of the two a message is."""

    REQUEST = 1
    REPLY = 2


class WireError(ValueError):
    """What arrived is no probe of this version."""


@dataclass(frozen=True)
class Reading:
    """How a host's clock stands to the timeline: what to add to it, ns, and the bound of the error, ns.

    The bound is UNSYNCED_BOUND_NS while nothing is known; the offset is void then.
    """

    offset_ns: int = 0
    bound_ns: int = UNSYNCED_BOUND_NS

    @property
    def synced(self) -> bool:
        """Whether the offset means anything."""
        return self.bound_ns != UNSYNCED_BOUND_NS


UNSYNCED = Reading()


@dataclass(frozen=True)
class Arrival:
    """When a request was seen, on the responder's clock, and how that stood to the timeline then."""

    t2_ns: int
    reading: Reading


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
    """A message as it arrived, its signature not verified yet.

    Attributes:
        stamps: (t1, 0) or (t2, t3), ns of the sender's clock.
        reading: of a reply, the responder's clock at t2.
    """

    head: Head
    stamps: tuple[int, int]
    reading: Reading
    mac: int
    signed: bytes

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
        first, second, offset_ns, bound_ns = BODY.unpack_from(data, HEAD.size)
        reading = Reading(offset_ns, bound_ns)
        if kind == Kind.REQUEST and (second != 0 or reading != UNSYNCED):
            raise WireError("a reply's fields in a request")
        head = Head(Kind(kind), key_and_qpn >> 24, key_and_qpn & QPN_MASK, seq, sport, reply_sport)
        (mac,) = MAC.unpack_from(data, HEAD.size + BODY.size)
        return cls(head, (first, second), reading, mac, data[: -MAC.size])


@dataclass(frozen=True)
class Signed:
    """A message ready to be sent, its signature, and when the clock was read for it."""

    data: bytes
    mac: int
    stamp_ns: int


def sign_request(key: bytes, head: Head, src: bytes, dst: bytes, clock: Clock) -> Signed:
    """Stamp and sign a request from one GID to another; the clock is read as late as can be."""
    packed = head.pack()
    t1 = clock()
    data = packed + BODY.pack(t1, 0, UNSYNCED.offset_ns, UNSYNCED.bound_ns)
    return _signed(data, _mac(key, src + dst + data), t1)


def request_is_valid(key: bytes, message: Message, src: bytes, dst: bytes) -> bool:
    """Whether a request was signed under this key and sent from one GID to the other."""
    return _mac(key, src + dst + message.signed) == message.mac


def sign_reply(key: bytes, head: Head, request_mac: int, arrival: Arrival, clock: Clock) -> Signed:
    """Stamp and sign the answer to a request."""
    packed = head.pack()
    t3 = clock()
    data = packed + BODY.pack(arrival.t2_ns, t3, arrival.reading.offset_ns, arrival.reading.bound_ns)
    return _signed(data, _mac(key, STAMP.pack(request_mac) + data), t3)


def reply_is_valid(key: bytes, message: Message, request_mac: int) -> bool:
    """Whether a reply was signed under this key, and answers the request with this signature."""
    return _mac(key, STAMP.pack(request_mac) + message.signed) == message.mac


def _signed(data: bytes, mac: int, stamp_ns: int) -> Signed:
    return Signed(data + MAC.pack(mac), mac, stamp_ns)


def _mac(key: bytes, data: bytes) -> int:
    digest = blake2b(data, digest_size=MAC.size, key=key, person=_PURPOSE).digest()
    return int.from_bytes(digest, "big")
