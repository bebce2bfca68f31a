"""The planner as the manager sees it: what it hears, what it wants of each host, and what it says about it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import starmap
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import Hello, PathChange, Spread, SteerQp, SteerReport, nic_id
from cwdp.shared.tcp import SteerTcp
from manager.config import PlannerSettings
from manager.fabric.routes import DirectedLink, Pair, PathName, Routes, is_nic
from manager.faults.dead_links import DeadLinks
from manager.hosts.happening import MOST_LISTED, Move, Moves
from manager.hosts.members import Members
from manager.jobs.flows import Flow
from manager.links.loads import LinkLoads
from manager.placement.flows import ACTIVE_S, Flows, QpName, together
from manager.planner.candidates import Candidates
from manager.planner.capacity import CapacityEstimator, within
from manager.planner.demand import NicRates
from manager.planner.entries import NO_PORT
from manager.planner.events import Outcome, tell
from manager.planner.flows import NOTHING, FlowReader
from manager.planner.located import Located
from manager.planner.moves import Budget
from manager.planner.problem import GUESS_BPS, PlannerInputs
from manager.planner.spreads import Spreads
from manager.planner.steering_state import SteeringState
from manager.planner.step import step
from manager.probing.schedule import FIRST_PORT, PORT_MASK
from manager.queue_pairs.counters import QueuePairStore
from manager.queue_pairs.verbs import VerbsStore
from manager.tcp.connections import ConnectionStore
from manager.tcp.names import is_tcp
from manager.tcp.planned import PlannedConnections, of_queue_pairs
from manager.tcp.steered import SteeredConnections

COUNTERS = ("moved", "rerouted", "backed_up", "released", "adopted", "refused", "held_back", "no_way_round")
MOST_BY_HAND = 1 << 18
"""Of one host: as many queue pairs as the tables of eight NICs hold."""


_Wish = TypeVar("_Wish")
_Links = tuple[DirectedLink, ...]


class Note(Protocol):
    """Keeps an event."""

    def __call__(self, host: str, kind: str, detail: str, *, moves: Moves | None = None) -> None:
        """Of a host, or of the fleet; with the queue pairs that were moved."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How things are, for people.

    Attributes:
        flows: queue pairs that send.
        steered: those that hosts were told about.
        backed_up: those of them with a backup.
        fullest: utilisation of the fullest link between the switches, as planned.
        dead: links that are not used.
    """

    flows: int = 0
    steered: int = 0
    backed_up: int = 0
    fullest: float = 0.0
    dead: tuple[DirectedLink, ...] = ()


class Planner:
    """Decides where queue pairs go.

    Args:
        members: the hosts.
        store: their queue pairs.
        settings: what it may do.
        note: is told of everything that it does.
        verbs: which of them cannot be moved at once, or at all.
        connections: TCP connections, which are placed as queue pairs are.

    Attributes:
        planned, planned_tcp: what each host is to be told.
        steered_tcp: the connections that are steered, as hosts say.
        connections: those that sent in the last step, and are large.
        counters: totals by what was done, or why it was not (`COUNTERS`).
        standing: as of the last step.
        granted_bps: what may be put on links that other pods load too.
        on_moves: each is told what hosts are told otherwise from now on.
    """

    def __init__(
        self,
        members: Members,
        store: QueuePairStore,
        settings: PlannerSettings,
        note: Note,
        verbs: VerbsStore | None = None,
        *,
        connections: ConnectionStore | None = None,
    ) -> None:
        self.settings = settings
        self.planned: dict[str, list[SteerQp]] = {}
        self.planned_tcp: dict[str, list[SteerTcp]] = {}
        self.steered_tcp = SteeredConnections()
        self.connections = Flows.none()
        self._connections = PlannedConnections(connections or ConnectionStore())
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.standing = Standing()
        self._put = Routes(), np.zeros(0), np.zeros(0)
        self._between: tuple[_Links, NDArray[np.intp], _Links] = (), np.zeros(0, np.intp), ()
        self.granted_bps: Mapping[DirectedLink, float] = {}
        self.on_moves: list[Callable[[list[Move]], None]] = []
        self._members, self._store, self._note = members, store, note
        self._verbs, self._hard_of = verbs or VerbsStore(), 0
        self._hard: tuple[frozenset[QpName], frozenset[QpName]] = (frozenset(), frozenset())
        self._candidates, self._spreads = Candidates(Routes()), Spreads()
        self._flows, self._located = FlowReader(), Located()
        self._nic_rates = NicRates()
        self._capacity = CapacityEstimator()
        self._steering = SteeringState()
        self._budget = Budget(settings.moves_per_s, settings.moves_per_host_s)
        self._dead_links = DeadLinks()
        self._by_hand: dict[str, set[QpName]] = {}
        self._heard: set[str] = set()
        self._reports: dict[str, SteerReport] = {}
        self._leads = True

    @property
    def wanted(self) -> tuple[_Links, NDArray[np.float64]]:
        """The links between switches, the same object while they are the same, and what queue pairs want of each.

        Beside what they want, what it can carry, 0 where that is not known; bit/s, shape (links, 2).
        """
        routes, put_bps, capacity_bps = self._put
        if routes.links is not self._between[0]:
            is_between = np.array([not (is_nic(a) or is_nic(b)) for a, b in routes.links], bool)
            between = np.flatnonzero(is_between)
            self._between = routes.links, between, tuple(routes.links[i] for i in between.tolist())
        _, between, links = self._between
        return links, np.column_stack([put_bps, np.nan_to_num(capacity_bps)])[between]

    def stand_by(self) -> None:
        """Another manager plans from now on; what hosts say is kept for when that ends."""
        self._leads = False
        self._steering, self._located = SteeringState(), Located()
        self._heard.clear()
        self.planned.clear()
        self.planned_tcp.clear()

    def lead(self, now_s: float) -> None:
        """Plan from now on, beginning with what hosts said last."""
        self._leads = True
        reports, self._reports = self._reports, {}
        for report in reports.values():
            self.hear_steering(report, now_s)

    def expire(self) -> None:
        """Forget what hosts said that are gone, and let go of what is steered at NICs that are."""
        hosts = self._members.hosts.items()
        nics = {(name, nic.ifname) for name, host in hosts for nic in host.hello.nics}
        for host in self._steering.keep_only(nics):
            self._want(host)
        self._connections.keep_only(self._steering.row.keys())
        self.steered_tcp.keep_only(self._members.hosts.keys())
        gone = (self._heard | self._by_hand.keys() | self._reports.keys()) - self._members.hosts.keys()
        self._heard -= gone
        for host in gone:
            self._by_hand.pop(host, None)
            self._reports.pop(host, None)

    def knows(self, hosts: Collection[str]) -> bool:
        """Whether all of these have said what is steered there, or need not."""
        return not self.settings.enabled or self._heard.issuperset(
            name for name in hosts if not self._members.hosts[name].hello.observe_only
        )

    def hear_steering(self, report: SteerReport, now_s: float) -> None:
        """A host says what is steered there now."""
        known = self._members.hosts.get(report.host)
        if known is None:
            return
        self.steered_tcp.hear(report, known.hello)
        if not self.settings.enabled or known.hello.observe_only:
            return
        if not self._leads:
            self._reports[report.host] = report
            return
        managed = _usable(report.managed, known.hello)
        managed += self._connections.take_up(report.host, self.steered_tcp.managed(report.host))
        self._by_hand[report.host] = set(_names(report.host, report.by_hand[:MOST_BY_HAND]))
        self._by_hand[report.host].update(self.steered_tcp.by_hand(report.host))
        if report.host not in self._heard:
            self._heard.add(report.host)
            self.counters["adopted"] += self._steering.adopt(report.host, managed, now_s)
            self._want(report.host)
            return
        refused = self._steering.compare(report.host, managed, now_s)
        if refused:
            self.counters["refused"] += refused
            self._note(
                report.host,
                "qp_refused",
                f"{refused} queue pairs or connections are not steered as they should be",
            )

    def take_up(
        self, host: str, steered: Iterable[SteerQp], now_s: float, tcp: Iterable[SteerTcp] = ()
    ) -> None:
        """Go on from what a host was told last, by an earlier manager or this one."""
        known = self._members.hosts.get(host)
        if known is None or not self.settings.enabled or known.hello.observe_only:
            return
        told = [*_usable(steered, known.hello), *self._connections.take_up(host, tcp)]
        self.counters["adopted"] += self._steering.adopt(host, told, now_s)
        self._want(host)

    def hear_path(self, host: str, nic: str, kind: str, change: PathChange, now_s: float) -> None:
        """A host's dataplane gave up a path, or uses it again."""
        if not (self.settings.enabled and self._leads):
            return
        path = PathName(nic_id(host, nic), change.dst_addr, change.sport)
        if kind == "path_down":
            self._dead_links.hear_down(path, now_s)
        elif kind == "path_up":
            self._dead_links.hear_up(path, self._candidates.routes)

    def is_urgent(self, now_s: float) -> bool:
        """Whether a failure waits to be acted on."""
        return self._dead_links.settled(now_s)

    def plan(
        self,
        now_s: float,
        *,
        routes: Routes,
        loads: LinkLoads,
        localised: Collection[DirectedLink],
        overrides: Mapping[str, Iterable[SteerQp]],
        pauses_s: Mapping[Flow, float] = NOTHING,
        faults: Mapping[DirectedLink, str] | None = None,
    ) -> bool:
        """Take a step; whether some host is to be told something new, also of how to spread what is yet to be connected.

        Args:
            now_s: seconds of the manager's monotonic clock.
            routes: the known paths.
            loads: what is known of the links, of these routes or of others.
            localised: links that are known to be dead.
            overrides: what operators want, by host; not to be touched.
            pauses_s: for how long those queue pairs may be silent that send again: they keep their place and their room.
            faults: what is wrong with links of these, for people who ask why a queue pair was moved.
        """
        if not self.settings.enabled:
            return False
        if routes is not self._candidates.routes:
            self._candidates = Candidates(routes, self._candidates)
        hosts = self._let_go(overrides)
        dead = self._dead_links.find(routes, self._watched(now_s), localised, now_s)
        suspected = dict.fromkeys(set(dead).difference(localised), "was given up by hosts")
        known = suspected | dict(faults or {})
        outcome = self._step(now_s, loads, dead, overrides, pauses_s=pauses_s, faults=known)
        for host in hosts | outcome.hosts:
            self._want(host)
        self._account(outcome, dead)
        return bool(hosts or outcome.hosts) or self._spreads.is_stale

    def spreads(self, pairs: Collection[Pair]) -> Mapping[str, list[Spread]]:
        """How the queue pairs that programs are yet to connect are to be spread, by host: those between some pairs."""
        hellos = (host.hello for host in self._members.hosts.values())
        return self._spreads.of(hellos, pairs, self._candidates, self.standing.dead)

    def _step(
        self,
        now_s: float,
        loads: LinkLoads,
        dead: Collection[DirectedLink],
        overrides: Mapping[str, Iterable[SteerQp]],
        *,
        pauses_s: Mapping[Flow, float],
        faults: Mapping[DirectedLink, str],
    ) -> Outcome:
        routes = self._candidates.routes
        nics, steered_tcp = self._members.nics_by_address, self.steered_tcp
        connections = self._connections.read(nics, steered_tcp.nics, steered_tcp.ports(), now_s)
        self.connections = connections
        flows = together(self._flows.read(self._store.tables, nics, now_s, pauses_s), connections)
        hands_off = {name for host, wanted in overrides.items() for name in _names(host, wanted)}
        links = self._capacity.read(routes, loads, now_s)
        fixed, drained = self._hard_to_move()
        inputs = PlannerInputs(
            now_s=now_s,
            flows=flows,
            candidates=self._candidates,
            links=within(links, routes, self.granted_bps),
            dead=dead,
            faults=faults,
            nic_bps=self._nic_rates.learn(flows, now_s, self._members.likely_link_bps),
            hands_off=hands_off.union(*self._by_hand.values()),
            silent=self._silent(flows, now_s),
            observers=self._observers(),
            fixed=fixed,
            drained=drained,
        )
        outcome = step(inputs, self._steering, self._located, self._budget, self.settings)
        put_bps = outcome.put_bps if len(outcome.put_bps) else np.zeros(len(routes.links))
        self._put = routes, put_bps, links.capacity_bps
        can_bps = np.where(np.isnan(links.capacity_bps), inputs.nic_bps or GUESS_BPS, links.capacity_bps)
        self._spreads.see(routes.links, put_bps / np.maximum(can_bps, 1.0), now_s)
        steered = self._steering.steered()
        self.standing = Standing(
            flows=len(flows.names),
            steered=len(steered),
            backed_up=int(np.count_nonzero(self._steering.at(steered).backup_sport)),
            fullest=outcome.fullest_after,
            dead=tuple(sorted(dead)),
        )
        return outcome

    def _hard_to_move(self) -> tuple[frozenset[QpName], frozenset[QpName]]:
        """Queue pairs that nothing can move, and those that are drained for it."""
        if self._verbs.changes != self._hard_of:
            self._hard_of = self._verbs.changes
            create_only, drained = self._verbs.create_only, self._verbs.drained
            self._hard = frozenset(starmap(QpName, create_only)), frozenset(starmap(QpName, drained))
        return self._hard

    def _silent(self, flows: Flows, now_s: float) -> set[QpName]:
        """Queue pairs of NICs that have said nothing of late."""
        nics = {nic for nic, table in self._store.tables.items() if table.is_silent(now_s)}
        return {name for name in flows.names if (name.host, name.nic) in nics} if nics else set()

    def _let_go(self, overrides: Mapping[str, Iterable[SteerQp]]) -> set[str]:
        """Release what is idle, or is others' business now; the hosts concerned."""
        idle = self._steering.release_idle({nic: table.told_s for nic, table in self._store.tables.items()})
        hosts = {released.name.host for released in idle}
        if idle:
            self.counters["released"] += len(idle)
            told = f"{len(idle)} queue pairs have not sent for a while"
            moves = Moves(count=len(idle), listed=[released.move() for released in idle[:MOST_LISTED]])
            self._note(_whose(hosts), "qp_released", told, moves=moves)
        gone = {host for host in self._steering.hosts() if host not in self._members.hosts}
        gone |= {name for name, host in self._members.hosts.items() if host.hello.observe_only}
        for host in gone:
            if self._steering.release(host):
                hosts.add(host)
        self._heard -= gone
        for host, wanted in overrides.items():
            for name in _names(host, wanted):
                entry = self._steering.of(name) if name in self._steering.row else None
                if entry is not None and entry.sport != NO_PORT:
                    entry.sport = entry.backup_sport = NO_PORT
                    hosts.add(host)
        return hosts

    def _observers(self) -> set[str]:
        """Hosts that are not to be told anything: they only observe, or have not said yet what is steered there."""
        return self._members.hosts.keys() - self._heard

    def _want(self, host: str) -> None:
        wanted = self._steering.wanted(host)
        _put(self.planned, host, of_queue_pairs(wanted))
        _put(self.planned_tcp, host, self._connections.wishes(host, wanted))

    def _watched(self, now_s: float) -> Iterator[PathName]:
        """Paths that steered queue pairs take, whose dataplanes would have told if they had given them up.

        A backup is none: nobody tells of it before it is needed. Nor is a path of TCP: what drops its probes may let all else pass.
        """
        steered = self._steering.steered()
        active = steered[now_s - self._steering.at(steered).active_s < ACTIVE_S]
        ports = self._steering.at(active).sport.tolist()
        for name, sport in zip(self._steering.names(active), ports, strict=True):
            if not is_tcp(name.dst_addr):
                yield PathName(name.src, name.dst_addr, sport)

    def _account(self, outcome: Outcome, dead: Collection[DirectedLink]) -> None:
        self.counters.update(move.what for move in outcome.moves)
        for tell_of in self.on_moves if outcome.moves else ():
            tell_of(outcome.moves)
        self.counters["held_back"] += outcome.held_back["rate"]
        self.counters["no_way_round"] += outcome.held_back["no_way_round"]
        for host, kind, detail in tell(outcome, dead):
            moves = [move for move in outcome.moves if f"qp_{move.what}" == kind]
            self._note(host, kind, detail, moves=Moves(count=len(moves), listed=moves[:MOST_LISTED]))


def _usable(steered: Iterable[SteerQp], hello: Hello) -> list[SteerQp]:
    """What of this a host can be told again."""
    nics = {nic.ifname for nic in hello.nics}
    return [steer for steer in steered if steer.nic in nics and is_sane(steer)]


def is_sane(steer: SteerQp) -> bool:
    """Whether a host can be told again what it says it was told once."""
    ports = [steer.sport] if steer.backup_sport is None else [steer.sport, steer.backup_sport]
    try:
        usual = str(ip_address(steer.dst_addr)) == steer.dst_addr
    except ValueError:
        return False
    return usual and 0 <= steer.qpn < 2**24 and len(set(ports)) == len(ports) and _are_roce(ports)


def _are_roce(ports: Iterable[int]) -> bool:
    return all(FIRST_PORT <= port <= FIRST_PORT + PORT_MASK for port in ports)


def merged(overrides: Iterable[SteerQp], planned: Iterable[SteerQp]) -> list[SteerQp]:
    """What a host is to be told: what operators want, and of all other queue pairs what the planner does."""
    overrides = list(overrides)
    taken = {(steer.nic, steer.dst_addr, steer.qpn) for steer in overrides}
    return overrides + [steer for steer in planned if (steer.nic, steer.dst_addr, steer.qpn) not in taken]


def _names(host: str, steered: Iterable[SteerQp]) -> Iterator[QpName]:
    return (QpName(host, steer.nic, steer.dst_addr, steer.qpn) for steer in steered)


def _put(planned: dict[str, list[_Wish]], host: str, wanted: list[_Wish]) -> None:
    """Have a host be told this; nothing where that is nothing."""
    if wanted:
        planned[host] = wanted
    else:
        planned.pop(host, None)


def _whose(hosts: Collection[str]) -> str:
    return next(iter(hosts)) if len(hosts) == 1 else "fleet"
