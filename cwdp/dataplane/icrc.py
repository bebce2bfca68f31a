"""What the dataplane needs to know of CRC-32 to change an ICRC without reading the packet.

The ICRC of RoCEv2 (IBTA A17.3.3) is the CRC-32 of Ethernet. A change of 16 bits with n bytes behind them changes
it by those bits, as a polynomial, times x^(8 n + 32). Polynomials are held with their bits reflected: the lowest
bit stands for x^31.
"""

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi

_X16 = 0x00008000
_ALL = 0xFFFFFFFF


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
