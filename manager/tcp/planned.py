"""TCP connections as the planner's flows, and what it wants of them as agents are told. No I/O.

Only what is large is placed, and what comes back the other way, so that both ends can leave a dead path: thousands of small
connections are spread evenly by their own ports, and cost a comparison each.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.addresses import bytes_address
from cwdp.shared.bus.messages import SteerQp
from cwdp.shared.connections import far_keys
from cwdp.shared.tcp import SteerTcp
from manager.placement.flows import ACTIVE_S, Flows, QpName
from manager.tcp.connections import ConnectionStore, NicName, NicTable
from manager.tcp.names import Connection, connection_of, is_tcp, name_of

LEAST_BYTES_PER_S = 125_000.0
"""Less is no load to be placed."""

LARGE_SHARE = 0.01
"""Of what all connections of a NIC send: a smaller one is none to be placed, so a NIC has a hundred of them at most."""

STAYS_LARGE = 0.5
"""One that was placed remains so down to this part of what makes one large."""

_ACKED = 0
_BITS = 8


class PlannedConnections:
    """Reads connections again and again.

    Args:
        store: what agents tell.
    """

    def __init__(self, store: ConnectionStore) -> None:
        self._store = store
        self._large: dict[NicName, NDArray[np.bytes_]] = {}
        self._local: dict[QpName, str] = {}

    def read(
        self,
        nics: Mapping[str, str],
        steerable: Collection[NicName],
        ports: Mapping[QpName, int],
        now_s: float,
    ) -> Flows:
        """The large connections that send now and whose both ends tell, and the way back of each as a small flow.

        Args:
            nics: the NIC that has each address.
            steerable: NICs whose hosts tell what is steered there; both ends have to be such.
            ports: the source port on the wire of those that are steered; of others no path is known.
            now_s: the manager's clock.
        """
        reading = _Reading(nics, steerable)
        large: dict[NicName, NDArray[np.bytes_]] = {}
        for nic in steerable:
            table = self._store.tables.get(nic)
            chosen = None if table is None else self._chosen(nic, table, now_s)
            if table is None or chosen is None or not len(chosen):
                continue
            large[nic] = table.keys[chosen]
            for i, far in zip(chosen.tolist(), far_keys(table.keys[chosen]), strict=True):
                self._add(nic, table, i, far, reading)
        self._large = large
        rows = [(name, *told, False) for name, told in reading.found.items()]
        rows += [(name, *told, True) for name, told in reading.back.items() if name not in reading.found]
        return Flows(
            names=[name for name, _, _, _ in rows],
            dst=[dst for _, dst, _, _ in rows],
            sport=np.array([ports.get(name, 0) for name, _, _, _ in rows], np.int64),
            rate_bps=np.array([rate for _, _, rate, _ in rows], np.float64),
            small=np.array([small for _, _, _, small in rows], bool),
        )

    def take_up(self, host: str, steered: Iterable[SteerTcp]) -> list[SteerQp]:
        """What a host was told once, or says is steered there, as the planner knows it."""
        taken = []
        for one in steered:
            known = as_planned(host, one)
            self._local[_name(host, known)] = one.local_addr
            taken.append(known)
        return taken

    def wishes(self, host: str, wanted: Iterable[SteerQp]) -> list[SteerTcp]:
        """What a host is to be told of those of all that is wanted of it that are connections."""
        wishes = []
        for one in wanted:
            name = _name(host, one)
            connection, local = connection_of(name), self._local.get(name)
            if connection is None or local is None:
                continue
            wishes.append(
                SteerTcp(
                    nic=one.nic,
                    local_addr=local,
                    remote_addr=connection.remote_addr,
                    local_port=connection.local_port,
                    remote_port=connection.remote_port,
                    sport=one.sport,
                    backup_sport=one.backup_sport,
                    flow_label=":" in connection.remote_addr,
                )
            )
        return wishes

    def keep_only(self, names: Collection[QpName]) -> None:
        """Let go of what else was known."""
        self._local = {name: local for name, local in self._local.items() if name in names}

    def _chosen(self, nic: NicName, table: NicTable, now_s: float) -> NDArray[np.intp]:
        """The rows of those that are large."""
        rates = np.where(now_s - table.heard_s < ACTIVE_S, np.nan_to_num(table.rates[:, _ACKED]), 0.0)
        least = max(LEAST_BYTES_PER_S, LARGE_SHARE * float(rates.sum()))
        chosen = np.flatnonzero(rates >= STAYS_LARGE * least)
        if not len(chosen):
            return chosen
        was_large = np.isin(table.keys[chosen], self._large.get(nic, table.keys[:0]))
        return chosen[was_large | (rates[chosen] >= least)]

    def _add(
        self,
        nic: NicName,
        table: NicTable,
        i: int,
        far_key: np.bytes_,
        reading: "_Reading",
    ) -> None:
        """Add one and its way back, if its other end tells of it too."""
        row = table.rows[i]
        local, remote = (str(bytes_address(row[f"{end}_addr"].tobytes())) for end in ("local", "remote"))
        there = reading.nics.get(remote, "")
        far_nic = _nic_name(there)
        far = self._store.tables.get(far_nic)
        if far is None or far_nic not in reading.steerable or far_nic == nic:
            return
        (place,), (is_told,) = far.find(np.array([far_key]))
        if not is_told:
            return
        here, ports = "/".join(nic), (int(row["local_port"]), int(row["remote_port"]))
        name = Connection(*nic, ports[0], remote, ports[1]).name
        name_back = Connection(*far_nic, ports[1], local, ports[0]).name
        self._local[name], self._local[name_back] = local, remote
        reading.found[name] = there, _BITS * float(table.rates[i, _ACKED])
        reading.back[name_back] = here, _BITS * float(far.rates[place, _ACKED])


@dataclass(frozen=True)
class _Reading:
    """What is read: of each connection, and of each way back, the NIC at the far end and the rate in bit/s."""

    nics: Mapping[str, str]
    steerable: Collection[NicName]
    found: dict[QpName, tuple[str, float]] = field(default_factory=dict)
    back: dict[QpName, tuple[str, float]] = field(default_factory=dict)


def as_planned(host: str, one: SteerTcp) -> SteerQp:
    """What a host is to do with a connection, as the planner names it."""
    name = name_of(host, one)
    return SteerQp(
        nic=one.nic,
        dst_addr=name.dst_addr,
        qpn=name.qpn,
        sport=one.sport,
        backup_sport=one.backup_sport,
        flow_label=one.flow_label,
        override=one.override,
    )


def by_name(
    queue_pairs: Mapping[str, list[SteerQp]], connections: Mapping[str, list[SteerTcp]]
) -> dict[str, list[SteerQp]]:
    """What operators want of queue pairs and of connections, by host, as the planner names both."""
    return {
        host: [
            *queue_pairs.get(host, []),
            *(as_planned(host, one) for one in connections.get(host, [])),
        ]
        for host in queue_pairs.keys() | connections.keys()
    }


def _name(host: str, one: SteerQp) -> QpName:
    return QpName(host, one.nic, one.dst_addr, one.qpn)


def _nic_name(nic: str) -> NicName:
    host, _, ifname = nic.rpartition("/")
    return host, ifname


def of_queue_pairs(wanted: Iterable[SteerQp]) -> list[SteerQp]:
    """Those of all that is wanted that are of queue pairs."""
    return [one for one in wanted if not is_tcp(one.dst_addr)]
