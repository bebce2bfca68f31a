"""SipHash-2-4 after the paper (Aumasson and Bernstein, 2012), the reference for the one in the kernel."""

MASK = (1 << 64) - 1


def _rotate_left(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0, v2 = (v0 + v1) & MASK, (v2 + v3) & MASK
    v1, v3 = _rotate_left(v1, 13) ^ v0, _rotate_left(v3, 16) ^ v2
    v0 = _rotate_left(v0, 32)
    v2, v0 = (v2 + v1) & MASK, (v0 + v3) & MASK
    v1, v3 = _rotate_left(v1, 17) ^ v2, _rotate_left(v3, 21) ^ v0
    return v0, v1, _rotate_left(v2, 32), v3


def siphash_2_4(key: bytes, message: bytes) -> int:
    """The 64-bit tag of a message under a key of 16 bytes."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)
    padding = bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    padded = message + padding
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v = _round(*_round(v[0], v[1], v[2], v[3] ^ word))
        v = (v[0] ^ word, v[1], v[2], v[3])
    v = (v[0], v[1], v[2] ^ 0xFF, v[3])
    for _ in range(4):
        v = _round(*v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
