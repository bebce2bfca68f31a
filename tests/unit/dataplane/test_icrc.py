"""The table by which the dataplane changes an ICRC without reading the packet, against CRC-32 itself."""

from zlib import crc32

import pytest

from cwdp.dataplane import abi
from cwdp.dataplane.icrc import icrc_powers

ICRC_BYTES = 4
POLYNOMIAL = 0xEDB88320
ONE = 0x80000000


def times_x(polynomial: int) -> int:
    """A polynomial times x, modulo that of CRC-32, bits reflected."""
    return polynomial >> 1 ^ (POLYNOMIAL if polynomial & 1 else 0)


def multiply(a: int, b: int) -> int:
    """Two polynomials modulo that of CRC-32, bit by bit."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = times_x(b)
    return product


def test_the_powers_by_definition() -> None:
    powers = icrc_powers()
    assert powers.shape == (abi.UDP_MAX // 4 + 1,)
    expected = ONE
    for exponent in range(1, 8 * (abi.UDP_MAX - 2) + 1):
        expected = times_x(expected)
        if exponent % 32 == 16:
            assert int(powers[exponent // 32 + 1]) == expected
    assert int(powers[0]) == 0


@pytest.mark.parametrize("udp_bytes", [24, 28, 128, 1056, 4124, abi.UDP_MAX])
def test_a_change_of_port_changes_the_crc_so(udp_bytes: int) -> None:
    """A port of 16 bits at the beginning, all the rest up to the ICRC behind it."""
    powers = icrc_powers()
    rest = bytes(n & 0xFF for n in range(udp_bytes - 2 - ICRC_BYTES))
    for before, after in ((0xC000, 0xFFFF), (50_001, 50_002), (0, 1), (0x8000, 0)):
        change = crc32(before.to_bytes(2, "big") + rest) ^ crc32(after.to_bytes(2, "big") + rest)
        as_in_memory = int.from_bytes((before ^ after).to_bytes(2, "big"), "little") << 16
        assert multiply(as_in_memory, int(powers[udp_bytes // 4])) == change
