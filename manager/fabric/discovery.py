"""Path discovery, held together: whose paths are to be traced, what is known of them, which ports the probes use.

No I/O; times are seconds of the manager's monotonic clock.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from cwdp.shared.bus.messages import Desired, ProbeEdge, TraceOrder, TraceReport, host_of, nic_id
from cwdp.shared.bus.records import EGRESS, shown_address
from manager.fabric.choice import covering_ports
from manager.fabric.fabric import Fabric, TrustChange
from manager.fabric.model import KnownLinks, Model
from manager.fabric.orders import Orders, candidates
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import DirectedLink, Pair, PathName
from manager.fabric.used_ports import HostUse, Ports, UsedPorts
from manager.fabric.wiring import Miswired, address_of_each, miswired
from manager.fabric.wiring_watch import WiringChange, WiringWatch
from manager.hosts.members import Members
from manager.overrides.steering import SteerOverride, SteerTable
from manager.queue_pairs.counters import NicTable
from manager.queue_pairs.traffic import Traffic
from manager.tcp.traces import Divided, TcpUses, told_before, with_tcp

MOST_PENDING = 4_096
IN_USE_S = 60.0
ORDER_INTERVAL_S = 0.25
CALM_ORDER_S = 1.0
CALM_S = 2.0
MOST_UNREST_S = 10.0
WIRING_S = 1.0

_NOT_CHOSEN: tuple[list[int], list[int]] = [], []

Edges = Mapping[str, Sequence[ProbeEdge]]

_Wiring = tuple[Sequence[DirectedLink], frozenset[str], Mapping[str, str], set[str]]
"""What suspicions rest on: links, NICs, an address of each, leaves all of whose links are known."""


class Discovery:
    """What the manager does to know the fabric.

    Attributes:
        fabric: what is known.
        path_counts: how much of it is known, as of its latest routes.
        in_use: source ports that packets of each pair have, of probes or of queue pairs.
        tcp_uses: the paths that TCP connections take, which are to be traced too.
        order_interval_s: from one look at what is to be traced to the next.
        known: links that need no discovery.
        dropped: reports that came faster than they could be taken in.
    """

    def __init__(self, members: Members, traffic: Traffic, steering: SteerTable) -> None:
        self.fabric, self.known = Fabric(), KnownLinks()
        self.path_counts = PathCounts(self.fabric.routes)
        self.in_use: Mapping[Pair, Ports] = {}
        self.dropped = 0
        self.order_interval_s = ORDER_INTERVAL_S
        self._members, self._traffic, self._steering = members, traffic, steering
        self._members_version = -1
        self._pending: deque[TraceReport] = deque()
        self._orders, self._divided = Orders(), Divided({})
        self._ordered_s = float("-inf")
        self._ordered: OrderInputs | None = None
        self._flows: dict[tuple[str, str], _Flows] = {}
        self._flow_changes = 0
        self.tcp_uses = TcpUses()
        self._mesh: dict[Pair, list[int]] = {}
        self._usual: dict[Pair, list[int]] = {}
        self._chosen: dict[Pair, tuple[list[int], list[int]]] = {}
        self._rerouted: list[Collection[Pair]] = []
        self._recounted: set[Pair] = set()
        self._used = UsedPorts()
        self._usual_anew: set[str] = set()
        self._mesh_version = 0
        self._counted_version = 0
        self._unrest_s: float | None = None
        self._model: Model | None = None
        self._changed_s = 0.0
        self._wiring = WiringWatch()
        self._suspects: list[Miswired] = []
        self._suspects_of: tuple[int, int, KnownLinks] | None = None
        self._suspects_on: _Wiring | None = None
        self._wiring_s = float("-inf")

    @property
    def orders(self) -> Mapping[str, list[TraceOrder]]:
        """What each host is to trace of the paths of RoCEv2."""
        return self._as_told().roce

    @property
    def tcp_orders(self) -> Mapping[str, list[TraceOrder]]:
        """What each host is to trace of the paths of TCP."""
        return self._as_told().tcp

    @property
    def goes_on(self) -> bool:
        """Whether hosts still trace what an earlier manager ordered."""
        return self._orders.are_taken_up

    def _as_told(self) -> Divided:
        if self._divided.of is not self._orders.by_host:
            self._divided = Divided(self._orders.by_host)
        return self._divided

    def hear(self, report: TraceReport) -> None:
        """A host traced paths; taken in with the next step."""
        if len(self._pending) < MOST_PENDING:
            self._pending.append(report)
        else:
            self.dropped += 1

    def take_up(self, told: Desired) -> None:
        """Go on from what an earlier manager had a host trace, and over which ports it had it probe."""
        self._orders.take_up(told.host, told_before(told))
        self._divided = Divided({})
        for edge in told.probes:
            self._mesh.setdefault((edge.src, edge.dst_addr), edge.sports)
            self._chosen.pop((edge.src, edge.dst_addr), None)

    @property
    def pending(self) -> int:
        """How many reports were heard and are not taken in yet."""
        return len(self._pending)

    def take_in(self, now_s: float, most: int) -> None:
        """Take in so many of the reports that were heard, the earliest; touches nothing but the fabric, so a thread may run it."""
        if self._members.version != self._members_version:
            self._members_version = self._members.version
            self.fabric.know(with_tcp(self._members.nics_by_address))
        for _ in range(min(most, len(self._pending))):
            report = self._pending.popleft()
            ifnames = self._members.ifnames(report.host)
            if ifnames is not None:
                self.fabric.hear(report, ifnames, now_s)

    def learn(self, now_s: float) -> list[TrustChange | WiringChange]:
        """Take in what was heard and work out what follows, in a thread if that takes long. What people should know of it."""
        self.take_in(now_s, len(self._pending))
        changes = self.fabric.step(now_s, self._is_followed)
        if self.fabric.routes.version != self._counted_version:
            self._counted_version, self._changed_s = self.fabric.routes.version, now_s
            self.path_counts = PathCounts(self.fabric.routes, self.path_counts)
            self._rerouted.append(self.path_counts.rerouted)
            self._recounted.update(self.path_counts.recounted)
        return [*changes, *self._watch_wiring(now_s)]

    def _is_followed(self, path: PathName) -> bool:
        """Whether a path is to be traced, or replies to probes take it, which another pod's host traces."""
        pair = path.src, path.dst_addr
        return (
            self._orders.is_ordered(path)
            or path.sport in self._mesh.get(pair, ())
            or path.sport in self._usual.get(pair, ())
        )

    def model(self) -> Model:
        """The fabric as people know it."""
        routes, known = self.fabric.routes, self.known
        if self._model is None or self._model.routes is not routes or self._model.known is not known.links:
            nics = known.nics.union(self._members.nics_by_address.values())
            self._model = Model(routes, nics, known.links)
        return self._model

    def miswired(self) -> list[Miswired]:
        """Links that are not where the others' pattern puts them."""
        owners = self._members.nics_by_address.items()
        ours = self._members.ours
        addresses = address_of_each({address: nic for address, nic in owners if host_of(nic) in ours})
        covered = self.path_counts.covered_leaves(self._members.ours_of_several) | self.known.leaves
        model = self.model()
        rests_on = (*model.known, *model.crossed), model.nics, addresses, covered
        if rests_on != self._suspects_on:
            self._suspects, self._suspects_on = miswired(model, addresses, covered.__contains__), rests_on
        return self._suspects

    def _watch_wiring(self, now_s: float) -> list[WiringChange]:
        if now_s - self._wiring_s < WIRING_S:
            return []
        self._wiring_s = now_s
        known = self.fabric.routes.version, self._members.version, self.known
        if known != self._suspects_of:
            self._suspects_of = known
            self.miswired()
        return self._wiring.step(self._suspects, now_s)

    def orders_due(self, edges: Edges, now_s: float) -> "OrderInputs | None":
        """What orders rest on now; None where those that there are hold."""
        if now_s - self._ordered_s < self.order_interval_s:
            return None
        self._ordered_s = now_s
        flows = self._follow_flows()
        is_calm = now_s - self._changed_s >= CALM_ORDER_S
        overrides = tuple(self._steering.all())
        rests_on = OrderInputs(
            edges,
            overrides,
            flows,
            self._uses(edges, overrides),
            tuple(self._mesh.keys() | self._usual.keys()),
            self.fabric.store.changes,
            self._counted_version,
            self._members.version,
            is_calm,
        )
        if rests_on.same_as(self._ordered) and not self._orders.waits:
            return None
        self._ordered = rests_on
        return rests_on

    def order_anew(self, due: "OrderInputs") -> bool:
        """Order what is to be traced, in a thread if that takes long, but not beside `learn`; whether anything has changed."""
        used = self._used
        hosts, self._usual_anew = self._usual_anew, set()
        owners, ours = self.fabric.store.nics, self._members.ours_of_several
        if used.gather(due.uses, owners, lambda pair: self._usual.get(pair, ()), hosts, ours):
            self.in_use = used.in_use
        self._forget_ports(due.remembered)
        anew, self._recounted = self._recounted | self.fabric.store.ported, set()
        self.fabric.store.ported = set()
        changed = self._orders.update(
            used.wanted,
            self.path_counts,
            self.fabric.store.pairs,
            owner=self.fabric.store.nics,
            enough=used.enough,
            far=used.far,
            is_calm=due.is_calm,
            anew=anew,
        )
        self.fabric.store.forget(self._orders.withdrawn)
        return changed

    def _forget_ports(self, remembered: Iterable[Pair]) -> None:
        """Forget the ports of pairs that are not probed any more."""
        gone = [pair for pair in remembered if pair not in self.in_use]
        replies = self._used.replies() if gone else ()
        for pair in gone:
            if pair not in replies:
                for known in (self._mesh, self._usual, self._chosen):
                    known.pop(pair, None)

    def is_mesh_due(self, now_s: float) -> bool:
        """Whether it is time to choose the probes' ports anew: paths have become known, and no more are coming."""
        version = self.fabric.routes.version
        if version == self._mesh_version:
            return False
        self._unrest_s = now_s if self._unrest_s is None else self._unrest_s
        if now_s - self._changed_s < CALM_S and now_s - self._unrest_s < MOST_UNREST_S:
            return False
        self._mesh_version, self._unrest_s = version, None
        return True

    def choose(self, src: str, dst_addr: str, usual: list[int]) -> list[int]:
        """The ports to probe a pair over, one way; they change only if that covers more paths.

        What is known being equal, so is the choice, by a manager that has just started too.
        """
        while self._rerouted:
            for each in self._rerouted.pop():
                self._chosen.pop(each, None)
        pair = src, dst_addr
        usual_before, chosen = self._chosen.get(pair, _NOT_CHOSEN)
        if usual_before != usual:
            chosen = self._choose(pair, usual)
            if pair not in self._usual:
                self._usual_anew.add(host_of(src))
            self._usual[pair], self._chosen[pair] = usual, (usual, chosen)
        return chosen

    def _choose(self, pair: Pair, usual: list[int]) -> list[int]:
        kept = self._mesh.get(pair, usual)
        kept = kept if len(kept) == len(usual) else usual
        routes = self.fabric.routes
        if not routes.links:
            return kept
        of_kept = [links for links in routes.paths_over(*pair, kept) if links]
        if len(set(of_kept)) == len(of_kept):
            return kept
        paths = routes.ports(*pair)
        in_order = {port: paths[port] for port in (*usual, *candidates(pair, len(paths))) if port in paths}
        chosen = covering_ports(in_order, kept)
        if chosen != usual:
            self._mesh[pair] = chosen
        return chosen

    def _uses(self, edges: Edges, overrides: Iterable[SteerOverride]) -> dict[str, HostUse]:
        """What each host uses."""
        flows: defaultdict[str, list[tuple[tuple[Pair, int], ...]]] = defaultdict(list)
        of_connections = self.tcp_uses.by_nic
        for (host, _), found in chain(
            ((nic, each.found) for nic, each in self._flows.items()), of_connections.items()
        ):
            flows[host].append(found)
        steered: defaultdict[str, list[SteerOverride]] = defaultdict(list)
        for override in overrides:
            steered[override.host].append(override)
        return {
            host: HostUse(edges.get(host, ()), tuple(steered.get(host, ())), tuple(flows.get(host, ())))
            for host in dict.fromkeys((*edges, *steered, *flows))
        }

    def _follow_flows(self) -> int:
        """See what queue pairs use now; a number that is another one whenever that has changed."""
        tables = self._traffic.queue_pairs.tables
        before = self._flows
        self._flows = {nic: _flows(table, before.get(nic), nic_id(*nic)) for nic, table in tables.items()}
        if before.keys() != self._flows.keys() or any(self._flows[nic] is not before[nic] for nic in before):
            self._flow_changes += 1
        return self._flow_changes + self.tcp_uses.changes


@dataclass(frozen=True)
class OrderInputs:
    """All that orders rest on: what is not compared whole has a number that changes with it."""

    edges: Edges
    overrides: tuple[SteerOverride, ...]
    flows: int
    uses: Mapping[str, HostUse]
    remembered: tuple[Pair, ...]
    traces: int
    routes: int
    members: int
    is_calm: bool

    def same_as(self, other: "OrderInputs | None") -> bool:
        """Whether nothing has changed."""
        return (
            other is not None
            and self.edges is other.edges
            and self.overrides == other.overrides
            and (self.flows, self.traces, self.routes, self.members, self.is_calm)
            == (other.flows, other.traces, other.routes, other.members, other.is_calm)
        )


@dataclass(frozen=True)
class _Flows:
    """What the queue pairs of a NIC use, and the rows that this was read from."""

    identity: bytes
    found: tuple[tuple[Pair, int], ...]


def _flows(table: NicTable, before: _Flows | None, nic: str) -> _Flows:
    """Destinations and source ports of what sent of late when its NIC was last heard of, in order.

    They are worked out anew only if they have changed.
    """
    in_use = (table.rows["direction"] == EGRESS) & (table.latest_s - table.heard_s < IN_USE_S)
    identity = table.keys[in_use].tobytes() + table.rows["sport"][in_use].tobytes()
    if before is not None and before.identity == identity:
        return before
    rows = table.rows[in_use]
    flows = {(row["addr"].tobytes(), int(row["sport"])) for row in rows}
    return _Flows(
        identity, tuple(((nic, _shown(address)), sport) for address, sport in sorted(flows) if sport)
    )


@lru_cache(65_536)
def _shown(packed: bytes) -> str:
    return shown_address(packed)
