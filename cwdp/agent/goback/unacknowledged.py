"""Which queue pairs of a NIC wait for an answer over a path in doubt, and have to go back; which have given one over it.

The dataplane counts the two directions of a queue pair apart: what it sends under the far end's number, what comes to it
under its own. Which two belong together the kernel says (`cwdp.rdma.netlink`), where it has the queue pairs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import Direction, PathState, SteerFlag
from cwdp.dataplane.addresses import words_address
from cwdp.dataplane.telemetry import FREE_OR_BUSY
from cwdp.rdma.netlink import QueuePair
from cwdp.shared.addresses import Address

UNANSWERED_MIN = 4
"""Pulses of a path: with fewer the dataplane does not doubt it."""

_PSN_KNOWN, _PSN_NAK, _PSN_MASK = 1 << 31, 1 << 30, 0xFFFFFF

Name = tuple[str, int, int | None, int | None]
"""Of one connection of a queue pair: device, its own number, the far end's, and the process that owns it."""


@dataclass(frozen=True)
class Waiting:
    """A queue pair that waits.

    Attributes:
        name: which it is.
        peer: address of the far end.
        lqpn, rqpn: its own number and the far end's.
        path: number of the watched path that it takes.
        psn: the one behind the last acknowledged; None where nothing was since the queue pair is known.
        retrying: whether the far end said so by a NAK, after which the queue pair has sent again from this PSN.
    """

    name: Name
    peer: Address
    lqpn: int
    rqpn: int
    path: int
    psn: int | None
    retrying: bool


@dataclass(frozen=True)
class Acknowledging:
    """A queue pair that has acknowledged requests.

    Attributes:
        peer: address of the far end.
        rqpn: the far end's number.
        path: number of the watched path that it takes.
        aeth, psn: of its last ACK.
    """

    peer: Address
    rqpn: int
    path: int
    aeth: int
    psn: int


class Tables(Protocol):
    """What is needed of the open maps of an interface; see `cwdp.dataplane.pinned.maps.Maps`."""

    qps: dict[Direction, NDArray[np.void]]
    paths: NDArray[np.void]


class Unacknowledged:
    """The queue pairs of one NIC.

    An acknowledgement counts only if it came after the queue pair was seen here for the first time: numbers are used
    again, and what was said to an earlier queue pair of the same number must not be held against this one.

    Args:
        tables: the interface's maps; they stay the caller's.
    """

    def __init__(self, tables: Tables) -> None:
        self._out, self._in = (tables.qps[direction] for direction in (Direction.EGRESS, Direction.INGRESS))
        self._paths = tables.paths
        self._connected: dict[Name, QueuePair] = {}
        self._names: list[Name] = []
        self._egress = self._ingress = np.zeros(0, dtype=np.intp)
        self._tags = np.zeros((0, 2), dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: Name) -> bool:
        return name in self._connected

    def follow(self, connected: Iterable[QueuePair]) -> None:
        """Follow these queue pairs, all that are connected now, and no others."""
        now: dict[Name, QueuePair] = {(qp.device, qp.lqpn, qp.rqpn, qp.pid): qp for qp in connected}
        new = [qp for name, qp in now.items() if name not in self._connected]
        gone = [qp for name, qp in self._connected.items() if name not in now]
        if new or gone:
            self._forget(new + gone)
        self._connected = now
        self._find()

    def waiting(self) -> list[Waiting]:
        """Those with requests that nobody has acknowledged, a path in doubt or given up, and a backup."""
        return [one for row in self._doubtful().tolist() if (one := self._waiting(row)) is not None]

    def acknowledging(self, settled: list[int]) -> list[Acknowledging]:
        """Those that have acknowledged requests, with a path in doubt or given up, and a backup; not over settled paths."""
        rows = self._doubtful()
        rows = rows[~np.isin(self._out["path"][self._egress[rows]], settled)]
        return [one for row in rows.tolist() if (one := self._acknowledging(row)) is not None]

    def _forget(self, changed: list[QueuePair]) -> None:
        """What was acknowledged under their numbers."""
        of_in = np.isin(self._in["key"]["qpn"], [qp.lqpn for qp in changed])
        of_out = np.isin(self._out["key"]["qpn"], [qp.rqpn for qp in changed if qp.rqpn is not None])
        self._in["acked_psn"][of_in] = 0
        self._out["ack_sent"][of_out] = 0

    def _doubtful(self) -> NDArray[np.intp]:
        path = self._out["path"][self._egress]
        backed = (self._out["flags"][self._egress] & SteerFlag.BACKUP) != 0
        doubtful = (self._paths["unanswered"][path] >= UNANSWERED_MIN) | (
            self._paths["state"][path] == PathState.DOWN
        )
        return np.flatnonzero(backed & (path > 0) & doubtful)

    def _is_there(self, row: int) -> bool:
        """Whether its places have not made room for others since."""
        out, into = self._out[self._egress[row]], self._in[self._ingress[row]]
        return bool((int(out["tag"]), int(into["tag"])) == tuple(self._tags[row].tolist()))

    def _acknowledging(self, row: int) -> Acknowledging | None:
        out = self._out[self._egress[row]]
        acked = int(out["ack_sent"])
        if not self._is_there(row) or not acked & _PSN_KNOWN:
            return None
        peer = words_address(out["key"]["addr"])
        rqpn, path = int(out["key"]["qpn"]), int(out["path"])
        return Acknowledging(peer, rqpn, path, acked >> 32, acked & _PSN_MASK)

    def _waiting(self, row: int) -> Waiting | None:
        out, into = self._out[self._egress[row]], self._in[self._ingress[row]]
        if not self._is_there(row):
            return None
        acked, sent = int(into["acked_psn"]), int(out["next_psn"])
        psn = (acked + 1) & _PSN_MASK if acked & _PSN_KNOWN else None
        if psn == sent & _PSN_MASK:
            return None
        peer = words_address(out["key"]["addr"])
        lqpn, rqpn = int(into["key"]["qpn"]), int(out["key"]["qpn"])
        return Waiting(self._names[row], peer, lqpn, rqpn, int(out["path"]), psn, bool(acked & _PSN_NAK))

    def _find(self) -> None:
        """Where both directions of each are. One that a stranger's packets seem to be for too is left out."""
        there = _places(self._out, [qp.rqpn for qp in self._connected.values()])
        here = _places(self._in, [qp.lqpn for qp in self._connected.values()])
        found = []
        for name, qp in self._connected.items():
            incoming = here.get(qp.lqpn, {})
            both = [(at, incoming[peer]) for peer, at in there.get(qp.rqpn, {}).items() if peer in incoming]
            if len(both) == 1:
                found.append((name, *both[0]))
        self._names = [name for name, _, _ in found]
        self._egress = np.array([at for _, at, _ in found], dtype=np.intp)
        self._ingress = np.array([at for _, _, at in found], dtype=np.intp)
        self._tags = np.stack([self._out["tag"][self._egress], self._in["tag"][self._ingress]], axis=1)


def _places(table: NDArray[np.void], numbers: list[int | None]) -> dict[int | None, dict[bytes, int]]:
    """The places of the queue pairs of these numbers: by number, then by the far end's address."""
    wanted = np.isin(table["key"]["qpn"], [number for number in numbers if number is not None])
    places: dict[int | None, dict[bytes, int]] = {}
    for at in np.flatnonzero(wanted & (table["tag"] > FREE_OR_BUSY)).tolist():
        key = table["key"][at]
        places.setdefault(int(key["qpn"]), {}).setdefault(key["addr"].tobytes(), at)
    return places
