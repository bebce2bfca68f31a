"""The agent: everything that runs on a host, held together by one event loop.

Packets keep flowing and clocks keep going without it: it can be killed and started again at any time.
"""

import asyncio
import contextlib
import logging
import math
import signal
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

import cwdp
from cwdp.agent.auditing.audits import Audits
from cwdp.agent.bounds import Bounds
from cwdp.agent.clock.hostclock import HostClock, LocalClock
from cwdp.agent.clock.hostsync import HostSync
from cwdp.agent.clock.window import weigh
from cwdp.agent.collectives.keeper import HostCollectives
from cwdp.agent.config import AgentConfig
from cwdp.agent.events import Events, Troubles
from cwdp.agent.fence import Fence
from cwdp.agent.goback.keeper import GoBackKeeper
from cwdp.agent.helper import Helper
from cwdp.agent.hostbus import HostBus, first_keys
from cwdp.agent.ib.keeper import HostIb
from cwdp.agent.links import LinkTable
from cwdp.agent.liveness.keeper import PulseKeeper
from cwdp.agent.liveness.nicwatch import NicWatch
from cwdp.agent.nic import HostNic
from cwdp.agent.pace import COUNTERS_EVERY, Pace
from cwdp.agent.pacing.keeper import CongestionKeeper
from cwdp.agent.probing.pathstats import path_stats
from cwdp.agent.probing.prober import ProbeResults
from cwdp.agent.probing.windows import WindowReports
from cwdp.agent.programs.waits import processor_waits_ns
from cwdp.agent.queuepairs import traffic_reports
from cwdp.agent.steering.detours import DesiredDetours
from cwdp.agent.steering.slicing import DesiredSlices, share_unused
from cwdp.agent.steering.steered import steer_reports
from cwdp.agent.steering.steering import DesiredSteering
from cwdp.agent.tcp.keeper import HostTcp
from cwdp.agent.tracing.echo_tests import EchoTests
from cwdp.agent.tracing.tracer import Tracing
from cwdp.agent.ud.nic import UdNic
from cwdp.agent.uprobes.keeper import HostUprobes
from cwdp.agent.verbs.hostverbs import HostVerbs
from cwdp.congestion import interface
from cwdp.dataplane.loading import loader
from cwdp.dataplane.loading.loader import Loaded
from cwdp.errors import ConfigError, DataplaneError, RdmaError
from cwdp.shared.bus import messages
from cwdp.shared.bus.edges import PathStat, fit_rows, path_rows
from cwdp.shared.bus.messages import (
    DEFAULT_REPORT_INTERVAL_S,
    BounceOrder,
    ClockUpdate,
    Desired,
    EventName,
    Hello,
    ProbeEdge,
    Report,
)
from cwdp.shared.bus.servers import server_urls
from cwdp.shared.bus.subjects import token
from cwdp.shared.identity.credential import Credential, load_own
from cwdp.shared.identity.probe_keys import KeyFile, read_keys
from cwdp.shared.loopwatch import LoopWatch
from cwdp.shared.service import collect_in_full, notify
from cwdp.shared.tasks import every, first_end

SEND_INTERVAL_S = 0.02
DECISIONS_INTERVAL_S = 0.05
LOOK_INTERVAL_S, MEASURE_EVERY = 0.125, 2
FITS_S, FULL_S, NEW_EDGES_S = 0.5, 1.0, 10.0
"""Between two reports with fits, and two with paths; edges that changed of late are in each report."""

ENSURE_INTERVAL_S, STEERED_INTERVAL_S = 1.0, 1.0

_log = logging.getLogger("cwdp.agent")


class Agent:
    """The service of one host.

    Args:
        config: its settings.
        keys: the cluster's keys; the file is read again when it changes.
        credential: who this host is on the bus.
    """

    def __init__(self, config: AgentConfig, keys: KeyFile, credential: Credential) -> None:
        self._config, self._keys = config, keys
        self._bus = HostBus(config, credential, self._bus_changed)
        self._tag = loader.object_tag()
        self._counters: Counter[str] = Counter(dataplane_failed=0, keys_unreadable=0)
        self._troubles = Troubles()
        self._links = LinkTable(self._link_changed)
        settings = config.settings()
        self._clock = LocalClock(settings)
        self._events = Events(config.host, self._clock.now_ns, lambda event: self._bus.say("event", event))
        self._event, self._loop_watch = self._events.tell, LoopWatch()
        self._sync = HostSync(HostClock(self._clock, self._bus.boot_id), self._clock.now_ns)
        self._xdp = [HostNic(config, ifname, settings, self._links) for ifname in config.xdp_nics]
        self._ud = [
            UdNic(config.host, ifname, interface, config.test_clock, clock=self._clock, links=self._links)
            for ifname, interface in config.ud_nics.items()
        ]
        self._ib = HostIb(config, self._bus.say, self._event)
        self._uprobes, self._tcp = HostUprobes(config), HostTcp(config, self._links)
        self._verbs = HostVerbs(self._bus, config, self._ud, self._uprobes)
        self._collectives = HostCollectives(
            config, self._clock.now_ns, self._sync.line.offset_ns, self._uprobes.take_calls
        )
        nics: list[HostNic | UdNic] = [*self._xdp, *self._ud]
        self._nics = sorted(nics, key=lambda nic: config.nics.index(nic.ifname))
        self._pulses = PulseKeeper(config.pulse_interval_ms)
        self._go_back = GoBackKeeper(config.pulse_interval_ms)
        self._congestion = CongestionKeeper(lambda told: self._event(told.kind, told.ifname, told.detail))
        self._helpers: list[Helper[Any]] = [
            self._pulses,
            *([self._congestion] if config.pacing else []),
            *([self._go_back] if config.goes_back else []),
        ]
        self._steering = DesiredSteering(config.xdp_nics, lambda *what: self._event("steer_refused", *what))
        self._slices = DesiredSlices(
            config.xdp_nics, lambda ifname, detail: self._event("slice_refused", ifname, detail)
        )
        partners = config.partners()
        self._detours = DesiredDetours(
            config.xdp_nics, partners, self._links, lambda *what: self._event("detour_refused", *what)
        )
        self._nic_watch = NicWatch(partners)
        host, ifnames = config.host, config.nics
        self._tracing = Tracing(host, ifnames, self._links, settings.probe_port, self._clock.now_ns)
        self._echo_tests = EchoTests(host, ifnames, lambda report: self._bus.say("bounced", report))
        self._audits = Audits(config, self._bus, self._links, self._steering, self._xdp)
        self._fence, self._bounds = Fence(on_leader=self._tell_steering), Bounds(self._event)
        self._probes: list[ProbeEdge] = []
        self._probes_came_s = -math.inf
        self._results: dict[str, list[ProbeResults]] = {nic.ifname: [] for nic in self._nics}
        self._carrier: dict[str, bool] = {}
        self._pace, self._windows = Pace(DEFAULT_REPORT_INTERVAL_S), WindowReports(config.host)
        self._desired_version = self._desired_epoch = self._looks = self._report_seq = self._steering_told = 0
        self._bus.watch(self._take_desired)
        self._bus.hear("clock", ClockUpdate, self._take_clock)
        self._bus.hear("bounce", BounceOrder, self._echo_tests.order)

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            DataplaneError: the dataplane cannot be loaded on a NIC that is there.
            RdmaError: a NIC's RDMA device cannot be used.
            ConfigError: a NIC's RDMA device has no such port or GID.
        """
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        for ud in self._ud:
            ud.require()
        found = [(nic, loaded) for nic in self._xdp if (loaded := nic.ensure(self._keys))]
        self._clock.take_up(nic.maps for nic, _ in found if nic.maps)
        for nic, loaded in found:
            self._loaded(nic, loaded)
        self._bus.start()
        self._event("agent_started", None, cwdp.__version__)
        notify("READY=1")
        _log.info("running host=%s nics=%s", self._config.host, ",".join(self._config.nics))
        try:
            await first_end(stop.wait(), collect_in_full(), *self._jobs())
        finally:
            notify("STOPPING=1")
            await self._bus.close()
            for nic in self._xdp:
                nic.close()

    def _jobs(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._loop_watch.run(),
            self._bus.ended(),
            self._bus.keep_credential(),
            self._bus.keep_keys(lambda: self._keys),
            self._links.follow(),
            *(helper.run() for helper in self._helpers if self._xdp),
            *(ud.keeper.run() for ud in self._ud),
            *self._uprobes.jobs(),
            *self._verbs.jobs(),
            *self._tcp.jobs(),
            *self._ib.jobs(),
            *self._collectives.jobs(),
            self._steering.follow(),
            self._tracing.run(),
            self._audits.run(),
            self._slices.follow(),
            self._detours.follow(),
            every(SEND_INTERVAL_S, self._send, jitter=0.5),
            share_unused(self._xdp),
            every(DECISIONS_INTERVAL_S, self._tell_decisions),
            every(LOOK_INTERVAL_S, self._look),
            every(messages.HELLO_INTERVAL_S, self._say_hello),
            every(STEERED_INTERVAL_S, self._tell_steering),
            every(ENSURE_INTERVAL_S, self._look_after),
        ]

    def _send(self) -> None:
        self._look_at_clock()
        for nic in self._xdp:
            nic.send(time.monotonic_ns())

    def _look_at_clock(self) -> None:
        """Keep local time free of what disciplines CLOCK_MONOTONIC."""
        change = self._clock.look()
        if self._clock.has_moved():
            self._clock.write(nic.maps for nic in self._xdp if nic.maps)
        if change is not None:  # stamps are right again from now on
            self._sync.distrust(change.from_local_ns, max(change.to_local_ns, self._clock.now_ns()))

    def _look(self) -> None:
        """Drain, see whether clocks have changed, and measure: every other time, at once if they have."""
        now_ns = time.monotonic_ns()
        for nic in self._nics:
            results = nic.drain(now_ns)
            if results is not None and nic.schedule is not None:
                slots = self._sync.edges.slots([(e.src, e.dst) for e in nic.edges])
                self._sync.add(now_ns, weigh(results, slots[nic.schedule.edge]))
                self._results[nic.ifname].append(results)
                nic.add_windows(results, self._sync.line.offset_ns())
        if self._pace.is_due("windows", parts=2):
            self._tell_windows()
        changing = self._sync.look(now_ns)
        self._looks += 1
        if changing or self._looks % MEASURE_EVERY == 0:
            self._measure(now_ns, changing=changing)

    def _measure(self, now_ns: int, *, changing: bool) -> None:
        """Move the clock on, and report what is due."""
        self._write_clock()
        clock = self._sync.line.report()
        for ud in self._ud:
            ud.follow(clock)
        self._verbs.watch_paths()
        self._watch_nics()
        if not (self._pace.is_due("report") or changing):
            return
        calm = not changing and time.monotonic() - self._probes_came_s > NEW_EDGES_S
        fits = self._sync.fits() if self._pace.is_due("fits", FITS_S) or not calm else []
        in_full = self._pace.is_due("in full", FULL_S)
        counts = self._pace.is_due("counters", COUNTERS_EVERY * self._pace.interval_s)
        report = Report(
            host=self._config.host,
            seq=self._report_seq,
            local_ns=self._clock.now_ns(),
            fits=fit_rows(fits),
            paths=path_rows(self._path_stats() if in_full else []),
            counters=self._totals() if counts else {},
            clock=clock,
            own_change=self._sync.own_change(now_ns),
            discipline=self._clock.discipline() if in_full else None,
            processor_waits_ns=processor_waits_ns(),
        )
        self._report_seq += 1
        self._bus.say("report", report)
        self._tell_of_traffic()

    def _tell_windows(self) -> None:
        """What became of probes in the windows that are over."""
        now_ns, offset_ns, sums = self._clock.now_ns(), self._sync.line.offset_ns(), self._pace.tells_sums
        taken = [(nic.ifname, nic.take_windows(now_ns, offset_ns, sums=sums)) for nic in self._nics]
        for report in self._windows.of(taken):
            self._bus.say("window", report)

    def _tell_of_traffic(self) -> None:
        """What the dataplane stamped and counted, and the hops of paths that are news."""
        for traced in self._tracing.reports():
            self._bus.say("trace", traced)
        read = [(nic.queue_pairs, self._congestion.paced(nic.ifname)) for nic in self._xdp if nic.queue_pairs]
        for kind, told in traffic_reports(self._config.host, self._clock.now_ns(), read, self._verbs.parts()):
            self._bus.say(kind, told)
        self._tcp.tell(self._bus.say)
        self._collectives.tell(self._bus.say)

    def _tell_decisions(self) -> None:
        """What the dataplane decided: at once, as the manager re-plans by it."""
        for nic in self._xdp:
            events = nic.path_events()
            self._tracing.hear_events(events)
            for event in events:
                self._events.say(event)
        self._verbs.tell_events(self._events.say, self._clock.now_ns())

    def _watch_nics(self) -> None:
        """Say which NICs have failed, and which are well again."""
        maps = {nic.ifname: nic.maps for nic in self._xdp if nic.maps}
        told = self._nic_watch.look(
            {ifname: found.paths for ifname, found in maps.items()},
            {nic.ifname: self._links.carrier(nic.ifname) for nic in self._xdp},
            self._clock.now_ns(),
            max((int(found.control["dead_after_ns"][0]) for found in maps.values()), default=0),
        )
        for ifname, kind, detail in told:
            self._event(kind, ifname, detail)

    def _tell_steering(self) -> None:
        self._steering_told, now_ns = self._steering_told + 1, self._clock.now_ns()
        maps, host = {nic.ifname: nic.maps for nic in self._xdp if nic.maps}, self._config.host
        for report in steer_reports(host, self._steering_told, maps, now_ns, self._verbs.steered()):
            self._bus.say("steer", report)
        self._verbs.tell(self._bus.say)

    def _path_stats(self) -> list[PathStat]:
        stats: list[PathStat] = []
        for nic in self._nics:
            if nic.schedule is not None:
                stats += path_stats(nic.schedule.paths, self._results[nic.ifname])
            self._results[nic.ifname] = []
        self._tracing.hear_stats(stats, self._probes)
        return stats

    def _totals(self) -> dict[str, int]:
        totals = {f"agent.{name}": n for name, n in self._counters.items()}
        totals["agent.loop_late_ms"] = round(1e3 * self._loop_watch.late_s)
        parts = [helper.counters for helper in self._helpers]
        parts += [self._verbs.counters, self._tcp.counters, self._collectives.counters]
        parts += [self._uprobes.counters, self._ib.counters]
        parts += [self._steering.counters, self._slices.counters, self._detours.counters]
        parts += [self._tracing.counters, self._echo_tests.counters, self._audits.counters]
        parts += [self._fence.counters, self._bounds.counters]
        for counters in parts:
            totals |= {f"agent.{name}": n for name, n in counters.items()}
        totals |= {f"bus.{name}": n for name, n in self._bus.counters.items()}
        for nic in self._nics:
            totals |= nic.totals()
        return totals

    def _take_desired(self, desired: Desired) -> None:
        if not (self._bounds.admits_document(desired) and self._fence.admits_document(desired)):
            return
        self._desired_version = desired.version
        if self._config.observe_only:
            desired = msgspec.structs.replace(desired, steer=[], slices=[], detours=[], tcp=[])
        self._steering.want(desired.steer, desired.roce, desired.tcp)
        self._verbs.want(desired)
        self._slices.want(desired.slices)
        self._detours.want(desired.detours)
        self._tracing.order(desired.traces, desired.tcp_traces)
        self._pace.interval_s = desired.report_interval_s
        if desired.epoch != self._desired_epoch:
            self._desired_epoch = desired.epoch
            self._tracing.tell_all()
        counts = desired.version, len(desired.probes), len(desired.steer)
        _log.info("new desired state version=%d edges=%d steered=%d", *counts)
        if desired.probes == self._probes:
            return
        self._probes, self._probes_came_s = desired.probes, time.monotonic()
        self._sync.edges.assign([(edge.src, edge.dst) for edge in desired.probes])
        for nic in self._nics:
            mine = [edge for edge in desired.probes if edge.src == nic.name]
            self._results[nic.ifname] = []
            nic.probe(mine, self._keys.send)

    def _take_clock(self, update: ClockUpdate) -> None:
        self._look_at_clock()
        if self._bounds.admits_clock(update) and self._fence.admits_clock(update):
            self._sync.follow(update)
            self._write_clock()

    def _write_clock(self) -> None:
        self._sync.line.write([nic.maps for nic in self._xdp if nic.maps])

    def _look_after(self) -> None:
        self._reread_keys()
        self._bus.reread_credential()
        if refused := self._fence.again():
            self._take_desired(refused)
        for nic in self._xdp:
            try:
                if loaded := nic.ensure(self._keys):
                    self._loaded(nic, loaded)
            except DataplaneError as error:
                self._counters["dataplane_failed"] += 1
                if self._troubles.is_news(nic.ifname, error.message):
                    self._event("dataplane_failed", nic.ifname, error.message)
        for ud in self._ud:
            self._ensure_ud(ud)
        self._order_helpers()

    def _order_helpers(self) -> None:
        self._tcp.order(self._pace.interval_s)
        self._pulses.order(self._xdp, self._keys.send, self._tracing)
        self._go_back.order([told for nic in self._xdp if (told := nic.go_back_order())])
        if pacing := self._config.pacing:
            self._congestion.order([paced for nic in self._xdp if (paced := nic.congestion_order(pacing))])

    def _loaded(self, nic: HostNic, loaded: Loaded) -> None:
        """A NIC's dataplane has just been found, loaded or put right."""
        if nic.maps is None:
            return
        self._troubles.end(nic.ifname)
        self._look_at_clock()
        self._clock.write([nic.maps])
        self._sync.line.take_up(nic.maps)
        for wanted in (self._steering, self._slices, self._detours):
            wanted.loaded(nic.ifname)
        if not self._config.pacing:
            interface.clear(nic.ifname)
        kind: EventName = "dataplane_repaired" if loaded.repaired else "dataplane_loaded"
        self._event(kind, nic.ifname, ", ".join(loaded.repaired) or self._tag)

    def _ensure_ud(self, nic: UdNic) -> None:
        try:
            if not nic.ensure(self._keys):
                return
        except (ConfigError, RdmaError) as error:
            nic.counters["unusable"] += 1
            if self._troubles.is_news(nic.ifname, error.message):
                self._event("rdma_failed", nic.ifname, error.message)
                self._say_hello()
            return
        self._troubles.end(nic.ifname)
        self._event("rdma_opened", nic.ifname, str(nic.port))
        self._say_hello()

    def _reread_keys(self) -> None:
        try:
            keys = read_keys(Path(self._config.keys))
        except ConfigError as error:
            self._counters["keys_unreadable"] += 1
            if self._troubles.is_news("keys", error.message):
                _log.warning("going on with the keys of before error=%s", error.message)
            return
        self._troubles.end("keys")
        if keys == self._keys:
            return
        self._keys = keys
        for nic in self._nics:
            nic.use_keys(keys)
        self._event("keys_changed", None, f"signing with key {keys.send}")
        self._say_hello()

    def _link_changed(self, ifname: str) -> None:
        if ifname not in self._config.nics:
            return
        carrier = self._links.carrier(ifname)
        if self._carrier.get(ifname) not in (None, carrier):
            self._event("link_up" if carrier else "link_down", ifname, "carrier")
        self._carrier[ifname] = carrier
        if ifname not in self._config.ud_nics:
            self._detours.loaded(ifname)
        self._tracing.readdress()
        self._order_helpers()
        if self._report_seq:
            self._say_hello()

    def _say_hello(self) -> None:
        hello = Hello(
            host=self._config.host,
            boot_id=self._bus.boot_id,
            version=cwdp.__version__,
            dataplane_tag=self._tag,
            nics=[nic.describe() for nic in self._nics],
            desired_version=self._desired_version,
            key_ids=sorted(self._keys.secrets()),
            observe_only=self._config.observe_only,
            reads_changes=True,
            verbs=self._verbs.is_running,
            ib_ports=self._verbs.ib_ports,
        )
        self._bus.say_hello(hello)

    def _bus_changed(self, connected: bool) -> None:
        """Make up at once for what could not be said."""
        if connected:
            self._say_hello()
            self._tell_steering()
            self._ib.tell_again()
        self._tracing.tell_all()
        self._events.make_up()


def run(config: AgentConfig) -> None:
    """Run the agent of this host until it is told to stop.

    Raises:
        CwdpError: it cannot start.
    """
    server_urls(config.nats)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(config, load_own(Path(config.credential), token(config.host))))


async def _serve(config: AgentConfig, credential: Credential) -> None:
    keys = await first_keys(config, credential)
    await Agent(config, keys, credential).run()
