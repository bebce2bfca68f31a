"""The watched paths of all NICs of a host as one table, for the plan of its pulses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from cwdp.agent.liveness.cover import NO_LINK
from cwdp.agent.liveness.plan import Mask, Watched


class Way(msgspec.Struct, frozen=True, array_like=True):
    """The links that a path crosses, without its destination's own.

    Attributes:
        dst: the destination as the map `paths` has it, 16 bytes.
        protocol: as that map has it.
        links: numbers, the same for paths of all NICs of the host.
    """

    ifname: str
    dst: bytes
    sport: int
    protocol: int
    links: tuple[int, ...]


WayKey = tuple[str, bytes, int, int]
"""Interface, destination, source port and protocol, as the map `paths` has them."""


class Answers(Protocol):
    """See `cwdp.agent.liveness.acknowledged.Acknowledged`."""

    def heard(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Numbers of the paths over which requests were sent since the last call, and of those that were answered."""


@dataclass(frozen=True)
class NicPaths:
    """Of one NIC.

    Attributes:
        numbers: of the paths that can have pulses.
        table: the map `paths`.
        pairs: numbers of paths and of the backups that queue pairs have for them; shape (pairs, 2).
    """

    ifname: str
    numbers: NDArray[np.intp]
    table: NDArray[np.void]
    pairs: NDArray[np.intp]
    answers: Answers


class HostPaths:
    """What the dataplanes know of all paths; rows are those of the NICs one after the other."""

    def __init__(self, nics: Sequence[NicPaths]) -> None:
        self._nics = [nic for nic in nics if len(nic.numbers)]
        self.starts = np.cumsum([0, *(len(nic.numbers) for nic in self._nics)])

    def read(self, name: str) -> NDArray[np.uint64]:
        """See `cwdp.agent.liveness.plan.Columns`."""
        columns = [nic.table[name][nic.numbers] for nic in self._nics]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    def heard(self) -> tuple[Mask, Mask]:
        """See `cwdp.agent.liveness.plan.Columns`."""
        found = [[_among(nic, numbers) for numbers in nic.answers.heard()] for nic in self._nics]
        sent, answered = (np.concatenate(masks) for masks in zip(*found, strict=True))
        return sent, answered

    def watched(self, ways: Mapping[WayKey, tuple[int, ...]]) -> Watched:
        """The paths and the links that they cross; one whose links are not known has one of its own."""
        known = max((link for links in ways.values() for link in links), default=NO_LINK) + 1
        crossed: list[tuple[int, ...]] = []
        for nic in self._nics:
            records = nic.table[nic.numbers]
            flows = zip(records["dst"], records["sport"].tolist(), records["protocol"].tolist(), strict=True)
            for dst, sport, protocol in flows:
                links = ways.get((nic.ifname, dst.tobytes(), sport, protocol))
                crossed.append(links or (known + len(crossed),))
        return Watched(
            np.concatenate([_rows(nic, start) for nic, start in zip(self._nics, self.starts, strict=False)]),
            self.read("primaries") > 0,
            self.read("users") == 0,
            _padded(crossed),
        )


def _among(nic: NicPaths, numbers: NDArray[np.intp]) -> Mask:
    named = np.zeros(len(nic.table), dtype=bool)
    named[numbers] = True
    mask: Mask = named[nic.numbers]
    return mask


def _rows(nic: NicPaths, start: int) -> NDArray[np.intp]:
    """The pairs of a NIC whose rows begin there, without paths that cannot have pulses."""
    row = np.full(len(nic.table), -1, dtype=np.intp)
    row[nic.numbers] = np.arange(start, start + len(nic.numbers))
    pairs = row[nic.pairs]
    rows: NDArray[np.intp] = pairs[(pairs >= 0).all(axis=1)]
    return rows


def _padded(rows: Sequence[tuple[int, ...]]) -> NDArray[np.intp]:
    longest = max(len(row) for row in rows)
    return np.array([row + (NO_LINK,) * (longest - len(row)) for row in rows], dtype=np.intp)
