"""The queue pairs and TCP connections that send now, as the planner needs them.

Switches hash TCP unlike UDP, so a port that leads a queue pair over one spine may lead a connection over another. Paths of
connections are therefore of other destinations: an address behind `tcp:`. A connection's number is its two ports.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import EGRESS, QP_ROW, shown_address
from manager.queue_pairs.counters import RATE_HOLDS_S, NicTable
from manager.tcp.connections import ConnectionStore
from manager.tcp.connections import NicTable as TcpTable

ACTIVE_S = 1.5
ACKNOWLEDGEMENT_BYTES = 128
"""Packets that are smaller in the mean answer others' requests, or are messages too small to fill a link."""

TCP = "tcp:"
LEAST_BYTES_PER_S = 1_000.0
"""Less is no load to be placed: the other direction of a TCP transfer has nothing but acknowledgements."""

_BYTES_RATE = 1
"""Which of a table's rates is of bytes."""

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


class Connection(NamedTuple):
    """A connection by the NIC that sends; the local address is one of that NIC's."""

    host: str
    nic: str
    local_port: int
    remote_addr: str
    remote_port: int

    @property
    def name(self) -> QpName:
        """As the planner knows it."""
        return QpName(
            self.host, self.nic, tcp_address(self.remote_addr), self.local_port << 16 | self.remote_port
        )


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

    @property
    def ends(self) -> Ends:
        """The NICs at both ends."""
        return self.known_ends or Ends.of([name.src for name in self.names], self.dst)


@dataclass
class _Named:
    """Those of a table's rows that are sent, in their order: of all keys that the table had."""

    keys: NDArray[np.bytes_]
    names: list[QpName]
    dst: list[str]


class FlowReader:
    """Reads tables again and again; what tells queue pairs apart it makes anew only where a table has others."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], _Named] = {}
        self._nics: Mapping[str, str] = {}

    def read(
        self, tables: Mapping[tuple[str, str], NicTable], nics: Mapping[str, str], now_s: float
    ) -> Flows:
        """Those that an agent reported of within `ACTIVE_S` of its last report, however long ago that was.

        Args:
            tables: of each NIC.
            nics: the NIC that has each address; another mapping where it changes.
            now_s: the manager's clock.
        """
        tables = {nic: table for nic, table in tables.items() if len(table.rows)}
        if not tables:
            return Flows([], [], np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))
        named = self._name(tables, nics)
        rows, columns = _sent(list(tables.values()), now_s)
        silent_s, rate_bps, source = columns
        active = (silent_s < ACTIVE_S) & (rows["sport"] > 0)
        rows = rows[active]
        dst = list(compress(chain.from_iterable(each.dst for each in named), active))
        return Flows(
            names=list(compress(chain.from_iterable(each.names for each in named), active)),
            dst=dst,
            sport=rows["sport"].astype(np.int64),
            rate_bps=rate_bps[active],
            small=rows["bytes"] / np.maximum(rows["packets"], 1) < ACKNOWLEDGEMENT_BYTES,
            known_ends=_ends([nic_id(*nic) for nic in tables], source[active].astype(np.intp), dst),
        )

    def _name(self, tables: Mapping[tuple[str, str], NicTable], nics: Mapping[str, str]) -> list[_Named]:
        if nics is not self._nics:
            self._nics = nics
            for named in self._named.values():
                named.dst = [nics.get(name.dst_addr, name.dst_addr) for name in named.names]
        shown: dict[bytes, str] = {}
        kept: dict[tuple[str, str], _Named] = {}
        for nic, table in tables.items():
            named_before = self._named.get(nic)
            if named_before is None or named_before.keys is not table.keys:
                named_before = _name(nic, table, nics, shown)
            kept[nic] = named_before
        self._named = kept
        return list(kept.values())


def sending(tables: Mapping[tuple[str, str], NicTable], nics: Mapping[str, str], now_s: float) -> Flows:
    """What a `FlowReader` reads, once."""
    return FlowReader().read(tables, nics, now_s)


def _name(nic: tuple[str, str], table: NicTable, nics: Mapping[str, str], shown: dict[bytes, str]) -> _Named:
    """Name a table's rows; `shown` holds addresses as people write them, and is added to."""
    rows = table.rows[table.rows["direction"] == EGRESS]
    names = []
    for addr, qpn in zip(rows["addr"], rows["qpn"].tolist(), strict=True):
        packed = addr.tobytes()
        address = shown.get(packed) or shown.setdefault(packed, shown_address(packed))
        names.append(QpName(*nic, address, qpn))
    return _Named(table.keys, names, [nics.get(name.dst_addr, name.dst_addr) for name in names])


def _sent(tables: Sequence[NicTable], now_s: float) -> tuple[NDArray[np.void], NDArray[np.float64]]:
    """The rows of all tables that are sent, and of each: its silence in s, rate in bit/s, table; shapes (n,), (3, n)."""
    counts = [len(table.rows) for table in tables]
    told = [(table.latest_s, table.holds_s, i) for i, table in enumerate(tables)]
    latest_s, holds_s, source = np.repeat(np.array(told).T, counts, axis=1)
    rows = np.concatenate([table.rows.view(np.uint8) for table in tables]).view(QP_ROW)
    heard_s = np.concatenate([table.heard_s for table in tables])
    rates = np.concatenate([table.rates for table in tables])[:, _BYTES_RATE]
    sends = (heard_s > latest_s - holds_s) & (now_s - heard_s < RATE_HOLDS_S)
    columns = np.stack([latest_s - heard_s, np.where(sends, rates * 8, np.nan), source])
    sent = rows["direction"] == EGRESS
    return rows[sent], columns[:, sent]


def _ends(src: list[str], source: Indices, dst: list[str]) -> Ends:
    """The ends of flows, of which `source` tells the place of their NIC in `src`."""
    numbers = {nic: i for i, nic in enumerate(src)}
    for nic in dict.fromkeys(dst):
        numbers.setdefault(nic, len(numbers))
    there = np.fromiter(map(numbers.__getitem__, dst), np.intp, len(dst))
    return Ends(list(numbers), np.stack([source, there]))


def tcp_address(address: str) -> str:
    """What stands for an address in the names of TCP paths."""
    return TCP + address


def connection_of(name: QpName) -> Connection | None:
    """The connection that a name of the planner's is of; None for a queue pair's."""
    if not name.dst_addr.startswith(TCP):
        return None
    address = name.dst_addr.removeprefix(TCP)
    return Connection(name.host, name.nic, name.qpn >> 16, address, name.qpn & 0xFFFF)


def sending_connections(
    store: ConnectionStore, nics: Mapping[str, str], ports: Mapping[QpName, int], now_s: float
) -> Flows:
    """The connections that send now and whose both ends are told: others are left alone.

    Args:
        store: what agents tell.
        nics: the NIC that has each address.
        ports: the source port on the wire of those that are steered, as their hosts tell; of others no path is known.
        now_s: the manager's clock.
    """
    found = [one for nic, table in store.tables.items() for one in _sending(store, nic, table, now_s)]
    names = [connection.name for connection, _ in found]
    return Flows(
        names=names,
        dst=[nics.get(one.remote_addr, one.remote_addr) for one, _ in found],
        sport=np.array([ports.get(name, 0) for name in names], np.int64),
        rate_bps=np.array([8 * rate for _, rate in found]),
        small=np.zeros(len(found), bool),
    )


def together(one: Flows, other: Flows) -> Flows:
    """Both, the first one's first; the NICs at their ends are numbered anew."""
    return Flows(
        names=one.names + other.names,
        dst=one.dst + other.dst,
        sport=np.concatenate([one.sport, other.sport]),
        rate_bps=np.concatenate([one.rate_bps, other.rate_bps]),
        small=np.concatenate([one.small, other.small]),
    )


def _sending(
    store: ConnectionStore, nic: tuple[str, str], table: TcpTable, now_s: float
) -> Iterator[tuple[Connection, float]]:
    """Those of one NIC, and what each sends in bytes a second."""
    rates = table.rates[:, 0]
    chosen = store.both_ends(table) & (rates >= LEAST_BYTES_PER_S) & (now_s - table.heard_s < ACTIVE_S)
    for i in np.flatnonzero(chosen).tolist():
        row = table.rows[i]
        ports = int(row["local_port"]), int(row["remote_port"])
        yield (
            Connection(*nic, ports[0], shown_address(row["remote_addr"].tobytes()), ports[1]),
            float(rates[i]),
        )
