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


def icrc_powers() -> NDArray[np.uint32]:
    """x^(8 (4 i - 2)) for UDP datagrams of 4 i bytes; shape (UDP_MAX / 4 + 1,), `icrc_powers` in `bpf/maps.h`.

    Entry 0 stands for no datagram and is 0.
    """
    powers = np.zeros(abi.UDP_MAX // 4 + 1, dtype=np.uint32)
    power = ONE
    for i in range(1, len(powers)):
        for _ in range(16 if i == 1 else 32):
            power = times_x(power)
        powers[i] = power
    return powers
