"""The manager service: bus, clocks, probe graph and HTTP held together by a few loops."""

import asyncio
import contextlib
import logging
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from cwdp import __version__
from cwdp.errors import BusError
from cwdp.shared.bursts import BurstReport
from cwdp.shared.bus.audits import AuditReport, FlowReport
from cwdp.shared.bus.buckets import stream_of
from cwdp.shared.bus.collectives import CollectiveReport
from cwdp.shared.bus.messages import (
    DESIRED_BUCKET,
    BounceReport,
    Desired,
    Event,
    FromAgent,
    Hello,
    QpReport,
    Report,
    SampleReport,
    SteerReport,
    TraceReport,
    WindowReport,
)
from cwdp.shared.bus.servers import server_urls
from cwdp.shared.bus.subjects import down, up
from cwdp.shared.connections import TcpReport
from cwdp.shared.loopwatch import LoopWatch
from cwdp.shared.service import collect_little, notify
from cwdp.shared.tasks import first_end
from cwdp.shared.verbs import VerbsReport
from manager.access import http as access_http
from manager.access.callers import Callers
from manager.access.grants import Grants
from manager.access.listeners import listeners
from manager.analysis import Analysis
from manager.api import credentials_http, overrides_http
from manager.api.audit.audit_http import AuditHttp
from manager.api.http import HttpServer
from manager.api.metrics import SolveTimes, Sources
from manager.audit.service.service import Audits
from manager.audit.sharing.store import BUCKET as AUDITS
from manager.bus.backlog import Backlog
from manager.bus.connection import manager_bus, manager_buses
from manager.bus.copies import Copies
from manager.bus.flood_watch import name_floods
from manager.bus.floods import Floods
from manager.bus.lease import Claim
from manager.bus.lease_thread import LeaseThread
from manager.bus.nats_server import NatsServer
from manager.bus.pods import bucket_of
from manager.bus.state import BUCKET as WISHES
from manager.bus.state import BusState
from manager.bus.state_lock import StateLock
from manager.clock.timeline import load_identity
from manager.config import ManagerConfig, host_port
from manager.duties import Duties
from manager.history.service import History
from manager.history.stream import STREAM
from manager.identity.authority import Authority
from manager.identity.probe_keys import ProbeKeys
from manager.identity.registry import BUCKET as CREDENTIALS
from manager.identity.service import Credentials
from manager.neighbours import Neighbours
from manager.overrides.tables import Overrides
from manager.page.server import Page
from manager.planner.events import FLEET
from manager.pods.fleet_watch import FleetWatch
from manager.pods.pods import Pods
from manager.pods.sharing import Sharing
from manager.probing.graph_timer import GraphTimer
from manager.probing.schedule import Member
from manager.state import FleetState
from manager.takeover import TakeOver

CLOCK_INTERVAL_S = 0.25
SOLVE_SHARE = 0.25
ACCESS, KEYS = "access", "keys"
FOLLOW_INTERVAL_S = 1.0
MEMBERS_INTERVAL_S = 0.1
MEMBERS_SHARE = 0.1
EXPIRE_INTERVAL_S = 1.0
STALL_S = 2.0
STANDS_S = 10.0
"""A manager whose loop stands still for so long leads no more."""

PLAN_GLANCE_S, PLAN_SHARE = 0.05, 0.25
THREAD_ABOVE_EDGES, THREAD_ABOVE_NICS = 10_000, 1_000

PLAN, GRAPH = "plan", "probe graph"

STREAMS = tuple(stream_of(bucket) for bucket in (WISHES, DESIRED_BUCKET, CREDENTIALS))
"""What is kept on the bus for all pods together."""

_T = TypeVar("_T", bound=FromAgent)
_log = logging.getLogger("cwdp.manager")


class Manager:
    """One manager; `run` returns when `stop` is called."""

    def __init__(self, config: ManagerConfig) -> None:
        if config.nats is not None:
            server_urls(config.nats)
        self.config, self.solves = config, SolveTimes()
        self.server: NatsServer | None = None
        self._state_dir = Path(config.state_dir)
        self._identity = self._state_dir / "timeline.json"
        identity, continued = load_identity(self._identity)
        self.state = FleetState(
            identity,
            config.probes,
            continued=continued,
            roce=config.roce,
            overrides=Overrides.kept_in(self._state_dir),
            planner=config.planner,
        )
        if config.nats is None:
            authority = Authority.load_or_new(config.authority_dir)
            where = host_port(config.bus_listen, "--bus-listen")
            self.server = NatsServer(*where, self._state_dir / "nats", authority)
        else:
            authority = Authority.load(config.authority_dir)
        url = config.nats if self.server is None else self.server.url
        assert url is not None
        self.loop_watch, self.duties, self._floods = LoopWatch(), Duties(), Floods()
        self.bus = manager_bus(
            url,
            authority,
            pod=config.pod,
            name="cwdp-manager",
            duties=self.duties,
            floods=self._floods,
            on_change=self._on_bus_change,
            confirm=self._confirm,
            on_trouble=self._note_unwritten,
            hears_much=True,
        )
        self.backlog = Backlog(self.bus)
        self.duties.waits_s = lambda: self.backlog.waits_s
        self.bus.documents.reads_changes = self.state.members.reads_changes
        self._listen, self._page = listeners(config, authority)
        self._authority = authority
        self.grants = Grants(self._state_dir / "access.json")
        self.callers = Callers(config.roles, self.grants)
        self._probe_keys = ProbeKeys(self._state_dir / "probe_keys.json")
        self.state.members.keys_in_use = lambda: self._probe_keys.signed_with if self.state.leads else ()
        self.pods = Pods(
            self.bus,
            config.name,
            leads=lambda: self.state.leads,
            hosts=self.state.members.up,
            keys=self._probe_keys,
        )
        self.neighbours = Neighbours(self.bus, self.state)
        self.credentials = Credentials(
            authority,
            self.bus,
            config.pod,
            leads=lambda: self.state.leads,
            note=self.state.note,
            keys=self._probe_keys,
            hosts=self.state.members.up,
            may_go_on=self.pods.may_go_on,
            put_out=self._put_out,
        )
        claim = Claim(manager=uuid.uuid4().hex, name=config.name)
        self.lease = LeaseThread(
            manager_buses(url, authority, pod=config.pod, name="cwdp-manager lease"),
            claim,
            self._on_lease,
            lambda: self.loop_watch.stands_s < STANDS_S,
        )
        self.sharing = Sharing(
            self.bus, self.pods, self.state.planner, self.duties, epoch=lambda: self.lease.epoch
        )
        self.together = FleetWatch(
            self.bus,
            self.pods,
            self.state.members,
            self.state.watch.faults,
            self.duties,
            epoch=lambda: self.lease.epoch,
        )
        self.state.stand_by()
        self._kept = BusState(
            self.bus,
            self.lease.confirm,
            {**self.state.overrides.by_key(), ACCESS: self.grants},
            shared={KEYS: self._probe_keys},
        )
        reader = manager_bus(url, authority, pod=config.pod, name="cwdp-manager documents")
        self._take_over = TakeOver(
            self.bus, self.lease, self.state, self._kept, reader, identity=self._identity, direct=self._direct
        )
        streams = bucket_of(STREAM, config.pod), stream_of(bucket_of(AUDITS, config.pod)), *STREAMS
        self._copies = Copies(self.bus, lambda: self.state.leads, streams)
        self.history = History(config.history, self._state_dir, self.state, self.bus, claim.manager)
        self.audits = Audits(self.bus, self.state, config, self.lease.confirm)
        self.analysis = Analysis(self.bus, self.state, self.duties, direct=self._direct)
        self._graph, self._busy, self._stopping = GraphTimer(), asyncio.Lock(), asyncio.Event()

    async def run(self) -> None:
        """Serve until stopped; a loop that fails ends the service."""
        async with self._running():
            notify("READY=1")
            _log.info(
                "manager runs version=%s bus=%s socket=%s", __version__, self.bus.url, self.config.socket
            )
            try:
                await first_end(*(job() for job in self._jobs()))
            finally:
                notify("STOPPING=1")

    def _jobs(self) -> list[Callable[[], Coroutine[Any, Any, object]]]:
        return [
            self.loop_watch.run,
            collect_little,
            self.bus.ended,
            self.backlog.run,
            partial(name_floods, self._floods, self.state.members.hosts, self.state.note),
            *([self.server.ended] if self.server is not None else []),
            self.lease.ended,
            self._take_over.run,
            self._copies.run,
            self.credentials.run,
            self._follow_loop,
            self.pods.run,
            self.sharing.run,
            self.together.run,
            self.neighbours.run,
            self._clock_loop,
            self._members_loop,
            *self.analysis.jobs(),
            self._plan_loop,
            self.history.run,
            self.audits.run,
            self._stopping.wait,
        ]

    def stop(self) -> None:
        """Ask `run` to return."""
        self._stopping.set()

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Everything that must be undone, in order."""
        async with contextlib.AsyncExitStack() as stack:
            sources = Sources(
                state=self.state,
                bus=self.bus,
                solves=self.solves,
                server=self.server,
                lease=self.lease,
                kept=self._kept,
                loop_watch=self.loop_watch,
                backlog=self.backlog,
                duties=self.duties,
                pods=self.pods,
                sharing=self.sharing,
                together=self.together,
                directory=self.neighbours,
                history=self.history,
                audits=self.audits,
                refusals=self.callers.refusals,
            )
            http = HttpServer(
                sources,
                self.callers,
                self._changing_routes(),
                socket=Path(self.config.socket),
                listen=self._listen,
            )
            await http.start()
            stack.push_async_callback(http.stop)
            lock = stack.enter_context(StateLock(self._state_dir, self.lease.claim.manager))
            if self._page is not None:
                page = Page(self._page, self.callers, http.reading_routes(), http.overview.tick)
                stack.push_async_callback(page.stop)
                await page.start()
                _log.info("page %s", page.url)
            if self.server is not None:
                stack.push_async_callback(self.server.stop)
                await self.server.start()
            self.bus.subscribe(up(self.config.pod, "*", "hello"), Hello, self._on_hello)
            traffic = self.state.traffic
            self._hear_timed("report", Report, self.state.hear_report)
            self._hear_timed("qp", QpReport, traffic.hear_queue_pairs)
            self._hear_timed("sample", SampleReport, traffic.hear_samples)
            self._hear_timed("burst", BurstReport, traffic.hear_bursts)
            self._hear_timed("window", WindowReport, self.state.hear_windows)
            self._hear("bounced", BounceReport, self.state.watch.faults.hear_echo_report)
            self._hear("trace", TraceReport, self.neighbours.hear_own_traces)
            self._hear_timed("steer", SteerReport, self.state.hear_steering)
            self._hear_timed("verbs", VerbsReport, traffic.hear_verbs)
            self._hear_timed("tcp", TcpReport, traffic.hear_tcp)
            self._hear_timed("collective", CollectiveReport, self.state.hear_collectives)
            self._hear("audit", AuditReport, self.audits.hear)
            self._hear("audit-flows", FlowReport, self.audits.hear_flows)
            for ib in (*self.state.subnets.hears(), *self.state.migrations.hears()):
                self._hear_timed(*ib)
            self._hear("event", Event, self.state.hear_event)
            self.credentials.listen()
            self.pods.listen()
            self.sharing.listen()
            self.together.listen()
            self.neighbours.listen()
            self.bus.start()
            stack.push_async_callback(self.bus.close)
            self.lease.start(gone=lock.before)
            stack.push_async_callback(self._hand_over)
            yield

    def _changing_routes(self) -> list[web.RouteDef]:
        callers, state = self.callers, self.state
        return [
            *overrides_http.routes(state, self.commit, callers),
            *credentials_http.routes(self.credentials, callers),
            *AuditHttp(self.audits).changing_routes(callers),
            *access_http.routes(
                self.grants, self._authority, callers, self.commit, partial(state.note, FLEET)
            ),
        ]

    def _hear(self, kind: str, of: type[_T], handler: Callable[[_T], None]) -> None:
        """Take in messages of a kind, but those of a second agent with one name."""

        def hear(message: _T) -> None:
            if self.state.hears(kind, message):
                with self.duties.of(f"hear {kind}"):
                    handler(message)

        self.bus.subscribe(up(self.config.pod, "*", kind), of, hear)

    def _hear_timed(self, kind: str, of: type[_T], handler: Callable[[_T, float], None]) -> None:
        """The same with the manager's monotonic clock."""
        self._hear(kind, of, lambda message: handler(message, time.monotonic()))

    def _on_bus_change(self, connected: bool) -> None:
        self.pods.connect(connected)
        if connected:
            self.state.members.excuse(time.monotonic())

    def _on_lease(self, leads: bool) -> None:
        """Who has it begins to lead by `TakeOver`; who has it no more stops at once."""
        if not leads and self.state.leads:
            self.state.stand_by()
            self.bus.documents.withdraw()
            self.state.note(FLEET, "manager_waits", f"{self.config.name} leads no more")

    async def _confirm(self) -> bool:
        return await self.lease.confirm()

    def _note_unwritten(self, host: str, others: int, why: str) -> None:
        whose = f"and {others} hosts' more: " if others else ""
        self.state.note(host, "document_unwritten", f"{whose}{why}")

    async def commit(self) -> None:
        """Have a change of what operators want kept on the bus, then tell hosts.

        Raises:
            BusError: it cannot be kept; it is undone.
        """
        try:
            await self._kept.send()
        except BusError:
            self._kept.revert()
            raise
        finally:
            self._direct(self.state.documents())

    def _direct(self, documents: Iterable[Desired]) -> None:
        """Have hosts do what these say."""
        for document in documents if self.lease.leads else ():
            self.bus.put(document)

    async def _put_out(self, host: str) -> None:
        """Keep nothing of a host that has left for good.

        Raises:
            BusError: what it was told is on the bus still.
        """
        self.state.put_out(host, time.monotonic())
        await self.bus.documents.remove(host)

    def _on_hello(self, hello: Hello) -> None:
        with self.duties.of("hear hello"):
            self.state.hear_hello(hello, time.monotonic())

    async def _plan_loop(self) -> None:
        due_s = 0.0
        while True:
            started = time.monotonic()
            is_due = started >= due_s or self.state.planner.is_urgent(started)
            if self.bus.connected and is_due and self.state.may_plan(started):
                before_s = self.duties.spent_s(PLAN)
                with self.duties.of(PLAN):
                    self._direct(self.state.plan(started))
                took_s = self.duties.spent_s(PLAN) - before_s
                soon = not self.state.planner.standing.flows and self.state.first_plan.is_lately(started)
                interval_s = PLAN_GLANCE_S if soon else self.state.pace.interval_s
                due_s = started + max(interval_s, took_s / self.duties.room(PLAN_SHARE))
            await asyncio.sleep(PLAN_GLANCE_S)

    async def _follow_loop(self) -> None:
        """Know the fleet's keys and, while another manager leads this pod, whom it has let in and out, and what to go on with."""
        while True:
            await self._kept.look(*((KEYS,) if self.lease.leads else (KEYS, ACCESS)))
            await asyncio.sleep(FOLLOW_INTERVAL_S)

    async def _clock_loop(self) -> None:
        while True:
            started = time.monotonic()
            if self.state.clock.is_due(started + CLOCK_INTERVAL_S / 2, self.state.pace.interval_s / 2):
                async with self._busy:
                    await self._solve()
            took_s = time.monotonic() - started
            await asyncio.sleep(max(CLOCK_INTERVAL_S - took_s, took_s / SOLVE_SHARE - took_s))

    async def _solve(self) -> None:
        clock, started = self.state.clock, time.monotonic()
        if not (self.state.leads and self.lease.leads):
            return
        edges = clock.begin(started)
        if edges is None:
            self.state.take_clock_changes(started)
            return
        solve = partial(self.duties.timed, "solve clocks", partial(clock.solve_edges, edges))
        solved = await asyncio.to_thread(solve) if len(edges.src) > THREAD_ABOVE_EDGES else solve()
        self.solves.add(time.monotonic() - started, useful=solved is not None)
        if solved is None:
            return
        clock.finish(edges, solved, time.monotonic())
        self.state.take_clock_changes(time.monotonic())
        with self.duties.of("compare timelines"):
            self.state.compare_timelines(time.monotonic())
        if self.lease.leads:
            await self.bus.publish_each(
                (down(self.config.pod, told.host, "clock"), told) for told in clock.updates()
            )

    async def _members_loop(self) -> None:
        expire_s = late_s = 0.0
        while True:
            started, late_before_s, before_s = time.monotonic(), late_s, self.duties.spent_s(GRAPH)
            late_s = self.loop_watch.late_s
            if max(late_s - late_before_s, self.backlog.waits_s) > STALL_S:
                self.state.members.excuse(started)  # their hellos wait to be read
            if self.bus.connected and started >= expire_s:
                expire_s = started + EXPIRE_INTERVAL_S
                async with self._busy:
                    with self.duties.of("keep members"):
                        self.state.expire(started)
                self._direct([*self.state.overtaken(), *self.state.keep_up(self.backlog.waits_s, started)])
                self.bus.documents.put_whole()
                started = time.monotonic()  # once a second puts no graph off
            members, elsewhere = self.state.probeable(started), self.state.members.elsewhere
            awaits = self.state.awaits_hosts() or self.neighbours.awaits(self.pods.others())
            back = not awaits and self.state.probed_before.are_back(self.state.members)
            is_due = partial(self._graph.due, taken_up=awaits, complete=back, elsewhere=elsewhere.version)
            if self.bus.connected and is_due(members, started, without_nics=self.state.members.have_lids):
                await self._rebuild(members)
            took_s = self.duties.spent_s(GRAPH) - before_s
            await asyncio.sleep(max(MEMBERS_INTERVAL_S, took_s / self.duties.room(MEMBERS_SHARE)))

    async def _hand_over(self) -> None:
        """On the way out: another manager may go on at once."""
        if self.state.leads:
            with contextlib.suppress(BusError):
                await self._kept.send()
        await self.lease.close()

    async def _rebuild(self, members: list[Member]) -> None:
        between = self.neighbours.between(members, self.config.probes.seed)
        build = partial(self.duties.timed, GRAPH, lambda: (self.state.build_graph(members), between()))
        pairs, others = await asyncio.to_thread(build) if len(members) > THREAD_ABOVE_NICS else build()
        with self.duties.of(GRAPH):
            changed = self.state.schedule(members, pairs, others)
        self._direct(changed)
        _log.info("probe graph nics=%d pairs=%d hosts_changed=%d", len(members), len(pairs), len(changed))


async def serve(config: ManagerConfig) -> None:
    """Run a manager until SIGTERM or SIGINT."""
    manager = Manager(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, manager.stop)
    await manager.run()
