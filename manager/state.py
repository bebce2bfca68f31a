"""All that the manager knows, and how messages change it. No I/O: the service feeds it and acts on it."""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np

from cwdp.shared.bus.collectives import CollectiveReport
from cwdp.shared.bus.messages import (
    BounceOrder,
    Desired,
    Event,
    FromAgent,
    Hello,
    Leader,
    ProbeEdge,
    Report,
    RoceSettings,
    SteerReport,
    WindowReport,
)
from manager.causes.links import LinksNow
from manager.causes.watch import CauseWatch
from manager.clock.changes import ClockEvents
from manager.clock.service import ClockService
from manager.clock.timeline import Identity
from manager.collectives.store import CollectiveStore
from manager.config import PlannerSettings, ProbeSettings
from manager.documents import wanted_documents
from manager.fabric.discovery import Discovery, OrderInputs
from manager.fabric.fabric import Fabric, TrustChange
from manager.fabric.wiring_watch import WiringChange
from manager.faults.dead_links import kinds
from manager.faults.finding import Findings
from manager.faults.link_watch import LinkWatch
from manager.first_plan import FirstPlan
from manager.hosts.counters import CounterTotals
from manager.hosts.departed import Departed
from manager.hosts.happening import Further, Happening
from manager.hosts.members import Members
from manager.hosts.namesakes import Namesakes
from manager.hosts.probed_before import ProbedBefore
from manager.hosts.sanity import is_sane
from manager.hosts.sequences import Sequences
from manager.ib.faults.subnets import SubnetWatch
from manager.ib.migration.migrations import IbMigrations
from manager.ib.ports import Ports
from manager.ib.spreading import IbSpreads
from manager.ib.subnets import Subnets
from manager.jobs.watch import JobWatch
from manager.links.loads import LinkLoads
from manager.overrides.change import OverrideChange
from manager.overrides.tables import Overrides
from manager.paths.addresses import AddressBook
from manager.paths.owd import OwdStore
from manager.planner.planner import Planner
from manager.planner.steering_state import SteerParts
from manager.pods.timelines import OtherTimelines
from manager.probing.between_pods import Between
from manager.probing.pace import Pace, paths_of_pair
from manager.probing.probe_graph import Pairs
from manager.probing.schedule import Documents, EdgeMaker, Member, build_pairs
from manager.queue_pairs.traffic import Traffic
from manager.tcp.planned import by_name

EVENTS_KEPT = 1000
DETAIL_CHARACTERS = 200
HELLO_REASONS = ("ok", "not_sane", "name_taken", "put_out")
REPORT_REASONS = ("ok", "unknown_host", "lost_on_the_way", "foreign_path", "discipline_not_sane")

_log = logging.getLogger("cwdp.manager")


class FleetState:
    """Members, clocks, delays, counters and events; it decides unless told to stand by.

    `on_event` is told of each event that is kept, `on_override` of each change by an operator: whether it was set or
    withdrawn, what, and all that it says.
    `hellos` and `reports` count by reason (`HELLO_REASONS`, `REPORT_REASONS`); `probed_before` is by an earlier manager.
    """

    def __init__(
        self,
        identity: Identity,
        probes: ProbeSettings,
        *,
        continued: bool,
        roce: RoceSettings | None = None,
        overrides: Overrides | None = None,
        planner: PlannerSettings | None = None,
    ) -> None:
        self.members = Members()
        self.clock = ClockService(identity, continued=continued)
        self.clock_events, self.timelines = ClockEvents(), OtherTimelines(self.members.elsewhere)
        self.owd, self.counters = OwdStore(), CounterTotals()
        traffic = self.traffic = Traffic(self.members)
        self.collectives, self.subnets = CollectiveStore(), Subnets()
        self.jobs = JobWatch(self.traffic, self.members, self.collectives.bursts.told)
        self.events: deque[Happening] = deque(maxlen=EVENTS_KEPT)
        self.on_event: Callable[[Happening], None] = _tell_nobody
        self.on_override: Callable[[OverrideChange], None] = _tell_nobody
        self.hellos, self.reports = Counter[str](), Counter[str]()
        self.probed_pairs = self._addresses_version = 0
        self.overrides = Overrides() if overrides is None else overrides
        self.steering, self.slicing = self.overrides.steering, self.overrides.slicing
        self.discovery = Discovery(self.members, self.traffic, self.steering)
        self.watch = LinkWatch(self.members, self.note)
        self.subnet_faults = SubnetWatch(self.watch.findings, self.note)
        links_now = LinksNow(self.watch, traffic, self.members)
        self.causes = CauseWatch(self.note, links_now, self.collectives, traffic.not_ready)
        settings = planner or PlannerSettings()
        self.planner = Planner(
            self.members, traffic.queue_pairs, settings, self.note, traffic.verbs, connections=traffic.tcp
        )
        ports = Ports(self.members, self.subnets)
        self.ib_spreads = IbSpreads(ports, traffic.verbs, self.note)
        self.migrations = IbMigrations(
            ports, traffic, self.faults, self.note, steering=self.steering, settings=settings
        )
        self._probes, self._roce = probes, roce
        self._edge_maker = EdgeMaker(
            family=probes.family,
            paths=probes.paths,
            pairs_per_s=probes.pairs_per_s,
            choose=self.discovery.choose,
        )
        self._graph: tuple[Sequence[Member], Pairs] = ([], np.empty((0, 2), np.int64))
        self._hosts_probed: set[str] = set()
        self.leads, self.leader, self.starts = True, Leader(), identity.starts
        self.first_plan, self.probed_before = FirstPlan(), ProbedBefore()
        self._taken_up: dict[str, list[ProbeEdge]] | None = None
        self._edges: dict[str, list[ProbeEdge]] | None = None
        self.pace, self._documents, self._steer_parts = Pace(), Documents(), SteerParts()
        self._sequences, self._departed, self.namesakes = Sequences(), Departed(), Namesakes()
        self._addresses = AddressBook(self.members, self.watch.windows)

    def stand_by(self) -> None:
        """Another manager decides; this one hears, and answers what is asked."""
        self.leads = False
        self._documents = Documents()
        self.planner.stand_by()
        self.ib_spreads.stand_by()
        self.migrations.stand_by()
        self.timelines.stand_by()

    def lead(self, now_s: float, leader: Leader, *, timeline: str, others_led: bool) -> None:
        """Decide from now on. No host is told anything before it is known what it was told.

        Args:
            now_s: seconds of the manager's monotonic clock.
            leader: what hosts know this manager by; its epoch is higher than those of all who led before.
            timeline: the name of the fleet's.
            others_led: whether others may have, since this manager did.
        """
        self.leads, self.leader = True, leader
        self.first_plan.lead(now_s)
        self._taken_up, self.probed_before = {}, ProbedBefore()
        self._documents = Documents()
        self.planner.lead(now_s)
        self.migrations.lead(now_s, leader.epoch)
        if timeline != self.clock.timeline or (others_led and self.clock.runs):
            self.clock = ClockService(Identity(timeline=timeline, starts=self.starts), continued=True)
            self.clock_events.begin_anew()
        self.clock.leader = leader

    def not_taken_up(self) -> list[str]:
        """The hosts of which it is not known yet what they were told last."""
        if not self.leads or self._taken_up is None:
            return []
        return [host for host in self.members.hosts if host not in self._taken_up]

    def take_up(self, host: str, document: Desired | None, now_s: float) -> bool:
        """Go on from what a host was told last; whether that is known now.

        Args:
            host: which.
            document: that is on the bus; None where there is none. Then a host that says it follows one, as after the
                loss of the bus's store, has to tell first what is steered there.
            now_s: seconds of the manager's monotonic clock.
        """
        known = self.members.hosts.get(host)
        if self._taken_up is None or known is None:
            return False
        if document is None and known.hello.desired_version > 0 and not self.planner.knows([host]):
            return False
        self._taken_up[host] = [] if document is None else document.probes
        self.probed_before.note(host, document)
        if document is not None:
            self.planner.take_up(host, document.steer, now_s, document.tcp)
            self.discovery.take_up(document)
            self.ib_spreads.take_up(document)
        return True

    def take_up_again(self, host: str) -> None:
        """What a host was told last is not known after all."""
        if self._taken_up is not None:
            self._taken_up.pop(host, None)

    def put_out(self, host: str, now_s: float) -> None:
        """Keep nothing of a host that has left for good, nor hear what it may have said before it heard that."""
        self._departed.put_out(host, now_s)
        self.members.forget(host)
        self.traffic.queue_pairs.depart(host)
        self._hosts_probed.discard(host)
        for memory in (self._edges, self._taken_up):
            if memory is not None:
                memory.pop(host, None)

    def hear_hello(self, hello: Hello, now_s: float) -> None:
        """A host is there."""
        if not is_sane(hello):
            self.hellos["not_sane"] += 1
            return
        if self._departed.is_out(hello.host, now_s):
            self.hellos["put_out"] += 1
            return
        is_heard = self.namesakes.admits(hello, self.members.hosts.get(hello.host), now_s)
        for host, told in self.namesakes.news:
            self.note(host, "name_taken", told)
        self.namesakes.news.clear()
        if not is_heard:
            self.hellos["name_taken"] += 1
            return
        self.hellos["ok"] += 1
        if self.members.hear(hello, now_s):
            self.note(hello.host, "host_up", f"version {hello.version}, {len(hello.nics)} NICs")

    def hears(self, kind: str, message: FromAgent) -> bool:
        """Whether to take in what an agent says; not if another one of its name is heard."""
        return self.namesakes.hears(kind, message, self.members.hosts.get(message.host))

    def hear_report(self, report: Report, now_s: float) -> None:
        """A host measured."""
        if report.host not in self.members.hosts:
            self.reports["unknown_host"] += 1
            return
        self.reports["ok"] += 1
        self.reports["lost_on_the_way"] += self._sequences.follow(report)
        ours = self.members.ours
        self.clock.hear(report, ours, now_s, self.members.elsewhere.hosts)
        self.timelines.hear(report, ours, now_s)
        told, hear = report.discipline, self.clock_events.disciplines.hear
        if told is not None and not hear(report.host, report.boot_id, told, now_s):
            self.reports["discipline_not_sane"] += 1
        ahead_of = self.timelines.ahead_at(report, ours)
        self.reports["foreign_path"] += self.owd.add(report.host, report.paths, now_s, ahead_of)
        self.traffic.hear_clock(report.clock, now_s)
        self.causes.processors.hear(report.host, report.local_ns, report.processor_waits_ns)
        if report.counters:
            self.counters.add(report.host, report.counters)

    def hear_event(self, event: Event) -> None:
        """Something happened on a host."""
        host = self.members.hosts.get(event.host)
        if host is None:
            return
        named = event.nic in {nic.ifname for nic in host.hello.nics}
        nic = event.nic if named else None
        if nic is not None and event.path is not None and not event.path.protocol:
            self.planner.hear_path(event.host, nic, event.kind, event.path, time.monotonic())
        self.note(event.host, event.kind, event.detail, nic=nic, path=event.path)

    def note(self, host: str, kind: str, detail: str, **more: Unpack[Further]) -> None:
        """Keep an event, and log it; what else it may say is told in `Happening`."""
        detail = detail[:DETAIL_CHARACTERS]
        happening = Happening(time_s=time.time(), host=host, kind=kind, detail=detail, **more)
        self.events.append(happening)
        self.on_event(happening)
        _log.info("event host=%s kind=%s nic=%s detail=%s", host, kind, happening.nic, detail)

    def hear_collectives(self, report: CollectiveReport, now_s: float) -> None:
        """Programs of a host have done collectives."""
        self.collectives.hear(report, self.members.hosts.keys(), self.traffic.timeline_ns(now_s))

    def hear_steering(self, report: SteerReport, now_s: float) -> None:
        """A host says what is steered there."""
        whole = self._steer_parts.hear(report) if report.host in self.members.hosts else None
        if whole is not None:
            self.planner.hear_steering(whole, now_s)

    def expire(self, now_s: float) -> None:
        """Let go of what is gone. Not while clocks are being solved."""
        for host in self.members.expire(now_s):
            self.note(host, "host_lost", "no hello for several seconds")
        self.members.follow_elsewhere(now_s)
        for host in self.clock.fits.slots.keys() - self.members.hosts.keys():
            self.clock.forget(host)
            self.clock_events.forget(host)
        for host in self._sequences.keep_only(self.members.hosts):
            self.clock_events.forget(host)
            self.counters.forget(host)
            self.causes.processors.forget(host)
        if self._taken_up is not None:
            self._taken_up = {
                host: probes for host, probes in self._taken_up.items() if host in self.members.hosts
            }
        self._departed.expire(now_s)
        self._steer_parts.keep_only(self.members.hosts.keys())
        self.clock.fits.expire(now_s)
        self.owd.expire(now_s)
        self.traffic.expire(now_s)
        self.planner.expire()
        self.namesakes.keep_only(self.members.hosts)
        self._addresses.learn(now_s)
        self.watch.expire(now_s, self.traffic.timeline_ns(now_s))

    def probeable(self, now_s: float) -> list[Member]:
        """What the probe graph is to be built over."""
        return list(self.members.probeable(now_s))

    def proven_hellos(self) -> list[Hello]:
        """What hosts say of themselves, without the addresses that are not proven."""
        return self._addresses.proven_hellos()

    def was_directed(self) -> bool:
        """Whether some host follows a document already, of an earlier manager or of this one."""
        return any(host.hello.desired_version > 0 for host in self.members.hosts.values())

    def awaits_hosts(self) -> bool:
        """Whether hosts that an earlier manager has directed may be on their way back.

        They are all there once each that was probed is, by all documents of before; or once each that is probed has reported:
        the clocks wait for that, and no longer than they may.
        """
        return self.was_directed() and not (self.clock.runs or self.probed_before.are_back(self.members))

    def schedule(
        self, members: Sequence[Member], pairs: Pairs, between: Between | None = None
    ) -> list[Desired]:
        """The documents that change with a new probe graph, over members and, where there are, to other pods."""
        if self._taken_up is not None:
            self._taken_up = {host: [] for host in self._taken_up}
        self.probed_pairs = len(pairs)
        self.pace.follow(len(members))
        self._edge_maker.paths = paths_of_pair(len(members), self._probes.paths, self._edge_maker.paths)
        self._keep_pace()
        self._graph = (members, pairs) if between is None else between.joined(members, pairs)
        self._hosts_probed = {host for host, _ in members}
        self._choose_edges()
        return self.documents()

    def keep_up(self, waits_s: float, now_s: float) -> list[Desired]:
        """The documents that change as what hosts tell waits for so long now; see `Pace`."""
        if not self.pace.keep_up(waits_s, now_s):
            return []
        self._keep_pace()
        return self.documents()

    def _keep_pace(self) -> None:
        self.watch.keep_pace(self.pace.interval_s)
        self.discovery.order_interval_s = self.pace.interval_s

    @property
    def fabric(self) -> Fabric:
        """What is known of the fabric."""
        return self.discovery.fabric

    @property
    def links(self) -> LinkLoads:
        """What each link carries, and how long its queue is."""
        return self.watch.loads

    @property
    def faults(self) -> Findings:
        """What is wrong in the fabric."""
        return self.watch.findings

    def hear_windows(self, report: WindowReport, now_s: float) -> None:
        """What became of a NIC's probes."""
        self.watch.hear(report, self.traffic.timeline_ns(now_s))

    def watch_links(self, now_s: float) -> None:
        """Find queues and faults from what has been heard."""
        tables, timeline_ns = self.traffic.queue_pairs.loading.items(), self.traffic.timeline_ns(now_s)
        self.watch.doubt_clocks(self.clock.changed(), self.clock.unfollowed.take(), timeline_ns)
        self.watch.step(now_s, timeline_ns, tables)
        hosts = self.members.hosts
        self.watch.follow_members(now_s, (host for host in hosts if self.clock.state_of(host) == "set_aside"))
        self.subnet_faults.step(self.subnets.now, now_s)

    def echo_orders(self, now_s: float) -> list[BounceOrder]:
        """Echoes that hosts are to send now; a manager that waits wants none."""
        return self.watch.echo_orders(now_s) if self.leads else []

    def discover(self, now_s: float) -> list[Desired]:
        """The documents that change with what has become known of the fabric."""
        is_mesh_due, due = self.begin_discovery(now_s)
        changed = due is not None and self.discovery.order_anew(due)
        return self.documents() if changed or is_mesh_due else []

    def begin_discovery(self, now_s: float) -> tuple[bool, OrderInputs | None]:
        """Whether other ports are probed from now on, and what `Discovery.order_anew` is to make orders of, if it is."""
        if self._edges is None:
            return False, None
        is_mesh_due = self.discovery.is_mesh_due(now_s)
        if is_mesh_due:
            self._choose_edges()
        return is_mesh_due, self.discovery.orders_due(self._edges, now_s)

    def _choose_edges(self) -> None:
        members, pairs = self._graph
        edges = self._edge_maker.make(members, pairs)
        self._edges = {host: edges[host] for host in edges if host in self._hosts_probed}

    def plan(self, now_s: float) -> list[Desired]:
        """Take a step of the planner; the documents that change with it. None before the first probe graph."""
        if not self.may_plan(now_s):
            return []
        self.first_plan.make()
        by_hand = self.overrides.tcp.messages()
        self.discovery.tcp_uses.see(self.planner.connections, now_s, by_hand)
        self.watch.connections.see(self.planner.connections, now_s)
        changed = self.planner.plan(
            now_s,
            routes=self.fabric.routes,
            loads=self.links,
            localised=self.watch.avoided(self.fabric.routes, losing := self.causes.avoided(now_s)),
            faults=kinds(self.faults, losing),
            overrides=by_name(self.steering.messages(), by_hand),
            pauses_s=self.jobs.pauses_s,
        )
        spreads_anew = self.planner.settings.enabled and self.ib_spreads.plan(now_s)
        believes_others = self._addresses.version != self._addresses_version
        self._addresses_version = self._addresses.version
        return self.documents() if changed or spreads_anew or believes_others else []

    def documents(self) -> list[Desired]:
        """The documents that have changed; none before the first probe graph, which says whom they are for."""
        if self._edges is None or not self.leads:
            return []
        wanted = wanted_documents(
            self._wanted_edges(),
            leader=self.leader,
            roce=self._roce,
            report_interval_s=self.pace.interval_s,
            overrides=self.overrides,
            planner=self.planner,
            by_lids=self.ib_spreads.told,
            discovery=self.discovery,
            hosts=[*self.proven_hellos(), *self.members.elsewhere.hosts.values()],
        )
        return self._documents.update(wanted, self._followed_versions())

    def _wanted_edges(self) -> dict[str, list[ProbeEdge]]:
        """What each host that may be told anything is to probe: what it does, until a graph has been built with it."""
        assert self._edges is not None
        before = self._taken_up
        if before is None:
            return {host: [] for host in self.members.hosts} | self._edges
        return before | {host: edges for host, edges in self._edges.items() if host in before}

    def may_plan(self, now_s: float) -> bool:
        """Whether there is a probe graph, and enough is known of what is steered to change it."""
        if self._edges is None or not self.leads:
            return False
        return self.first_plan.may(
            now_s, lambda: not self.was_directed() or self.planner.knows(self.members.up())
        )

    def overtaken(self) -> list[Desired]:
        """Documents that must be published again, above what their hosts took from an earlier manager."""
        return self._documents.overtaken(self._followed_versions())

    def _followed_versions(self) -> dict[str, int]:
        hosts = self.members.hosts
        told = hosts if self._taken_up is None else self._taken_up
        return {name: hosts[name].hello.desired_version for name in told if name in hosts}

    def build_graph(self, members: Sequence[Member]) -> Pairs:
        """The probe graph over members; touches nothing, so a thread may run it."""
        return build_pairs(members, degree=self._probes.degree, seed=self._probes.seed)

    def note_fabric(self, changes: Sequence[TrustChange | WiringChange]) -> None:
        """Note whose word about paths counts no more, or again, and what is plugged in wrongly, or no more."""
        for change in changes:
            self.note(change.host, change.kind, change.reason, nic=change.nic)

    def compare_timelines(self, now_s: float) -> None:
        """See how far other pods' timelines are from this one's, by the last solution."""
        self.timelines.step(self.clock, now_s)

    def take_clock_changes(self, now_s: float) -> None:
        """Note the hosts whose clock changed: unannounced, or its state."""
        slots, timeline_ns = self.clock.fits.slots, self.traffic.timeline_ns(now_s)
        for note in self.clock_events.follow(self.clock.clocks, slots, now_s, timeline_ns):
            self.note(note.host, note.kind, note.detail)
        for host, state in self.clock.changes:
            cause = self.clock_events.explain(host, state, now_s)
            detail = f"clock is {state.replace('_', ' ')}"
            self.note(host, f"clock_{state}", detail if cause is None else f"{detail}: {cause}")
            if state == "set_aside":
                _log.warning("host set aside: its clock disagrees with its peers host=%s", host)
        self.clock.changes.clear()


def _tell_nobody(*_news: object) -> None:
    """Until somebody listens."""
