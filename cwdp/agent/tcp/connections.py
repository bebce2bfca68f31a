"""From the kernel's sockets to what is told of them: which are a service's, which have changed, which are gone. No I/O."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.tcp.diag import Sockets
from cwdp.agent.tcp.services import Service
from cwdp.shared.addresses import address_bytes, read_address
from cwdp.shared.connections import CLOSED, TCP_ROW, connection_keys

MOST_LISTED = 4_096
"""Of a host at once."""

MOST_CLOSED = 1_024
"""Of these, that are gone; that others are is seen by what is told in full."""

NO_SERVICE = 0xFF

Rows = NDArray[np.void]


@dataclass(frozen=True)
class Named:
    """What makes a connection a service's.

    Attributes:
        services: the first that fits counts.
        cgroups: numbers of the cgroups of each, in their order.
        inodes: sockets of the processes of each.
        refused_ports: connections that have one are nobody's.
        refused_cgroups: the same.
    """

    services: Sequence[Service]
    cgroups: Sequence[Collection[int]]
    inodes: Sequence[Collection[int]]
    refused_ports: Collection[int] = ()
    refused_cgroups: Collection[int] = ()

    def refused(self, sockets: Sockets) -> NDArray[np.bool_]:
        """Which are nobody's, shape (n,)."""
        ports = list(self.refused_ports)
        is_refused = np.isin(sockets["local_port"], ports) | np.isin(sockets["remote_port"], ports)
        return np.asarray(is_refused | np.isin(sockets["cgroup"], list(self.refused_cgroups)))

    def service(self, sockets: Sockets) -> NDArray[np.uint8]:
        """The place of each one's service, NO_SERVICE where it has none, shape (n,)."""
        found = np.full(len(sockets), NO_SERVICE, np.uint8)
        told = zip(self.services, self.cgroups, self.inodes, strict=True)
        for number, (service, cgroups, inodes) in reversed(list(enumerate(told))):
            fits = np.isin(sockets["cgroup"], list(cgroups)) | np.isin(sockets["inode"], list(inodes))
            for low, high in service.ports:
                for port in (sockets["local_port"], sockets["remote_port"]):
                    fits |= (port >= low) & (port <= high)
            found[fits] = number
        return found


def by_nic(sockets: Sockets, nics: Mapping[str, Sequence[str]]) -> NDArray[np.intp]:
    """The place in `nics` of the one that has each one's own address, -1 for none, shape (n,)."""
    found = np.full(len(sockets), -1, np.intp)
    local = np.ascontiguousarray(sockets["local_addr"]).view("S16").reshape(-1)
    for number, addresses in enumerate(nics.values()):
        packed = [address_bytes(read_address(address)) for address in addresses]
        found[np.isin(local, np.array(packed, "S16"))] = number
    return found


@dataclass
class Told:
    """What is to be told at once.

    Attributes:
        rows: TCP_ROWs, shape (n,).
        nic: the place of each one's NIC, shape (n,).
        inodes: of each one's socket, 0 where it is closed, shape (n,).
        unlisted: how many are left out, by NIC.
    """

    rows: Rows
    nic: NDArray[np.intp]
    inodes: NDArray[np.uint32]
    unlisted: Counter[int] = field(default_factory=Counter)

    @classmethod
    def nothing(cls) -> "Told":
        """Nothing at all."""
        return cls(np.zeros(0, TCP_ROW), np.zeros(0, np.intp), np.zeros(0, np.uint32))


class Connections:
    """Remembers what has been told.

    Attributes:
        counters: totals by name (`cwdp.agent.tcp.orders.COUNTERS`).
        count: how many there are.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.count = 0
        self._left_out: dict[str, set[int]] = {}
        self._keys: NDArray[np.bytes_]
        self._rows: Rows
        self._nic: NDArray[np.intp]
        self.forget()

    def take(
        self, sockets: Sockets, named: Named, nics: Mapping[str, Sequence[str]], *, in_full: bool
    ) -> Told:
        """What has changed since the last time, closed ones too; all that there are where `in_full`.

        Args:
            sockets: as the kernel lists them, perhaps with some that are no service's.
            named: what makes them a service's.
            nics: the addresses of each NIC.
            in_full: to tell all.
        """
        chosen, service, nic = self._chosen(sockets, named, nics)
        rows = _rows(chosen, service)
        keys = connection_keys(rows)
        order = np.argsort(keys, kind="stable")
        rows, keys, nic, inodes = rows[order], keys[order], nic[order], chosen["inode"][order]
        before = np.searchsorted(self._keys, keys)
        known = np.zeros(len(keys), bool)
        inside = before < len(self._keys)
        known[inside] = self._keys[before[inside]] == keys[inside]
        changed = np.ones(len(keys), bool)
        changed[known] = _differ(rows[known], self._rows[before[known]])
        gone = np.ones(len(self._keys), bool)
        gone[before[known]] = False
        told = np.ones(len(keys), bool) if in_full else changed
        self.counters["tcp_closed"] += int(gone.sum())
        closed = self._rows[gone][:MOST_CLOSED]
        closed["state"] = CLOSED
        unlisted = self._limit(rows, nic, told, MOST_LISTED - len(closed))
        result = Told(
            np.concatenate([closed, rows[told]]),
            np.concatenate([self._nic[gone][:MOST_CLOSED], nic[told]]),
            np.concatenate([np.zeros(len(closed), np.uint32), inodes[told]]),
            unlisted,
        )
        self._keys, self._rows, self._nic, self.count = keys, rows, nic, len(rows)
        return result

    def forget(self) -> None:
        """All is new from now on: what services or NICs there are has changed."""
        self._keys = connection_keys(np.zeros(0, TCP_ROW))
        self._rows, self._nic = np.zeros(0, TCP_ROW), np.zeros(0, np.intp)

    def _chosen(
        self, sockets: Sockets, named: Named, nics: Mapping[str, Sequence[str]]
    ) -> tuple[Sockets, NDArray[np.uint8], NDArray[np.intp]]:
        service = named.service(sockets)
        is_named = service != NO_SERVICE
        refused = is_named & named.refused(sockets)
        nic = by_nic(sockets, nics)
        elsewhere = is_named & ~refused & (nic < 0)
        self._count("tcp_refused", sockets[refused])
        self._count("tcp_other_address", sockets[elsewhere])
        kept = is_named & ~refused & ~elsewhere & (sockets["has_info"] > 0)
        return sockets[kept], service[kept], nic[kept]

    def _count(self, why: str, sockets: Sockets) -> None:
        """Count those left out that were not at the last time."""
        now = set(sockets["cookie"].tolist())
        self.counters[why] += len(now - self._left_out.get(why, set()))
        self._left_out[why] = now

    def _limit(self, rows: Rows, nic: NDArray[np.intp], told: NDArray[np.bool_], most: int) -> Counter[int]:
        """Leave out those with the least data where there are too many; how many of each NIC."""
        over = int(told.sum()) - most
        if over <= 0:
            return Counter()
        places = np.flatnonzero(told)
        moved = (rows["bytes_acked"] + rows["bytes_received"])[places]
        left_out = places[np.argsort(moved, kind="stable")[:over]]
        told[left_out] = False
        self.counters["tcp_unlisted"] += over
        return Counter(nic[left_out].tolist())


def _rows(sockets: Sockets, service: NDArray[np.uint8]) -> Rows:
    rows = np.zeros(len(sockets), TCP_ROW)
    for name in set(TCP_ROW.names or ()) & set(sockets.dtype.names or ()) - {"mss"}:
        rows[name] = sockets[name]
    rows["service"], rows["mss"] = service, np.minimum(sockets["mss"], 0xFFFF)
    return rows


def _differ(rows: Rows, before: Rows) -> NDArray[np.bool_]:
    """Which have moved data or changed their state or service, shape (n,)."""
    names = ("state", "service", "bytes_sent", "bytes_acked", "bytes_received", "bytes_retransmitted")
    return np.asarray(np.any([rows[name] != before[name] for name in names], axis=0), bool)
