"""A fleet over InfiniBand for tests: the manager's state, agents that do as documents say, programs that connect, links that fill."""

from collections import Counter
from random import Random

import msgspec
import numpy as np
from fakes import hello

from cwdp.agent.verbs.orders import VerbsOrder, VerbsSource
from cwdp.agent.verbs.routes import table
from cwdp.rdma.ib.lid import lid_gid, point
from cwdp.shared.addresses import IbPort, PortLids
from cwdp.shared.bus.messages import ACTUATORS, Desired, Hello, NicQueuePairs, QpReport, Spread
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import EGRESS, QP_ROW, VERBS_ROW, packed_address
from cwdp.shared.ib.counters import NAMES, WORD_BYTES, Growth
from cwdp.shared.ib.reports import IbGrowth, pack_growth, subnet_pieces
from cwdp.shared.ib.subnet import Subnet
from cwdp.shared.verbs import NicVerbs, VerbsReport
from manager.clock.timeline import Identity
from manager.config import PlannerSettings, ProbeSettings
from manager.ib.ways import ways
from manager.state import FleetState
from tests.unit.manager.ib.ib_worlds import LANE_BPS, LANES, clos
from tools.shim.client import lids_of

NIC = "mlx5_0"
LINK_BPS = LANES * LANE_BPS


class Fleet:
    """Hosts h0, h1 and so on below leaves of four.

    Attributes:
        documents: the latest of each host.
        loads_bps: what leaves by each port of the subnet, shape (ports,).
        qps: of each host: far address, far QPN, own QPN.
    """

    def __init__(
        self, subnet: Subnet | None = None, without: tuple[str, ...] = (), enabled: bool = True
    ) -> None:
        self.subnet = clos() if subnet is None else subnet
        self.now_s = 1_000.0
        self.without = set(without)
        self.number = 0
        self.documents: dict[str, Desired] = {}
        self.qps: dict[str, list[tuple[str, int, int]]] = {}
        self._qpns = Counter[str]()
        self.state = self._new_state(enabled)
        self.read(self.subnet)

    @staticmethod
    def _new_state(enabled: bool) -> FleetState:
        return FleetState(
            Identity(timeline="t", starts=1),
            ProbeSettings(),
            continued=False,
            planner=PlannerSettings(enabled=enabled),
        )

    def read(self, subnet: Subnet) -> None:
        """A reader tells of this subnet from now on."""
        self.subnet, self.number = subnet, self.number + 1
        self.loads_bps = np.zeros(len(subnet.ports))
        self.row = {
            name.split()[0]: int(np.flatnonzero(subnet.ports["node"] == node)[0])
            for node, name in enumerate(subnet.names)
            if name.startswith("h")
        }
        self._qpns.update(
            {host: Random(host).randrange(1 << 20) for host in self.row if host not in self._qpns}
        )
        for piece in subnet_pieces("h0", self.number, subnet):
            self.state.subnets.hear_subnet(piece, self.now_s)

    def lids(self, host: str) -> PortLids:
        row = self.subnet.ports[self.row[host]]
        return PortLids(int(row["lid"]), int(row["lmc"]))

    def addr(self, host: str) -> str:
        return self.subnet.gid(self.row[host])

    def hello(self, host: str) -> Hello:
        ports = [] if host in self.without else [IbPort(NIC, self.addr(host), self.lids(host))]
        version = self.documents[host].version if host in self.documents else 0
        said = hello(host, nics=0, desired_version=version)
        return msgspec.structs.replace(said, ib_ports=ports)

    def run(self, seconds: float, silent: tuple[str, ...] = (), step_s: float = 1.0) -> set[str]:
        """Let time pass; the hosts that were told something."""
        told: set[str] = set()
        for _ in range(round(seconds / step_s)):
            self.now_s += step_s
            for host in self.row.keys() - set(silent):
                self.state.hear_hello(self.hello(host), self.now_s)
            self.state.subnets.hear_growth(self._growth(), self.now_s)
            self.state.expire(self.now_s)
            if self.state._edges is None:
                self.take(self.state.schedule([], np.zeros((0, 2), np.int64)))
            changed = self.state.plan(self.now_s)
            self.take(changed)
            told |= {document.host for document in changed}
        return told

    def take(self, documents: list[Desired]) -> None:
        self.documents |= {document.host: document for document in documents}

    def spread(self, src: str, dst: str) -> Spread | None:
        found = [one for one in self.documents[src].spreads if one.dst_addr == self.addr(dst)]
        return found[0] if found else None

    def drawn(self, src: str, dst: str, at: int) -> int:
        """The path that a program of a host takes by its agent's table; 0, the program's own, where that has none."""
        source = VerbsSource(NIC, "mlx5_0", 1, 0, self.addr(src), self.lids(src).lid, self.lids(src).lmc)
        made = table(VerbsOrder(sources=[source], spreads=self.documents[src].spreads), {}, 1)
        route = lids_of(made).get((lid_gid(self.lids(src).lid), lid_gid(self.lids(dst).lid)))
        if route is None:
            return 0
        _, dlids, parts = route
        up_to = np.cumsum(parts) * 2**32
        return dlids[min(int(np.searchsorted(up_to, at)), len(dlids) - 1)] - self.lids(dst).lid

    def connect(self, src: str, dst: str, bps: float = 0.0) -> int:
        """A program at each end connects to the other, and sends both ways; the path that both take."""
        self._qpns.update((src, dst))
        ends = [(self.lids(host).lid, self._qpns[host]) for host in (src, dst)]
        at = point(*ends)
        (number,) = {self.drawn(src, dst, at), self.drawn(dst, src, at)}
        for one, other in ((src, dst), (dst, src)):
            way = ways(self.state.subnets.now[0].routes, self.row[one], self.row[other])[number]
            assert way.leaves is not None
            self.loads_bps[list(way.leaves)] += bps
            self.qps.setdefault(one, []).append((self.addr(other), self._qpns[other], self._qpns[one]))
        for host in (src, dst):
            self.tell_queue_pairs(host)
        return number

    def tell_queue_pairs(self, host: str) -> None:
        rows = np.zeros(len(self.qps[host]), VERBS_ROW)
        for row, (addr, qpn, lqpn) in zip(rows, self.qps[host], strict=True):
            row["addr"], row["qpn"], row["lqpn"] = np.frombuffer(packed_address(addr), np.uint8), qpn, lqpn
        rows["actuator"] = ACTUATORS.index("create_only")
        told = VerbsReport(host=host, nics=[NicVerbs(nic=NIC, rows=row_bytes(rows))])
        self.state.traffic.hear_verbs(told, self.now_s)

    def tell_rates(self, host: str, dlid: int, octets: int) -> None:
        """An agent says that all queue pairs of a host have sent so much, by a path to this LID."""
        rows = np.zeros(len(self.qps[host]), QP_ROW)
        rows["direction"], rows["sport"], rows["bytes"], rows["packets"] = (
            EGRESS,
            dlid,
            octets,
            octets // 4_000,
        )
        for row, (addr, qpn, _) in zip(rows, self.qps[host], strict=True):
            row["addr"], row["qpn"] = np.frombuffer(packed_address(addr), np.uint8), qpn
        part = NicQueuePairs(nic=NIC, rows=row_bytes(rows))
        told = QpReport(host=host, local_ns=int(self.now_s * 1e9), nics=[part])
        self.state.traffic.hear_queue_pairs(told, self.now_s)

    def _growth(self) -> IbGrowth:
        per_s = np.zeros((len(self.subnet.ports), len(NAMES)))
        per_s[:, NAMES.index("sent_words")] = self.loads_bps / 8 / WORD_BYTES
        data = pack_growth(Growth(per_s, np.zeros(per_s.shape, bool)))
        return IbGrowth(host="h0", number=self.number, ports=len(per_s), data=data)

    def between_switches(self) -> np.ndarray:
        """What leaves by each port that leads from a switch to another."""
        ports, kinds = self.subnet.ports, self.subnet.kinds
        linked = np.flatnonzero(ports["peer"] >= 0)
        inner = [
            row
            for row in linked
            if kinds[ports["node"][row]] == kinds[ports["node"][ports["peer"][row]]] == 2
        ]
        return self.loads_bps[inner]
