"""LIDs of InfiniBand (IBTA volume 1, 4.1.3): paths to a port, and ports that are known by nothing else."""

LID_MAX = 0xBFFF
"""The last of unicast; the first is 1."""

LMC_MAX = 7

Lids = tuple[int, int]
"""A port's: the first, and the LMC, how many of its bits are path bits."""


def lid_gid(lid: int) -> bytes:
    """16 bytes that stand for a LID where others have a GID: 14 zeros and the LID, which is no GID's form."""
    return bytes(14) + lid.to_bytes(2, "big")


def gid_lid(gid: bytes) -> int | None:
    """The LID that such bytes stand for; None for a GID."""
    lid = int.from_bytes(gid[14:], "big")
    return lid if not any(gid[:14]) and 0 < lid <= LID_MAX else None


def dlids(ours: Lids, theirs: Lids) -> list[int]:
    """The LIDs of a port by which another can send to it: so many as both have path bits for.

    What arrives at a connection is taken only from the LID that it sends to (9.6.1.5), so that both ends take the path of
    the same number.
    """
    return [theirs[0] + number for number in range(1 << min(ours[1], theirs[1]))]


def point(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Where among all shares a connection is, from 0 to 2**32 - 1: as `ib/lids.c` of the verbs shim has it, at both ends.

    Args:
        one: the first LID and the QPN of an end.
        other: of the other; in any order.
    """
    (low, qpn), (high, _) = sorted((one, other))
    return (qpn + (low << 16 | high) * 7919) * 0x9E3779B9 & 0xFFFFFFFF
