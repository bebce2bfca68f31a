"""SipHash-2-4 (Aumasson and Bernstein, 2012) in steps, so that a timestamp can be hashed last.

The kernel's programs sign their probes with the same function under the same cluster key.
"""

import struct

MASK = (1 << 64) - 1
KEY_BYTES = 16

State = tuple[int, int, int, int]


def start(key: bytes) -> State:
    """The state before the first word, under a key of 16 bytes."""
    k0, k1 = struct.unpack("<QQ", key)
    return (
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    )


def absorb(state: State, data: bytes) -> State:
    """Take in whole words of 8 bytes."""
    for (word,) in struct.iter_unpack("<Q", data):
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _rounds((v0, v1, v2, v3 ^ word), 2)
        state = (v0 ^ word, v1, v2, v3)
    return state


def finish(state: State, length: int) -> int:
    """The tag of a message of `length` bytes, a multiple of 8, that was taken in."""
    v0, v1, v2, v3 = absorb(state, bytes(7) + bytes([length & 0xFF]))
    v0, v1, v2, v3 = _rounds((v0, v1, v2 ^ 0xFF, v3), 4)
    return v0 ^ v1 ^ v2 ^ v3


def _rounds(state: State, count: int) -> State:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = v0 + v1 & MASK
        v1 = (v1 << 13 | v1 >> 51) & MASK ^ v0
        v2 = v2 + v3 & MASK
        v3 = (v3 << 16 | v3 >> 48) & MASK ^ v2
        v0 = (v0 << 32 | v0 >> 32) & MASK
        v2 = v2 + v1 & MASK
        v1 = (v1 << 17 | v1 >> 47) & MASK ^ v2
        v0 = v0 + v3 & MASK
        v3 = (v3 << 21 | v3 >> 43) & MASK ^ v0
        v2 = (v2 << 32 | v2 >> 32) & MASK
    return v0, v1, v2, v3
