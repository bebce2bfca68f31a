"""Which queue pairs of two hosts are the two ends of one connection over InfiniBand, and which path it takes. No I/O."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cwdp.shared.bus.records import shown_address
from cwdp.shared.ib.subnet import SubnetKey
from manager.ib.balance import paths as count_of
from manager.ib.ports import Port, Ports
from manager.queue_pairs.verbs import HostVerbs, Name, VerbsQp, VerbsStore

Place = tuple[str, int]
"""A queue pair by its port's address and its own number."""

Key = tuple[Place, Place]
"""A connection by its ends, in order."""


class QpEnd(NamedTuple):
    """An end whose device can migrate it.

    Attributes:
        name: of the queue pair.
        qp: what is told of it.
        here, there: the ports that it is between.
    """

    name: Name
    qp: VerbsQp
    here: Port
    there: Port

    @property
    def host(self) -> str:
        """Whose it is."""
        return self.name[0]

    @property
    def place(self) -> Place:
        """Its own."""
        return self.here.end.addr, self.qp.lqpn

    @property
    def far(self) -> Place:
        """Of the other end."""
        return self.there.end.addr, self.name[3]

    @property
    def key(self) -> Key:
        """Of its connection."""
        first, second = sorted((self.place, self.far))
        return first, second

    @property
    def path_count(self) -> int:
        """How many paths there are."""
        return count_of(self.here.end.lids, self.there.end.lids)

    def number_of(self, dlid: int) -> int | None:
        """Of the path to a LID of the far port; None where it is none that both ports have."""
        number = dlid - self.there.end.lids.lid
        return number if 0 <= number < self.path_count else None


class Connection(NamedTuple):
    """One whose two ends can migrate."""

    ends: tuple[QpEnd, QpEnd]

    @property
    def number(self) -> int | None:
        """Of the path that both ends say they take; None where they do not take the same."""
        one, other = (end.number_of(end.qp.sport) for end in self.ends)
        return one if one == other else None

    @property
    def loaded(self) -> int | None:
        """Of the path that both ends have loaded; None where they have not the same."""
        one, other = (end.number_of(end.qp.alternate) for end in self.ends)
        return one if one == other else None

    @property
    def path_count(self) -> int:
        """How many paths there are."""
        return self.ends[0].path_count


class _Placed(NamedTuple):
    port: Port
    subnet: SubnetKey


class Connections:
    """All of them; only what has changed is looked at.

    Attributes:
        all: by their ends.
        subnets: of each connection `Subnet.key` of the one that it is in.
    """

    def __init__(self) -> None:
        self.all: dict[Key, Connection] = {}
        self.subnets: dict[Key, SubnetKey] = {}
        self._told: dict[str, HostVerbs] = {}
        self._ends: dict[str, dict[Name, QpEnd]] = {}
        self._at: dict[Place, QpEnd] = {}
        self._by_addr: Mapping[str, _Placed] = {}
        self._by_nic: Mapping[tuple[str, str], _Placed] = {}
        self._by_row: Mapping[tuple[SubnetKey, int], Port] = {}

    @property
    def one_end(self) -> int:
        """Queue pairs that could migrate and of whose far end nobody tells that it could."""
        return len(self._at) - 2 * len(self.all)

    def of(self, name: Name) -> QpEnd | None:
        """A queue pair by its name; None where it is of no connection."""
        end = self._ends.get(name[0], {}).get(name)
        return end if end is not None and end.key in self.all else None

    def other(self, end: QpEnd) -> QpEnd:
        """The other end of its connection."""
        one, other = self.all[end.key].ends
        return other if one is end else one

    def see(self, ports: Ports, verbs: VerbsStore) -> None:
        """Take in what there is now."""
        placed = {
            port.end.addr: _Placed(port._replace(is_up=True), subnet)
            for subnet, those in ports.placed.items()
            for port in those
        }
        if placed != self._by_addr:
            self._by_addr, self._told = placed, {}
            self._by_nic = {(one.port.host, one.port.end.nic): one for one in placed.values()}
            self._by_row = {(one.subnet, one.port.row): one.port for one in placed.values()}
            for memory in (self._ends, self._at, self.all, self.subnets):
                memory.clear()
        hosts = {one.port.host for one in placed.values()}
        for host in self._told.keys() - hosts:
            self._drop(host)
        for host in hosts:
            now = verbs.host(host)
            if now is not self._told.get(host):
                self._drop(host)
                if now is not None:
                    self._told[host] = now
                    self._add(host, now, ports)

    def _drop(self, host: str) -> None:
        self._told.pop(host, None)
        for end in self._ends.pop(host, {}).values():
            self._at.pop(end.place, None)
            self.all.pop(end.key, None)
            self.subnets.pop(end.key, None)

    def _add(self, host: str, told: HostVerbs, ports: Ports) -> None:
        self._ends[host] = {end.name: end for end in self._ends_of(host, told, ports)}
        self._at.update((end.place, end) for end in self._ends[host].values())
        for end in self._ends[host].values():
            other = self._at.get(end.far)
            if other is not None and other.far == end.place:
                first, second = sorted((end, other), key=lambda each: each.place)
                self.all[end.key] = Connection((first, second))
                self.subnets[end.key] = self._by_addr[end.here.end.addr].subnet

    def _ends_of(self, host: str, told: HostVerbs, ports: Ports) -> Iterator[QpEnd]:
        for (_, nic), those in told.qps.items():
            here = self._by_nic.get((host, nic))
            if here is None:
                continue
            for (far, qpn), qp in those.items():
                there = self._far_port(far, here, ports) if qp.actuator == "apm" else None
                if there is not None and there.host != host:
                    yield QpEnd((host, nic, shown_address(far), qpn), qp, here.port, there)

    def _far_port(self, far: bytes, here: _Placed, ports: Ports) -> Port | None:
        """By its GID, or where its host is told no spread for it by its LID."""
        if any(far[:14]):
            there = self._by_addr.get(shown_address(far))
            return None if there is None or there.subnet != here.subnet else there.port
        owner, lid = ports.paths[here.subnet].now.routes.owner, int.from_bytes(far[14:], "big")
        return self._by_row.get((here.subnet, int(owner[lid]))) if 0 < lid < len(owner) else None
