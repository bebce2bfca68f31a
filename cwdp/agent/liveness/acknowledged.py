"""Which paths are alive by what their queue pairs hear back: acknowledgements, and responses to READ.

The two directions of a queue pair have different numbers, and which go together the wire does not tell. So a destination
is looked at as a whole: where as many queue pairs hear back from it as send requests to it, each one's path is alive.
What is not seen to be answered is not taken to be dead, but asked by a pulse.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import Direction, SteerFlag
from cwdp.dataplane.telemetry import FREE_OR_BUSY

_PSN_MASK = 0xFFFFFF

RECENT = 2
"""Calls for which an answer counts."""


class Tables(Protocol):
    """What is read of the open maps of an interface; see `cwdp.dataplane.pinned.maps.Maps`."""

    @property
    def qps(self) -> Mapping[Direction, NDArray[np.void]]:
        """Queue pairs by direction."""

    def qp_places_made(self) -> int:
        """How often a queue pair was given a place."""


class Acknowledged:
    """Reads the tables of queue pairs of one interface; each call looks at what has changed since the one before.

    Args:
        tables: its open maps; they stay the caller's.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._out, self._in = tables.qps[Direction.EGRESS], tables.qps[Direction.INGRESS]
        self._made = -1
        self.search()

    def search(self) -> None:
        """Find queue pairs that are new, and those that their destinations send to."""
        made = self._tables.qp_places_made()
        if made == self._made:
            return
        self._made = made
        out = self._out
        self._sending = np.flatnonzero(out["tag"] > FREE_OR_BUSY)
        sent_to = _addresses(out[self._sending])
        hearing = np.flatnonzero(self._in["tag"] > FREE_OR_BUSY)
        addresses = _addresses(self._in[hearing])
        wanted = np.isin(addresses, sent_to)
        self._hearing = hearing[wanted]
        names, places = np.unique(np.concatenate([sent_to, addresses[wanted]]), return_inverse=True)
        self._to, self._from = places[: len(sent_to)], places[len(sent_to) :]
        self._destinations = len(names)
        self._sent, self._heard = self._requests(), self._answers()
        self._since_sent = np.full(len(self._sending), RECENT)
        self._since_heard = np.full(len(self._hearing), RECENT)

    def heard(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Numbers of the paths over which requests were sent of late, and of those whose destinations answered all."""
        sent, heard = self._requests(), self._answers()
        self._since_sent = np.where(sent != self._sent, 0, self._since_sent + 1)
        self._since_heard = np.where((heard != self._heard).any(axis=0), 0, self._since_heard + 1)
        self._sent, self._heard = sent, heard
        sending = self._since_sent < RECENT
        hearing = self._since_heard < RECENT
        senders = np.bincount(self._to[sending], minlength=self._destinations)
        hearers = np.bincount(self._from[hearing], minlength=self._destinations)
        answered = sending & (hearers >= senders)[self._to]
        paths = self._paths()
        return paths[sending], paths[answered]

    def _requests(self) -> NDArray[np.uint32]:
        psns: NDArray[np.uint32] = self._out["next_psn"][self._sending]
        return np.bitwise_and(psns, np.uint32(_PSN_MASK))

    def _answers(self) -> NDArray[np.uint64]:
        return np.stack([self._in["acks"][self._hearing], self._in["next_response_psn"][self._hearing]])

    def _paths(self) -> NDArray[np.intp]:
        """The path that each one's last packet took; 0 where it is not watched."""
        records = self._out[self._sending]
        on_backup = (records["used_sport"] == records["backup_sport"]) & (records["backup_path"] > 0)
        paths = np.where(on_backup, records["backup_path"], records["path"]).astype(np.intp)
        return np.where(records["flags"] & SteerFlag.ON, paths, 0)


def _addresses(records: NDArray[np.void]) -> NDArray[np.bytes_]:
    return (
        np.ascontiguousarray(records["key"]["addr"]).view(np.uint8).reshape(-1, 16).copy().view("V16").ravel()
    )
