"""Prometheus metrics, collected when they are asked for; their number does not grow with the fabric's."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import get_args

import numpy as np
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cwdp import __version__
from cwdp.shared.bus.connection import COUNTERS as BUS_COUNTERS
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.desired.documents import COUNTERS as DOCUMENT_COUNTERS
from cwdp.shared.bus.records import DIRECTIONS, NAK_KINDS
from cwdp.shared.loopwatch import LoopWatch
from manager.access.refusals import REASONS as REFUSAL_REASONS
from manager.access.refusals import Refusals
from manager.api.audit.audit_metrics import audit_metrics
from manager.api.finding_metrics import finding_metrics, host_metrics, job_metrics
from manager.api.jobs.collective_metrics import LATEST, MOST_JOBS, collective_metrics
from manager.api.jobs.iteration_metrics import JobCause, cause_metrics, iteration_metrics
from manager.api.link_metrics import link_metrics, link_states
from manager.api.metric_families import NS, counter, counters, gauge, gauges, quantiles
from manager.api.tables import Tables, copied
from manager.api.tcp_metrics import tcp_metrics
from manager.audit.service.service import Audits
from manager.bus.backlog import Backlog
from manager.bus.lease import Leadership
from manager.bus.nats_server import NatsServer
from manager.bus.state import BusState
from manager.clock.fits import REFUSALS
from manager.collectives.store import Collective
from manager.duties import Duties
from manager.fabric.places import link_places
from manager.fabric.routes import DirectedLink, Routes
from manager.fabric.traces import REASONS as TRACE_REASONS
from manager.faults.finding import Finding
from manager.faults.link_watch import REPORTS as WINDOW_REPORT_REASONS
from manager.history.figures import Figures
from manager.history.service import History
from manager.hosts.elsewhere import REASONS as POD_HOSTS_REASONS
from manager.hosts.members import Host, HostState, Reason
from manager.hosts.namesakes import KINDS
from manager.jobs.inference import Job
from manager.links.loads import LinkLoads
from manager.moment import talkers
from manager.paths.windows import REASONS as WINDOW_ROW_REASONS
from manager.planner.flows import sending
from manager.planner.planner import COUNTERS as PLANNER_COUNTERS
from manager.pods.directory import REASONS as PASSED_ON_REASONS
from manager.pods.directory import Directory
from manager.pods.evidence_messages import REASONS as EVIDENCE_REASONS
from manager.pods.findings_messages import REASONS as FINDINGS_REASONS
from manager.pods.fleet_watch import FleetWatch
from manager.pods.pods import Pods
from manager.pods.sharing import REASONS as SHARING_REASONS
from manager.pods.sharing import Sharing
from manager.queue_pairs.traffic import REPORT_REASONS as TRAFFIC_REASONS
from manager.state import HELLO_REASONS, REPORT_REASONS, FleetState
from manager.view.link_table import wrong
from manager.view.link_views import finding_as_json

AREAS = {
    "dataplane": ("cwdp_dataplane_events", "What the eBPF programs counted on all hosts, by reason."),
    "agent": ("cwdp_agent_events", "What all agents counted, by reason."),
    "bus": ("cwdp_agent_bus_messages", "Messages and errors of all agents' bus connections, by outcome."),
}
QP_METRICS = {
    "packets": ("cwdp_qp_packets", "RoCEv2 packets."),
    "bytes": ("cwdp_qp_bytes", "Bytes of their IP packets."),
    "ce_marks": ("cwdp_qp_ce_marked_packets", "RoCEv2 packets that a switch marked (ECN CE)."),
    "cnps": ("cwdp_qp_cnps", "Congestion notification packets."),
    "acks": ("cwdp_qp_acks", "Acknowledgements without NAKs."),
    "psn_retransmitted": ("cwdp_qp_retransmitted_packets", "Packets sent, or come, again."),
    "psn_gaps": ("cwdp_qp_missed_packets", "Packets passed over when a later one came."),
    "psn_reordered": ("cwdp_qp_reordered_packets", "Packets passed over that came later."),
}

JOBS_SHARE = 0.05
"""Of a core, to find jobs."""

_log = logging.getLogger("cwdp.manager.metrics")


@dataclass(kw_only=True)
class SolveTimes:
    """How often the clock graph was solved, and how long that took in all and last, in seconds."""

    useful: int = 0
    useless: int = 0
    total_s: float = 0.0
    last_s: float = 0.0

    def add(self, took_s: float, *, useful: bool) -> None:
        """Count one solve; it is useful when a fit could be used."""
        self.useful += useful
        self.useless += not useful
        self.total_s += took_s
        self.last_s = took_s


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where figures come from. `server` is None when the bus is somebody else's."""

    lease: Leadership

    state: FleetState
    bus: Bus
    server: NatsServer | None
    solves: SolveTimes = field(default_factory=SolveTimes)
    loop_watch: LoopWatch = field(default_factory=LoopWatch)
    duties: Duties = field(default_factory=Duties)
    backlog: Backlog | None = None
    kept: BusState | None = None
    history: History | None = None
    audits: Audits | None = None
    pods: Pods | None = None
    sharing: Sharing | None = None
    together: FleetWatch | None = None
    directory: Directory | None = None
    refusals: Refusals = field(default_factory=Refusals)


@dataclass(eq=False, kw_only=True)
class Scrape(Collector):
    """One answer: families that are there already, and those that are still to be worked out, in whichever thread."""

    later: Callable[[], Iterator[Metric]]
    families: list[Metric] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)
    success: bool = True

    def add(self, part: Callable[[], Iterator[Metric]]) -> None:
        """Work out a part; if that fails, the rest of it is left out and the answer says that it is not complete."""
        try:
            self.families.extend(part())
        except Exception:  # noqa: BLE001 - a scrape must answer, and says that it is incomplete
            _log.exception("collecting metrics failed")
            self.success = False

    def collect(self) -> Iterator[Metric]:
        """Every metric, with whether that succeeded and how long it took."""
        self.add(self.later)
        yield from self.families
        yield gauge("cwdp_collector_success", "Whether the last collection was complete.", self.success)
        took_s = time.monotonic() - self.started_s
        yield gauge("cwdp_collector_duration_seconds", "How long the last collection took.", took_s)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect to know."""
        return []


@dataclass(frozen=True, kw_only=True)
class _Moment:
    """What the manager's loop goes on to change while an answer is worked out elsewhere."""

    now_s: float
    hosts: dict[str, Host]
    findings: list[Finding]
    opened: dict[str, int]
    loads: LinkLoads
    avoided: tuple[DirectedLink, ...]
    routes: Routes
    tables: Tables | None
    nics: Mapping[str, str]
    jobs: Sequence[Job]
    collective_jobs: int
    collectives: Sequence[tuple[str, Sequence[Collective]]]
    causes: Sequence[JobCause]


class FleetCollector:
    """All of the manager's metrics. What takes long in a large fabric is left to whoever renders the answer."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._places = link_places(())
        self._jobs: list[Metric] = []
        self._jobs_due_s = 0.0

    async def tables(self) -> Tables | None:
        """The queue pairs as they are now, from which jobs are found; None while what was found last is new enough."""
        if time.monotonic() < self._jobs_due_s:
            return None
        return await copied(self._sources.state.traffic.queue_pairs.tables)

    def scrape(self, tables: Tables | None) -> Scrape:
        """Begin an answer, in the manager's loop; the rest of it may be worked out in a thread.

        Args:
            tables: the queue pairs of each NIC, which nobody changes any more; with None jobs are those found last.
        """
        state = self._sources.state
        moment = _Moment(
            now_s=time.monotonic(),
            hosts=dict(state.members.hosts),
            findings=list(state.faults.current.values()),
            opened=dict(state.faults.opened),
            loads=state.links,
            avoided=state.planner.standing.dead,
            routes=state.fabric.routes,
            tables=tables,
            nics=state.members.nics_by_address,
            jobs=state.jobs.jobs,
            collective_jobs=len(state.collectives.jobs),
            collectives=state.collectives.latest(MOST_JOBS, LATEST),
            causes=[
                JobCause(each.cause.kind, tuple(sorted(each.jobs)), each.cause.costs_ns)
                for each in state.causes.current
            ],
        )
        scrape = Scrape(later=partial(self._large, moment))
        scrape.add(self._small)
        return scrape

    def _small(self) -> Iterator[Metric]:
        yield gauge("cwdp_build_info", "The version, as a label.", 1, {"version": __version__})
        yield from self._fleet()
        yield from self._bus()
        yield from self._clock()
        yield from self._owd()
        yield from self._traffic()
        yield from self._fabric()
        yield from self._flaps()
        yield from self._planner()
        yield from self._history()
        yield from audit_metrics(self._sources.audits)
        yield from self._counters()

    def _large(self, moment: _Moment) -> Iterator[Metric]:
        yield from self._hosts(moment)
        yield from self._delays(moment.now_s)
        count = self._sources.state.traffic.queue_pairs.count()
        yield gauges("cwdp_qp_queue_pairs", "Queue pairs seen of late.", "direction", count)
        yield gauge("cwdp_fabric_paths", "Paths whose links are known.", len(moment.routes.paths))
        yield from finding_metrics(moment.findings, moment.opened)
        if moment.tables is not None:
            self._find_jobs(moment, moment.tables)
        yield from self._jobs
        yield from iteration_metrics(moment.jobs)
        yield from cause_metrics(moment.causes)
        yield from collective_metrics(moment.collective_jobs, moment.collectives)
        yield from self._links(moment)

    def _hosts(self, moment: _Moment) -> Iterator[Metric]:
        members = self._sources.state.members
        hosts = dict.fromkeys(get_args(HostState), 0)
        nics = dict.fromkeys(get_args(Reason), 0)
        for host in moment.hosts.values():
            hosts[host.state] += 1
            for nic in host.hello.nics:
                nics[members.reason(host, nic, moment.now_s)] += 1
        yield gauges("cwdp_manager_hosts", "Hosts by state.", "state", hosts)
        yield gauges("cwdp_manager_nics", "NICs by whether, or why not, they are probed.", "reason", nics)
        yield from host_metrics({name: host.state for name, host in moment.hosts.items()}, moment.findings)

    def _links(self, moment: _Moment) -> Iterator[Metric]:
        if self._places.links is not moment.loads.routes.links:
            self._places = link_places(moment.loads.routes.links)
        places = self._places
        states = link_states(
            moment.loads, places, wrong(map(finding_as_json, moment.findings)), moment.avoided
        )
        yield from link_metrics(moment.loads, places, states)

    def _find_jobs(self, moment: _Moment, tables: Tables) -> None:
        started = time.monotonic()
        flows = sending(tables, moment.nics, moment.now_s)
        self._jobs = list(job_metrics(talkers.of_now(flows, moment.routes), moment.findings))
        ended = time.monotonic()
        self._jobs_due_s = ended + (ended - started) / JOBS_SHARE

    def _delays(self, now_s: float) -> Iterator[Metric]:
        paths = self._sources.state.owd.snapshot(now_s)
        for statistic in ("min", "p50", "p99"):
            both = [paths.delays[f"{way}_{statistic}_ns"] for way in ("fwd", "rev")]
            text = f"One-way delay, {statistic} of a path over its window, over paths."
            yield quantiles(f"cwdp_owd_{statistic}_seconds", text, np.concatenate(both) * NS)

    def _fleet(self) -> Iterator[Metric]:
        watch = self._sources.loop_watch
        yield gauge("cwdp_manager_loop_lag_seconds", "The latest that the loop came.", watch.worst_s)
        backlog = self._sources.backlog
        yield gauge(
            "cwdp_manager_backlog_seconds",
            "The longest that what hosts told waited to be read.",
            0.0 if backlog is None else backlog.worst_s,
        )
        interval_s = self._sources.state.pace.interval_s
        yield gauge("cwdp_manager_report_interval_seconds", "From one report to the next.", interval_s)
        duties = self._sources.duties.seconds
        yield counters("cwdp_manager_duty_seconds", "Processor time by duty.", "duty", duties)
        yield counter("cwdp_manager_loop_late_seconds", "By how much it came late, in all.", watch.late_s)
        state = self._sources.state
        yield gauge("cwdp_manager_probed_pairs", "Pairs of NICs that probe each other.", state.probed_pairs)
        hellos = {reason: state.hellos[reason] for reason in HELLO_REASONS}
        yield counters("cwdp_manager_hellos", "Agents' hellos by outcome.", "reason", hellos)
        reports = {reason: state.reports[reason] for reason in REPORT_REASONS}
        yield counters("cwdp_manager_reports", "Agents' reports by outcome.", "reason", reports)
        yield counters(
            "cwdp_collective_reports",
            "Agents' reports of collectives by outcome.",
            "reason",
            state.collectives.reports,
        )
        windows = {reason: state.watch.reports[reason] for reason in WINDOW_REPORT_REASONS}
        yield counters(
            "cwdp_manager_window_reports",
            "Agents' reports of windows of probes by outcome.",
            "reason",
            windows,
        )
        rows = {reason: state.watch.windows.reports[reason] for reason in WINDOW_ROW_REASONS}
        yield counters("cwdp_manager_window_rows", "Rows of those by outcome.", "reason", rows)
        refused = {kind: state.namesakes.refused[kind] for kind in KINDS}
        yield counters(
            "cwdp_manager_messages_refused", "Messages of second agents with one name.", "kind", refused
        )
        turned_away = {reason: self._sources.refusals.counts[reason] for reason in REFUSAL_REASONS}
        yield counters(
            "cwdp_manager_callers_refused", "Requests refused for who asks.", "reason", turned_away
        )
        sharing = self._sources.sharing
        told = dict.fromkeys(SHARING_REASONS, 0) if sharing is None else sharing.reports
        yield counters(
            "cwdp_manager_pod_messages", "What leaders say of links that pods share.", "reason", told
        )
        together = self._sources.together
        told = dict.fromkeys(EVIDENCE_REASONS, 0) if together is None else together.inbox.reports
        yield counters("cwdp_manager_pod_evidence", "Leaders' sums of lost probes.", "reason", told)
        told = dict.fromkeys(FINDINGS_REASONS, 0) if together is None else together.board.reports
        yield counters("cwdp_manager_pod_findings", "What leaders know to be at fault.", "reason", told)
        elsewhere, directory = self._sources.state.members.elsewhere, self._sources.directory
        hosts = {reason: elsewhere.told[reason] for reason in POD_HOSTS_REASONS}
        yield counters("cwdp_manager_pod_hosts", "What leaders say of their pods' hosts.", "reason", hosts)
        traces = dict.fromkeys(PASSED_ON_REASONS, 0) if directory is None else directory.traces
        yield counters("cwdp_manager_pod_traces", "Traces of other pods' hosts, passed on.", "reason", traces)
        yield gauge(
            "cwdp_manager_pod_timelines",
            "Other pods' timelines of which it is known how far they are.",
            len(elsewhere.apart),
        )

    def _bus(self) -> Iterator[Metric]:
        bus, server = self._sources.bus, self._sources.server
        yield gauge("cwdp_bus_connected", "Whether the bus is connected.", bus.connected)
        yield counters(
            "cwdp_bus_messages", "Messages and errors of the bus by outcome.", "reason", bus.counters
        )
        documents = bus.documents
        yield gauge("cwdp_bus_documents_unwritten", "Hosts' documents not on the bus.", documents.unwritten)
        yield gauge(
            "cwdp_bus_documents_unwritten_seconds", "Since when the oldest is not.", documents.oldest_s()
        )
        written = {outcome: documents.counters[outcome] for outcome in DOCUMENT_COUNTERS}
        yield counters("cwdp_bus_documents", "Writes of hosts' documents.", "outcome", written)
        restarts = 0 if server is None else server.restarts
        yield counter("cwdp_bus_server_restarts", "Restarts of the private nats-server.", restarts)

    def _clock(self) -> Iterator[Metric]:
        clock, solves = self._sources.state.clock, self._sources.solves
        unmeasured = len(self._sources.state.members.hosts.keys() - clock.fits.slots.keys())
        states = {**clock.states()}
        states["unsynced"] += unmeasured
        yield gauges("cwdp_clock_hosts", "Hosts by the state of their clock.", "state", states)
        used, rejected = clock.edge_counts()
        edges = {"used": used, "rejected": rejected}
        yield gauges("cwdp_clock_edges", "Fits of the last solution, believed or not.", "state", edges)
        refused = {reason: clock.fits.refused[reason] for reason in REFUSALS}
        yield counters("cwdp_clock_fits_refused", "Fits that were not taken, by reason.", "reason", refused)
        bounds_s = clock.bounds_ns(time.monotonic()) * NS
        yield quantiles("cwdp_clock_bound_seconds", "Error bound of the clocks, over hosts.", bounds_s)
        yield from self._changing_clocks()
        outcomes = {"solved": solves.useful, "no_valid_fit": solves.useless}
        yield counters("cwdp_clock_solves", "Solutions of the clock graph by outcome.", "outcome", outcomes)
        yield counter("cwdp_clock_solve_seconds", "Time spent on solving.", solves.total_s)
        yield gauge("cwdp_clock_last_solve_seconds", "Time spent on the last solution.", solves.last_s)

    def _changing_clocks(self) -> Iterator[Metric]:
        events = self._sources.state.clock_events
        yield counter("cwdp_clock_changes", "Unannounced changes of clocks found.", events.changes)
        yield gauge("cwdp_clock_changing", "Hosts whose clocks are being found anew.", events.changing)
        allowance_s = self._sources.state.clock.allowance_ns * NS
        yield gauge("cwdp_clock_allowance_seconds", "What bounds hold for what is not seen yet.", allowance_s)
        by_source = events.disciplines.sources()
        yield gauges(
            "cwdp_clock_discipline_hosts", "Hosts by where their discipline is read.", "source", by_source
        )

    def _owd(self) -> Iterator[Metric]:
        owd = self._sources.state.owd
        yield gauge("cwdp_owd_paths", "Paths that are reported.", len(owd))
        outcomes = {"answered": owd.totals["sent"] - owd.totals["lost"], "lost": owd.totals["lost"]}
        yield counters("cwdp_owd_probes", "Probes by outcome.", "outcome", outcomes)
        yield counter(
            "cwdp_owd_queued_pairs", "Pairs whose spacing changed on the way.", owd.totals["queued"]
        )

    def _traffic(self) -> Iterator[Metric]:
        traffic = self._sources.state.traffic
        totals = traffic.queue_pairs.totals
        for name, (metric, text) in QP_METRICS.items():
            both = {direction: totals[name, direction] for direction in DIRECTIONS}
            yield counters(metric, text, "direction", both)
        naks = {kind: sum(totals[f"nak_{kind}", direction] for direction in DIRECTIONS) for kind in NAK_KINDS}
        yield counters("cwdp_qp_naks", "NAKs that left or came, by kind.", "kind", naks)
        outcomes = traffic.delays.outcomes
        yield counters("cwdp_qp_samples", "Stamps of data packets by outcome.", "outcome", outcomes)
        reports = {reason: traffic.reports[reason] for reason in TRAFFIC_REASONS}
        yield counters("cwdp_qp_reports", "Agents' reports of queue pairs by outcome.", "reason", reports)
        yield from tcp_metrics(traffic.tcp, self._sources.state.planner.steered_tcp)

    def _fabric(self) -> Iterator[Metric]:
        discovery = self._sources.state.discovery
        fabric = discovery.fabric
        yield gauge("cwdp_fabric_hosts_set_aside", "Hosts not believed in paths.", len(fabric.aside))
        reasons = {reason: fabric.store.reasons[reason] for reason in TRACE_REASONS}
        yield counters("cwdp_fabric_traces", "Paths that agents told of by outcome.", "reason", reasons)
        dropped = discovery.dropped
        yield counter("cwdp_fabric_reports_dropped", "Reports of paths that came too fast.", dropped)
        text = "Growth of InfiniBand ports' counters that was not taken in."
        yield counters("cwdp_ib_growth_refused", text, "reason", self._sources.state.subnet_faults.refused)
        by_lids = self._sources.state.ib_spreads
        text = "Pairs of InfiniBand ports whose new connections were spread anew, or not."
        yield counters("cwdp_ib_spreads", text, "reason", by_lids.counters)
        text = "InfiniBand ports that nothing is planned for."
        yield gauges("cwdp_ib_ports_without_spreads", text, "reason", by_lids.ports.unusable)
        migrations = self._sources.state.migrations
        text = "Attempts to have connections over InfiniBand load or take another path, by outcome."
        yield counters("cwdp_ib_migrations", text, "outcome", migrations.outcomes)
        text = "Connections over InfiniBand that could migrate."
        yield gauges("cwdp_ib_connections", text, "state", migrations.states)

    def _flaps(self) -> Iterator[Metric]:
        total = self._sources.state.watch.faults.flaps.total
        yield counter("cwdp_flaps", "Times that something in the fabric went or came back.", total)

    def _planner(self) -> Iterator[Metric]:
        planner = self._sources.state.planner
        standing = planner.standing
        yield gauge("cwdp_manager_leads", "Whether this manager leads.", int(self._sources.state.leads))
        yield gauge(
            "cwdp_planner_steered_queue_pairs", "Queue pairs steered by the manager.", standing.steered
        )
        yield gauge("cwdp_planner_backed_up_queue_pairs", "Those of them with a backup.", standing.backed_up)
        yield gauge("cwdp_planner_fullest_link_ratio", "Wanted of the fullest link.", standing.fullest)
        yield gauge("cwdp_planner_dead_links", "Links that are gone round.", len(standing.dead))
        totals = {what: planner.counters[what] for what in PLANNER_COUNTERS}
        yield counters("cwdp_planner_queue_pairs", "What was done about queue pairs.", "what", totals)

    def _history(self) -> Iterator[Metric]:
        history = self._sources.history
        figures = Figures() if history is None else history.figures
        yield gauge("cwdp_history_stopped", "Whether history cannot be written now.", figures.stopped)
        yield counters("cwdp_history_records", "Records and messages by outcome.", "outcome", figures.records)
        yield gauges("cwdp_history_waiting", "What waits, by for what.", "store", figures.waiting)
        yield gauges("cwdp_history_bytes", "Size on disk.", "store", figures.size_bytes)
        no_room = figures.names_without_room
        yield gauge("cwdp_history_without_room", "Links and pairs of leaves without a ring.", no_room)

    def _counters(self) -> Iterator[Metric]:
        totals = self._sources.state.counters
        for area, (name, text) in AREAS.items():
            values = dict.fromkeys(BUS_COUNTERS if area == "bus" else (), 0)
            values |= {reason: value for (of, reason), value in totals.totals.items() if of == area}
            yield counters(name, text, "reason", values)
        yield counter("cwdp_manager_counters_dropped", "Reported counters not taken.", totals.dropped)
