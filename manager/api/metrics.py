"""Prometheus metrics, collected when they are asked for; labels come from small fixed sets."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cwdp import __version__
from cwdp.shared.bus.connection import COUNTERS as BUS_COUNTERS
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.documents import COUNTERS as DOCUMENT_COUNTERS
from cwdp.shared.bus.records import DIRECTIONS, NAK_KINDS
from cwdp.shared.loopwatch import LoopWatch
from manager.bus.lease import Lease
from manager.bus.nats_server import NatsServer
from manager.clock.fits import REFUSALS
from manager.fabric.traces import REASONS as TRACE_REASONS
from manager.history.figures import Figures
from manager.history.service import History
from manager.hosts.members import HostState, Reason
from manager.hosts.namesakes import KINDS
from manager.paths.owd import Paths
from manager.planner.planner import COUNTERS as PLANNER_COUNTERS
from manager.queue_pairs.traffic import REPORT_REASONS as TRAFFIC_REASONS
from manager.state import HELLO_REASONS, REPORT_REASONS, FleetState

NS = 1e-9
QUANTILES = (0.5, 0.99, 1.0)
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

    lease: Lease

    state: FleetState
    bus: Bus
    server: NatsServer | None
    solves: SolveTimes = field(default_factory=SolveTimes)
    loop_watch: LoopWatch = field(default_factory=LoopWatch)
    history: History | None = None


class FleetCollector(Collector):
    """All of the manager's metrics; it also says whether it succeeded and how long it took.

    `paths` is to be set before each collection, as a snapshot of a large store is taken in a thread.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.paths: Paths | None = None

    def collect(self) -> Iterator[Metric]:
        """Every metric; if one part fails, the rest of that collection is left out and success is 0."""
        started, success = time.monotonic(), 1.0
        try:
            yield from self._metrics()
        except Exception:  # noqa: BLE001 - a scrape must answer, and says that it is incomplete
            _log.exception("collecting metrics failed")
            success = 0.0
        yield _gauge("cwdp_collector_success", "Whether the last collection was complete.", success)
        took_s = time.monotonic() - started
        yield _gauge("cwdp_collector_duration_seconds", "How long the last collection took.", took_s)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect to know."""
        return []

    def _metrics(self) -> Iterator[Metric]:
        yield _gauge("cwdp_build_info", "The version, as a label.", 1, {"version": __version__})
        yield from self._fleet()
        yield from self._bus()
        yield from self._clock()
        yield from self._owd()
        yield from self._traffic()
        yield from self._fabric()
        yield from self._planner()
        yield from self._history()
        yield from self._counters()

    def _fleet(self) -> Iterator[Metric]:
        watch = self._sources.loop_watch
        yield _gauge("cwdp_manager_loop_lag_seconds", "The latest that the loop came.", watch.worst_s)
        yield _counter("cwdp_manager_loop_late_seconds", "By how much it came late, in all.", watch.late_s)
        state, now_s = self._sources.state, time.monotonic()
        hosts = dict.fromkeys(get_args(HostState), 0)
        nics = dict.fromkeys(get_args(Reason), 0)
        for host in state.members.hosts.values():
            hosts[host.state] += 1
            for nic in host.hello.nics:
                nics[state.members.reason(host, nic, now_s)] += 1
        yield _gauges("cwdp_manager_hosts", "Hosts by state.", "state", hosts)
        yield _gauges("cwdp_manager_nics", "NICs by whether, or why not, they are probed.", "reason", nics)
        yield _gauge("cwdp_manager_probed_pairs", "Pairs of NICs that probe each other.", state.probed_pairs)
        hellos = {reason: state.hellos[reason] for reason in HELLO_REASONS}
        yield _counters("cwdp_manager_hellos", "Agents' hellos by outcome.", "reason", hellos)
        reports = {reason: state.reports[reason] for reason in REPORT_REASONS}
        yield _counters("cwdp_manager_reports", "Agents' reports by outcome.", "reason", reports)
        refused = {kind: state.namesakes.refused[kind] for kind in KINDS}
        yield _counters(
            "cwdp_manager_messages_refused", "Messages of second agents with one name.", "kind", refused
        )

    def _bus(self) -> Iterator[Metric]:
        bus, server = self._sources.bus, self._sources.server
        yield _gauge("cwdp_bus_connected", "Whether the bus is connected.", bus.connected)
        yield _counters(
            "cwdp_bus_messages", "Messages and errors of the bus by outcome.", "reason", bus.counters
        )
        documents = bus.documents
        yield _gauge("cwdp_bus_documents_unwritten", "Hosts' documents not on the bus.", documents.unwritten)
        yield _gauge(
            "cwdp_bus_documents_unwritten_seconds", "Since when the oldest is not.", documents.oldest_s()
        )
        written = {outcome: documents.counters[outcome] for outcome in DOCUMENT_COUNTERS}
        yield _counters("cwdp_bus_documents", "Writes of hosts' documents.", "outcome", written)
        restarts = 0 if server is None else server.restarts
        yield _counter("cwdp_bus_server_restarts", "Restarts of the private nats-server.", restarts)

    def _clock(self) -> Iterator[Metric]:
        clock, solves = self._sources.state.clock, self._sources.solves
        unmeasured = len(self._sources.state.members.hosts.keys() - clock.fits.slots.keys())
        states = {**clock.states()}
        states["unsynced"] += unmeasured
        yield _gauges("cwdp_clock_hosts", "Hosts by the state of their clock.", "state", states)
        used, rejected = clock.edge_counts()
        edges = {"used": used, "rejected": rejected}
        yield _gauges("cwdp_clock_edges", "Fits of the last solution, believed or not.", "state", edges)
        refused = {reason: clock.fits.refused[reason] for reason in REFUSALS}
        yield _counters("cwdp_clock_fits_refused", "Fits that were not taken, by reason.", "reason", refused)
        bounds_s = clock.bounds_ns(time.monotonic()) * NS
        yield _quantiles("cwdp_clock_bound_seconds", "Error bound of the clocks, over hosts.", bounds_s)
        yield from self._changing_clocks()
        outcomes = {"solved": solves.useful, "no_valid_fit": solves.useless}
        yield _counters("cwdp_clock_solves", "Solutions of the clock graph by outcome.", "outcome", outcomes)
        yield _counter("cwdp_clock_solve_seconds", "Time spent on solving.", solves.total_s)
        yield _gauge("cwdp_clock_last_solve_seconds", "Time spent on the last solution.", solves.last_s)

    def _changing_clocks(self) -> Iterator[Metric]:
        events = self._sources.state.clock_events
        yield _counter("cwdp_clock_changes", "Unannounced changes of clocks found.", events.changes)
        yield _gauge("cwdp_clock_changing", "Hosts whose clocks are being found anew.", events.changing)
        allowance_s = self._sources.state.clock.allowance_ns * NS
        yield _gauge(
            "cwdp_clock_allowance_seconds", "What bounds hold for what is not seen yet.", allowance_s
        )
        by_source = events.disciplines.sources()
        yield _gauges(
            "cwdp_clock_discipline_hosts", "Hosts by where their discipline is read.", "source", by_source
        )

    def _owd(self) -> Iterator[Metric]:
        owd = self._sources.state.owd
        yield _gauge("cwdp_owd_paths", "Paths that are reported.", len(owd))
        outcomes = {"answered": owd.totals["sent"] - owd.totals["lost"], "lost": owd.totals["lost"]}
        yield _counters("cwdp_owd_probes", "Probes by outcome.", "outcome", outcomes)
        yield _counter(
            "cwdp_owd_queued_pairs", "Pairs whose spacing changed on the way.", owd.totals["queued"]
        )
        if self.paths is None:
            return
        for statistic in ("min", "p50", "p99"):
            both = [self.paths.delays[f"{way}_{statistic}_ns"] for way in ("fwd", "rev")]
            values = np.concatenate(both) * NS
            name = f"cwdp_owd_{statistic}_seconds"
            yield _quantiles(
                name, f"One-way delay, {statistic} of a path over its window, over paths.", values
            )

    def _traffic(self) -> Iterator[Metric]:
        traffic = self._sources.state.traffic
        totals = traffic.queue_pairs.totals
        count = traffic.queue_pairs.count()
        yield _gauges("cwdp_qp_queue_pairs", "Queue pairs seen of late.", "direction", count)
        for name, (metric, text) in QP_METRICS.items():
            both = {direction: totals[name, direction] for direction in DIRECTIONS}
            yield _counters(metric, text, "direction", both)
        naks = {kind: sum(totals[f"nak_{kind}", direction] for direction in DIRECTIONS) for kind in NAK_KINDS}
        yield _counters("cwdp_qp_naks", "NAKs that left or came, by kind.", "kind", naks)
        outcomes = traffic.delays.outcomes
        yield _counters("cwdp_qp_samples", "Stamps of data packets by outcome.", "outcome", outcomes)
        reports = {reason: traffic.reports[reason] for reason in TRAFFIC_REASONS}
        yield _counters("cwdp_qp_reports", "Agents' reports of queue pairs by outcome.", "reason", reports)

    def _fabric(self) -> Iterator[Metric]:
        discovery = self._sources.state.discovery
        fabric = discovery.fabric
        yield _gauge("cwdp_fabric_paths", "Paths whose links are known.", len(fabric.routes.paths))
        yield _gauge("cwdp_fabric_hosts_set_aside", "Hosts not believed in paths.", len(fabric.aside))
        reasons = {reason: fabric.store.reasons[reason] for reason in TRACE_REASONS}
        yield _counters("cwdp_fabric_traces", "Paths that agents told of by outcome.", "reason", reasons)
        dropped = discovery.dropped
        yield _counter("cwdp_fabric_reports_dropped", "Reports of paths that came too fast.", dropped)

    def _planner(self) -> Iterator[Metric]:
        planner = self._sources.state.planner
        standing = planner.standing
        yield _gauge("cwdp_manager_leads", "Whether this manager leads.", int(self._sources.state.leads))
        yield _gauge(
            "cwdp_planner_steered_queue_pairs", "Queue pairs steered by the manager.", standing.steered
        )
        yield _gauge("cwdp_planner_backed_up_queue_pairs", "Those of them with a backup.", standing.backed_up)
        yield _gauge("cwdp_planner_fullest_link_ratio", "Wanted of the fullest link.", standing.fullest)
        yield _gauge("cwdp_planner_dead_links", "Links that are gone round.", len(standing.dead))
        totals = {what: planner.counters[what] for what in PLANNER_COUNTERS}
        yield _counters("cwdp_planner_queue_pairs", "What was done about queue pairs.", "what", totals)

    def _history(self) -> Iterator[Metric]:
        history = self._sources.history
        figures = Figures() if history is None else history.figures
        yield _gauge("cwdp_history_stopped", "Whether history cannot be written now.", figures.stopped)
        yield _counters(
            "cwdp_history_records", "Records and messages by outcome.", "outcome", figures.records
        )
        yield _gauges("cwdp_history_waiting", "What waits, by for what.", "store", figures.waiting)
        yield _gauges("cwdp_history_bytes", "Size on disk.", "store", figures.size_bytes)
        no_room = figures.names_without_room
        yield _gauge("cwdp_history_without_room", "Links and pairs of leaves without a ring.", no_room)

    def _counters(self) -> Iterator[Metric]:
        totals = self._sources.state.counters
        for area, (name, text) in AREAS.items():
            values = dict.fromkeys(BUS_COUNTERS if area == "bus" else (), 0)
            values |= {reason: value for (of, reason), value in totals.totals.items() if of == area}
            yield _counters(name, text, "reason", values)
        yield _counter("cwdp_manager_counters_dropped", "Reported counters not taken.", totals.dropped)


def _gauge(name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels or ()))
    family.add_metric(list((labels or {}).values()), value)
    return family


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _quantiles(name: str, text: str, values: np.typing.NDArray[np.float64]) -> Metric:
    known = values[np.isfinite(values)]
    family = GaugeMetricFamily(name, text, labels=["quantile"])
    for quantile in QUANTILES if known.size else ():
        family.add_metric([str(quantile)], float(np.quantile(known, quantile)))
    return family
