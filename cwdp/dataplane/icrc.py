"""The ICRC of RoCEv2 (IBTA A17.3.3), and what the dataplane needs to know to change one without reading the packet.

It is the CRC-32 of Ethernet over the packet from its IP header on, with ones in place of what changes on the way. A change of 16 bits with n bytes behind them changes
it by those bits, as a polynomial, times x^(8 n + 32). Polynomials are held with their bits reflected: the lowest
bit stands for x^31.
"""

import struct
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi

_X16 = 0x00008000
_ALL = 0xFFFFFFFF
_LINK_HEADER = b"\xff" * 8  # of InfiniBand, which RoCE does not have
_IPV4_BYTES, _IPV6_BYTES = 20, 40
_UDP_CHECK, _RESERVED = 6, 12  # from the UDP header: the checksum; the byte before the destination QPN


def times_x32(polynomial: int) -> int:
    """A polynomial times x^32, modulo that of CRC-32: what four bytes of zeros do to its register."""
    return crc32(bytes(4), polynomial ^ _ALL) ^ _ALL


def icrc_powers() -> NDArray[np.uint32]:
    """x^(8 (4 i - 2)) for UDP datagrams of 4 i bytes; shape (UDP_MAX / 4 + 1,), `icrc_powers` in `bpf/maps.h`.

    Entry 0 stands for no datagram and is 0.
    """
    powers = [0, _X16]
    while len(powers) <= abi.UDP_MAX // 4:
        powers.append(times_x32(powers[-1]))
    return np.array(powers, dtype=np.uint32)


def icrc(datagram: bytes) -> bytes:
    """The ICRC of an IP packet without options or extension headers, which ends where the ICRC is to begin."""
    masked = bytearray(datagram)
    if datagram[0] >> 4 == 4:
        udp, changing = _IPV4_BYTES, (1, 8, 10, 11)  # type of service, time to live, checksum
    else:
        udp, changing = _IPV6_BYTES, (1, 2, 3, 7)  # traffic class, flow label, hop limit
        masked[0] |= 0x0F
    for at in (*changing, udp + _UDP_CHECK, udp + _UDP_CHECK + 1, udp + _RESERVED):
        masked[at] = 0xFF
    return struct.pack("<I", crc32(_LINK_HEADER + masked))
