"""What is placed: queue pairs, and TCP connections that have names like theirs (`manager.tcp.names`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id

ACTIVE_S = 1.5
"""What has sent of late has done so within this time."""

Indices = NDArray[np.intp]


class QpName(NamedTuple):
    """A queue pair by the NIC that it leaves by and its far end."""

    host: str
    nic: str
    dst_addr: str
    qpn: int

    @property
    def src(self) -> str:
        """The NIC, by its name in the fabric."""
        return nic_id(self.host, self.nic)


@dataclass(frozen=True, eq=False)
class Ends:
    """The NICs at both ends of flows.

    Attributes:
        nics: their names, each once.
        number: the places in there of each flow's source and destination, shape (2, n).
    """

    nics: Sequence[str]
    number: Indices

    @classmethod
    def of(cls, src: Sequence[str], dst: Sequence[str]) -> "Ends":
        """From the names of both ends of each flow."""
        numbers = {nic: i for i, nic in enumerate(dict.fromkeys(chain(src, dst)))}
        number = np.array([[numbers[nic] for nic in end] for end in (src, dst)], dtype=np.intp)
        return cls(list(numbers), number)


@dataclass(frozen=True, eq=False)
class Flows:
    """Queue pairs that have sent of late, as far as is known; arrays of shape (n,).

    Attributes:
        names: of each.
        dst: the NIC at the far end, or its address where nobody is known to have it.
        sport: the source port that its packets left with last.
        rate_bps: between the last two reports, NaN where there was one only, or none just now.
        small: whether its packets are small ones, such as acknowledgements.
        known_ends: the NICs at both ends, where they were numbered already.
    """

    names: list[QpName]
    dst: list[str]
    sport: NDArray[np.int64]
    rate_bps: NDArray[np.float64]
    small: NDArray[np.bool_]
    known_ends: Ends | None = None

    @classmethod
    def none(cls) -> "Flows":
        """No flows."""
        return cls([], [], np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))

    @property
    def ends(self) -> Ends:
        """The NICs at both ends."""
        return self.known_ends or Ends.of([name.src for name in self.names], self.dst)


def together(one: Flows, other: Flows) -> Flows:
    """Both, the first one's first; the NICs at their ends are numbered anew where both are some."""
    if not other.names:
        return one
    return Flows(
        names=one.names + other.names,
        dst=one.dst + other.dst,
        sport=np.concatenate([one.sport, other.sport]),
        rate_bps=np.concatenate([one.rate_bps, other.rate_bps]),
        small=np.concatenate([one.small, other.small]),
    )
