"""What the dataplane needs to know of CRC-32 to change an ICRC without reading the packet.

The ICRC of RoCEv2 (IBTA A17.3.3) is the CRC-32 of Ethernet. A change of 16 bits with n bytes behind them changes
it by those bits, as a polynomial, times x^(8 n + 32).
"""

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi

POLYNOMIAL = 0xEDB88320
"""Of CRC-32, bits reflected: the lowest bit stands for x^31."""

ONE = 0x80000000
"""The polynomial 1."""


def times_x(power: int) -> int:
    """A polynomial times x, modulo that of CRC-32."""
    return power >> 1 ^ (POLYNOMIAL if power & 1 else 0)


def times(powers: NDArray[np.uint32], factor: int) -> NDArray[np.uint32]:
    """Polynomials, each times one and the same, modulo that of CRC-32; shape (n,) as given."""
    products = np.zeros_like(powers)
    for bit in range(31, -1, -1):
        products ^= np.where(powers >> bit & 1, np.uint32(factor), np.uint32(0))
        factor = times_x(factor)
    return products


def icrc_powers() -> NDArray[np.uint32]:
    """x^(8 (4 i - 2)) for UDP datagrams of 4 i bytes; shape (UDP_MAX / 4 + 1,), `icrc_powers` in `bpf/maps.h`.

    Entry 0 stands for no datagram and is 0.
    """
    powers = np.zeros(abi.UDP_MAX // 4 + 1, dtype=np.uint32)
    step = ONE
    for _ in range(16):
        step = times_x(step)
    powers[1] = step
    step = int(times(powers[1:2], step)[0])
    known = 1
    while known < len(powers) - 1:
        more = powers[1 : len(powers) - known][:known]
        powers[1 + known : 1 + known + len(more)] = times(more, step)
        step = int(times(np.array([step], dtype=np.uint32), step)[0])
        known *= 2
    return powers
