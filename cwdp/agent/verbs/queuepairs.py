"""The queue pairs that programs have told of, as they are now. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address
from itertools import islice

from cwdp.agent.verbs.clients import Client
from cwdp.agent.verbs.orders import VerbsQp, VerbsSource
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.ib.lid import lid_gid
from cwdp.rdma.shimwire import ACTUATORS, GONE, RTS, UNCOUNTED, QpPath, QpState, Sent
from cwdp.shared.bus.messages import Spread

MOST, MOST_OF_A_CLIENT = 65_536, 16_384
MOST_GONE = 4 * MOST
"""Of whom the agent has not been told; from then on it is told anew of all that there are."""

BY_LID = -1
"""In place of a GID's index: of ports of InfiniBand."""

COUNTERS = ("queue_pairs", "queue_pairs_refused", "queue_pairs_elsewhere")

Name = tuple[str, int]
"""Of a queue pair among those of a program: device and QPN."""

Pair = tuple[str, str]
"""A NIC of this host and an address."""


class Qp:
    """One queue pair.

    Attributes:
        number: names it among all that there have been.
        nic, dst_addr, sport: where it goes; see `VerbsQp`.
        by_lid: whether its port is InfiniBand's.
        actuator: what can move it while it sends, as the shim says.
        order: the number of the order that it has not answered; 0 for none.
        ordered_sport, ordered_ns: what that said, and when; what it said last, where it was answered.
        rests_until_ns: when it may be ordered again, after one that came to nothing.
        refused: the errno of that.
        count_place: names its count among those of its program.
        alternate: the DLID that it has loaded by order; 0 for none.
    """

    __slots__ = (
        "actuator", "alternate", "by_lid", "by_table", "client", "count_place", "dest_qpn", "dst", "dst_addr", "gid_index", "is_told", "name", "nic",
        "number", "order", "ordered_ns", "ordered_sport", "port", "refused", "rests_until_ns", "sport", "state",
    )  # fmt: skip

    def __init__(self, number: int, client: Client, name: Name) -> None:
        self.number, self.client, self.name = number, client, name
        self.state = self.port = self.gid_index = self.dest_qpn = 0
        self.nic = self.dst_addr = ""
        self.dst = b""
        self.sport: int | None = None
        self.by_table, self.by_lid, self.actuator = False, False, ACTUATORS[0]
        self.order = self.ordered_sport = self.ordered_ns = self.rests_until_ns = self.refused = 0
        self.is_told = False
        self.count_place = UNCOUNTED
        self.alternate = 0

    @property
    def pair(self) -> Pair:
        """The NIC and the address that it is between."""
        return self.nic, self.dst_addr

    @property
    def has_path(self) -> bool:
        """Whether it was connected from a NIC of ours."""
        return bool(self.nic)

    @property
    def sends(self) -> bool:
        """Whether it can be moved as far as its state goes."""
        return self.state == RTS and bool(self.nic)

    def as_told(self) -> VerbsQp:
        """For the agent."""
        return VerbsQp(
            self.number, self.client.pid, *self.name, self.state, self.nic, self.dst_addr, self.dest_qpn,
            self.sport, self.by_table, self.actuator, self.refused, self.client.hello.job, alternate=self.alternate,
        )  # fmt: skip


class QueuePairs:
    """All of them, within bounds.

    Args:
        counters: of COUNTERS.
    """

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._by_client: dict[Client, dict[Name, Qp]] = {}
        self._counted: dict[Client, dict[int, Qp]] = {}
        self._sent: dict[int, int] = {}
        self._by_pair: defaultdict[Pair, dict[int, Qp]] = defaultdict(dict)
        self._nics: dict[tuple[str, int, int], str] = {}
        self._ports: dict[int, str] = {}
        self._numbers = self._count = 0
        self._changed: dict[int, Qp] = {}
        self._gone: list[int] = []
        self._is_anew = True

    def __iter__(self) -> Iterator[Qp]:
        """Those with a path from a NIC of ours."""
        for those in list(self._by_pair.values()):
            yield from list(those.values())

    def between(self, pair: Pair) -> list[Qp]:
        """Those from a NIC to an address."""
        return list(self._by_pair[pair].values()) if pair in self._by_pair else []

    def pairs(self) -> list[Pair]:
        """The NICs and addresses that there are any between."""
        return list(self._by_pair)

    def know(self, sources: Iterable[VerbsSource], spreads: Iterable[Spread] = ()) -> None:
        """These GIDs and LIDs are our NICs', and these are the LIDs of far ports."""
        nics = {
            (source.device, source.port, BY_LID if source.lid else source.gid_index): source.nic
            for source in sources
        }
        ports = {
            one.lids.lid + number: one.dst_addr
            for one in spreads
            if one.lids is not None
            for number in range(1 << one.lids.lmc)
        }
        if (nics, ports) == (self._nics, self._ports):
            return
        self._nics, self._ports = nics, ports
        for those in self._by_client.values():
            for qp in those.values():
                if qp.dst:
                    self._place(qp)

    def of(self, client: Client, name: Name) -> Qp | None:
        """The queue pair that a program means."""
        return self._by_client.get(client, {}).get(name)

    def hear_path(self, client: Client, told: QpPath) -> Qp | None:
        """A queue pair has a path; None where there are too many."""
        qp = self._taken(client, (told.device, told.qpn))
        if qp is None:
            return None
        qp.state, qp.port, qp.gid_index, qp.dest_qpn = told.state, told.port, told.gid_index, told.dest_qpn
        qp.dst, qp.sport, qp.by_lid = told.dst, told.path, bool(told.lid)
        qp.by_table, qp.actuator, qp.alternate = bool(told.by_table), ACTUATORS[told.actuator], 0
        self._count_by(qp, told.count_place)
        self._place(qp)
        return qp

    def hear_state(self, client: Client, told: QpState) -> Qp | None:
        """A queue pair is in another state, or gone; None where nothing is kept of it."""
        name = told.device, told.qpn
        if told.state == GONE:
            qp = self._by_client.get(client, {}).pop(name, None)
            if qp is not None:
                self._remove(qp)
            return qp
        qp = self.of(client, name)
        if qp is not None and qp.state != told.state:
            qp.state = told.state
            self.change(qp)
        return qp

    def hear_sent(self, client: Client, told: Sent) -> None:
        """Queue pairs were given more to send; counts of others are none."""
        counted = self._counted.get(client, {})
        for place, octets in told.counts:
            qp = counted.get(place)
            if qp is not None and qp.has_path:
                self._sent[qp.number] = octets

    def end(self, client: Client) -> None:
        """A program is gone, and with it its queue pairs."""
        for qp in self._by_client.pop(client, {}).values():
            self._remove(qp)
        self._counted.pop(client, None)

    def change(self, qp: Qp) -> None:
        """There is something to tell of it."""
        if qp.has_path or qp.is_told:
            self._changed[qp.number] = qp

    def take_changes(self, most: int) -> tuple[bool, list[VerbsQp], list[int]]:
        """What there is to tell, some of it.

        Returns:
            Whether all that was told before is to be forgotten, those that have changed, and the numbers of those that are
            gone.
        """
        if len(self._gone) > MOST_GONE:
            self._gone.clear()
            self._is_anew, self._changed = True, {qp.number: qp for qp in self}
        is_anew, self._is_anew = self._is_anew, False
        taken = [self._changed.pop(number) for number in list(islice(self._changed, most))]
        for qp in taken:
            qp.is_told = True
        gone, self._gone = self._gone[:most], self._gone[most:]
        return is_anew, [qp.as_told() for qp in taken], gone

    def take_sent(self, most: int) -> dict[int, int]:
        """Bytes that queue pairs have been given to send, by their numbers, some of those whose have grown."""
        return {number: self._sent.pop(number) for number in list(islice(self._sent, most))}

    def has_changes(self) -> bool:
        """Whether there are any to take."""
        return bool(self._changed or self._gone)

    def _taken(self, client: Client, name: Name) -> Qp | None:
        mine = self._by_client.setdefault(client, {})
        qp = mine.get(name)
        if qp is None:
            if self._count >= MOST or len(mine) >= MOST_OF_A_CLIENT:
                self._counters["queue_pairs_refused"] += 1
                return None
            self._numbers += 1
            qp = mine[name] = Qp(self._numbers, client, name)
            self._count += 1
            self._counters["queue_pairs"] = self._count
        return qp

    def _count_by(self, qp: Qp, place: int) -> None:
        counted = self._counted.setdefault(qp.client, {})
        if counted.get(qp.count_place) is qp:
            del counted[qp.count_place]
        qp.count_place = place
        if place != UNCOUNTED:
            counted[place] = qp

    def _place(self, qp: Qp) -> None:
        """Find its NIC by its device and GID, which the program cannot choose otherwise than its device has them."""
        index = BY_LID if qp.by_lid else qp.gid_index
        nic, dst_addr = self._nics.get((qp.name[0], qp.port, index), ""), self._far_end(qp)
        if (nic, dst_addr) != qp.pair:
            self._unplace(qp)
            qp.nic, qp.dst_addr = nic, dst_addr
            if nic:
                self._by_pair[qp.pair][qp.number] = qp
            else:
                self._counters["queue_pairs_elsewhere"] += 1
        self.change(qp)

    def _far_end(self, qp: Qp) -> str:
        """Over InfiniBand the port of the LID that it sends to, or that LID where no spread has named it."""
        if not qp.by_lid or qp.sport is None:
            return gid_address(qp.dst)
        return self._ports.get(qp.sport) or gid_address(lid_gid(qp.sport))

    def _unplace(self, qp: Qp) -> None:
        if qp.has_path:
            those = self._by_pair[qp.pair]
            those.pop(qp.number, None)
            if not those:
                del self._by_pair[qp.pair]

    def _remove(self, qp: Qp) -> None:
        self._unplace(qp)
        self._count_by(qp, UNCOUNTED)
        self._sent.pop(qp.number, None)
        self._changed.pop(qp.number, None)
        if qp.is_told:
            self._gone.append(qp.number)
        self._count -= 1
        self._counters["queue_pairs"] = self._count


def gid_address(gid: bytes) -> str:
    """The address that a GID of RoCE v2 stands for, as people write it."""
    address = IPv6Address(gid)
    return str(address.ipv4_mapped or address)


def address_gid(address: str) -> bytes:
    """The GID of RoCE v2 that stands for an address.

    Raises:
        ValueError: it is none.
    """
    return gid_bytes(address if ":" in address else f"::ffff:{address}")
