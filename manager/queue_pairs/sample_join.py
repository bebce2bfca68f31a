"""The one-way delay of data packets: the same packet stamped where it left and where it came is found again.

Both ends stamp the same packets. One is named by its source and destination NIC, destination QPN, opcode and PSN. PSNs
come again, after 2^24 packets or when a packet is sent again; so a name that was seen twice within `REACH_NS` on either
side stands for nothing. Samples are joined when they are `SETTLE_NS` old, by when both ends' reports are in: neither
order nor lateness of reports changes what is found. Pure functions over arrays, and one buffer of bounded size.
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import EGRESS, INGRESS

REACH_NS = 500_000_000
SETTLE_NS = 1_500_000_000
MOST_WAITING = 2_000_000
OUTCOMES = ("joined", "unmatched", "ambiguous", "implausible", "overflowed")

STAMP = np.dtype(
    [
        ("name", "u8"),
        ("time_ns", "i8"),
        ("bound_ns", "i8"),
        ("flow", "i8"),
        ("sport", "u2"),
        ("direction", "u1"),
    ]
)
"""A packet at one end: `name` is a hash of what names it, `flow` what its delay is kept under."""

JOINED = np.dtype([("flow", "i8"), ("time_ns", "i8"), ("owd_ns", "i8"), ("bound_ns", "i8"), ("sport", "u2")])
"""A packet at both: when it left, how long it took, both clocks' bounds together, its source port on arrival."""

Array = NDArray[np.void]

_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def packet_names(
    source: NDArray[np.int64], target: NDArray[np.int64], qpn: NDArray[np.uint32], psn: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    """A 64-bit hash of what names each packet (SplitMix64's finaliser over two words); shape (n,).

    Args:
        source: number of the NIC that it left from, below 2^32.
        target: number of the NIC that it came to, below 2^32.
        qpn: destination QPN.
        psn: opcode << 24 | PSN.
    """
    ends = source.astype(np.uint64) << np.uint64(32) | target.astype(np.uint64)
    packet = qpn.astype(np.uint64) << np.uint64(32) | psn.astype(np.uint64)
    return _mix(_mix(ends + np.uint64(1)) ^ packet)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    first, second, third = map(np.uint64, _MULTIPLIERS)
    x = x * first
    x = (x ^ (x >> np.uint64(30))) * second
    x = (x ^ (x >> np.uint64(27))) * third
    return x ^ (x >> np.uint64(31))


class SampleJoin:
    """Holds stamps until they are joined or given up.

    Attributes:
        outcomes: how many ended how (`OUTCOMES`): `joined` counts packets, the others stamps. `unmatched` were
            lost on the way, or stamped at one end only.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._waiting: list[Array] = []
        self._count = 0
        self._newest_ns: int | None = None

    def add(self, stamps: Array) -> None:
        """Take in stamps of one host, dtype STAMP, in any order."""
        if self._count + len(stamps) > MOST_WAITING:
            self.outcomes["overflowed"] += len(stamps)
            return
        self._waiting.append(stamps)
        self._count += len(stamps)

    def join(self, now_ns: int) -> Array:
        """The packets whose stamps have settled, dtype JOINED.

        Args:
            now_ns: the timeline now; stamps from the future, or from long ago, are given up.
        """
        if not self._waiting:
            return np.zeros(0, JOINED)
        stamps = np.concatenate(self._waiting)
        settled_ns = now_ns - SETTLE_NS
        sane = (stamps["time_ns"] <= now_ns + REACH_NS) & (stamps["time_ns"] > settled_ns - 4 * REACH_NS)
        self.outcomes["implausible"] += int(np.count_nonzero(~sane))
        stamps = stamps[sane]
        joined, rest = join_settled(stamps, settled_ns, self.outcomes)
        self._waiting, self._count = [rest], len(rest)
        return joined


def join_settled(stamps: Array, settled_ns: int, outcomes: Counter[str]) -> tuple[Array, Array]:
    """Join what is older than `settled_ns`.

    Args:
        stamps: dtype STAMP.
        settled_ns: packets that left before this are decided.
        outcomes: counts what became of them.

    Returns:
        The packets found, dtype JOINED; the stamps that are still to be kept, dtype STAMP.
    """
    # A packet sorts behind its departure even if clocks that are off by their bounds say otherwise.
    leaves = stamps["direction"] == EGRESS
    order_ns = stamps["time_ns"] + np.where(leaves, -stamps["bound_ns"], stamps["bound_ns"])
    order = np.lexsort((~leaves, order_ns, stamps["name"]))
    stamps, order_ns = stamps[order], order_ns[order]
    near = (stamps["name"][1:] == stamps["name"][:-1]) & (np.diff(order_ns) < REACH_NS)
    near_before = np.concatenate([[False], near])
    near_after = np.concatenate([near, [False]])
    leaves = stamps["direction"] == EGRESS
    is_pair = np.zeros(len(stamps), dtype=bool)
    is_pair[:-1] = near & leaves[:-1] & (stamps["direction"][1:] == INGRESS)
    is_pair[:-1] &= ~near_before[:-1] & ~near_after[1:]
    arrives = np.concatenate([[False], is_pair[:-1]])
    decided = order_ns <= settled_ns
    decided[1:] = np.where(arrives[1:], decided[:-1], decided[1:])
    first = np.flatnonzero(is_pair & decided)
    outcomes["ambiguous"] += int(np.count_nonzero(decided & ~is_pair & ~arrives & (near_before | near_after)))
    outcomes["unmatched"] += int(np.count_nonzero(decided & ~is_pair & ~arrives & ~near_before & ~near_after))
    joined = _pairs(stamps[first], stamps[first + 1])
    plausible = joined["owd_ns"] + joined["bound_ns"] >= 0
    outcomes["implausible"] += int(np.count_nonzero(~plausible))
    outcomes["joined"] += int(np.count_nonzero(plausible))
    return joined[plausible], stamps[~decided]


def _pairs(left: Array, came: Array) -> Array:
    joined = np.zeros(len(left), dtype=JOINED)
    joined["flow"], joined["time_ns"] = left["flow"], left["time_ns"]
    joined["owd_ns"] = came["time_ns"] - left["time_ns"]
    joined["bound_ns"] = came["bound_ns"] + left["bound_ns"]
    joined["sport"] = came["sport"]
    return joined
