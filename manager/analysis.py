"""What is made of what hosts tell, in loops: the fabric that is discovered, models of its links, their faults, jobs."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Desired, nic_id
from cwdp.shared.bus.subjects import down
from manager.duties import Duties
from manager.hosts.happening import Move
from manager.jobs.flows import Flow
from manager.jobs.inference import Inferred
from manager.jobs.names import named
from manager.jobs.steps import Steps, step
from manager.state import FleetState

JOIN_INTERVAL_S, LINKS_INTERVAL_S = 0.5, 0.1
DISCOVERY_INTERVAL_S = 0.25
LINKS_SHARE, MODEL_SHARE, DISCOVERY_SHARE = 0.5, 0.2, 0.25
"""Of a processor, that a loop may take at most."""

TRACES_AT_ONCE = 64
"""Reports of them."""

JOBS_INTERVAL_S, JOBS_SHARE = 0.5, 0.25
"""Jobs change slowly, so to infer them may take little; of a large fleet it takes a second, which is done bit by bit."""

JOIN, WATCH, MIGRATE, MODELS, DISCOVERY = "join samples", "watch links", "migrate", "model links", "discover"
JOBS, CAUSES = "infer jobs", "find causes"
"""The duties by which their processor time is counted."""

THREAD_ABOVE_PATHS = 20_000

_T = TypeVar("_T")

_log = logging.getLogger("cwdp.manager")


class Analysis:
    """The loops, each of which does less often what takes long.

    What takes long is done in one thread, one after the other: threads of Python take turns, so beside several of them the loop
    would come to its turn too seldom to read what hosts tell.

    Args:
        bus: the manager's.
        state: all that it knows.
        duties: where the time is counted.
        direct: has hosts do what documents say.
    """

    def __init__(
        self, bus: Bus, state: FleetState, duties: Duties, *, direct: Callable[[Iterable[Desired]], None]
    ) -> None:
        self._bus, self._state, self._duties, self._direct = bus, state, duties, direct
        self._thread = ThreadPoolExecutor(1, "analysis")
        state.planner.on_moves.append(self._hear_moves)

    def jobs(self) -> list[Callable[[], Coroutine[Any, Any, object]]]:
        """What is to be run, each for ever."""
        return [
            self._join_samples,
            self._make_models,
            self._watch_links,
            self._migrate,
            self._discover,
            self._infer_jobs,
        ]

    def _hear_moves(self, moves: Iterable[Move]) -> None:
        """The planner has other paths for queue pairs: what that brings their jobs is told with why they are slow."""
        nics = self._state.members.nics_by_address
        self._state.causes.hear_moves(
            Flow(nic_id(move.host, move.nic), nics.get(move.dst_addr, ""), move.qpn)
            for move in moves
            if move.what in ("moved", "rerouted")
        )

    async def _join_samples(self) -> None:
        while True:
            with self._duties.of(JOIN):
                self._state.traffic.join(time.monotonic())
            await asyncio.sleep(JOIN_INTERVAL_S)

    async def _make_models(self) -> None:
        """Keep up with paths that become known and change, once there are any."""
        watch = self._state.watch
        while True:
            async with self._duties.paced(MODELS, least_s=LINKS_INTERVAL_S, share=MODEL_SHARE):
                routes = self._state.fabric.routes
                due = watch.due(routes) if routes.links else None
                if due is not None:
                    model = await self._done(MODELS, due.make, is_large=len(due.names) > THREAD_ABOVE_PATHS)
                    with self._duties.of(MODELS):
                        watch.take(model, time.monotonic())

    async def _watch_links(self) -> None:
        while True:
            async with self._duties.paced(WATCH, least_s=LINKS_INTERVAL_S, share=LINKS_SHARE):
                now_s = time.monotonic()
                with self._duties.of(WATCH):
                    self._state.watch_links(now_s)
                for order in self._state.echo_orders(now_s):
                    self._bus.publish(down(self._bus.pod, order.host, "bounce"), order)

    async def _migrate(self) -> None:
        """Have connections over InfiniBand take other paths where they should; a manager that waits has none do so."""
        migrations = self._state.migrations
        migrations.attempts.send = lambda host, order: self._bus.publish(
            down(self._bus.pod, host, "migrate"), order
        )
        while True:
            async with self._duties.paced(MIGRATE, least_s=LINKS_INTERVAL_S, share=LINKS_SHARE):
                if self._state.leads:
                    with self._duties.of(MIGRATE):
                        migrations.step(time.monotonic())

    async def _discover(self) -> None:
        discovery = self._state.discovery
        while True:
            if self._awaits_plan() and not discovery.fabric.routes.links:
                await asyncio.sleep(DISCOVERY_INTERVAL_S)
                continue
            await self._take_in_traces()
            started, before_s = time.monotonic(), self._duties.spent_s(DISCOVERY)
            discovery.known = self._state.subnets.links(started, self._state.subnet_faults.dead_links)
            is_large = len(discovery.fabric.store) > THREAD_ABOVE_PATHS
            learn = partial(discovery.learn, started)
            self._state.note_fabric(await self._done(DISCOVERY, learn, is_large=is_large))
            if self._bus.connected and not self._awaits_plan() and not self._awaits_queue_pairs():
                await self._order_traces(is_large=is_large)
            took_s = self._duties.spent_s(DISCOVERY) - before_s
            await asyncio.sleep(
                max(DISCOVERY_INTERVAL_S, took_s / self._duties.room(DISCOVERY_SHARE) - took_s)
            )

    async def _take_in_traces(self) -> None:
        """Take in what hosts have traced bit by bit where that is much: at a stretch it takes seconds, and the loop half of what it has."""
        discovery = self._state.discovery
        for _ in range(discovery.pending // TRACES_AT_ONCE):
            async with self._duties.paced(DISCOVERY, least_s=0.0, share=DISCOVERY_SHARE):
                take_in = partial(discovery.take_in, time.monotonic(), TRACES_AT_ONCE)
                await self._done(DISCOVERY, take_in, is_large=True)

    async def _infer_jobs(self) -> None:
        """Always in the thread: it takes tens of milliseconds a job."""
        watch = self._state.jobs
        while True:
            async with self._duties.paced(CAUSES, least_s=JOBS_INTERVAL_S, share=JOBS_SHARE):
                if not self._awaits_plan():
                    with self._duties.of(JOBS):
                        infer = watch.due(time.monotonic())
                    await self._follow_jobs(infer)

    def _awaits_plan(self) -> bool:
        """Whether this manager leads and has yet to plan, which comes first: hosts go on as they were told meanwhile."""
        return self._state.leads and self._state.first_plan.is_awaited(time.monotonic())

    def _awaits_queue_pairs(self) -> bool:
        """Whether hosts trace what an earlier manager ordered, and some have yet to tell what they send: it would seem that nothing is."""
        if not (self._state.discovery.goes_on and self._state.first_plan.is_lately(time.monotonic())):
            return False
        told = {host for host, _ in self._state.traffic.queue_pairs.tables}
        return not told.issuperset(self._state.members.up())

    async def _follow_jobs(self, infer: Steps[Inferred] | None) -> None:
        """Those whose bursts are known, and why they are slow; ranks that stand still send none."""
        watch, causes = self._state.jobs, self._state.causes
        try:
            if infer is not None:
                watch.take(await self._inferred(infer))
            now_s = time.monotonic()
            with self._duties.of(CAUSES):
                timeline_ns = self._state.traffic.timeline_ns(now_s)
                look = causes.due(named(watch.jobs), now_s, timeline_ns, watch.strays)
            causes.take(await self._done(CAUSES, look, is_large=True), now_s)
        except Exception:  # noqa: BLE001 - whatever it is, it must not end what steers packets
            _log.exception("jobs are not followed")
            watch.take(Inferred())

    async def _inferred(self, infer: Steps[Inferred]) -> Inferred:
        while True:
            async with self._duties.paced(JOBS, least_s=0.0, share=JOBS_SHARE):
                found = await self._done(JOBS, partial(step, infer), is_large=True)
            if found is not None:
                return found[0]

    async def _order_traces(self, *, is_large: bool) -> None:
        """Tell hosts over which ports to trace and probe, if others than before."""
        changed, due = self._duties.timed(DISCOVERY, partial(self._state.begin_discovery, time.monotonic()))
        if due is not None:
            order = partial(self._state.discovery.order_anew, due)
            changed |= await self._done(DISCOVERY, order, is_large=is_large)
        if changed:
            with self._duties.of(DISCOVERY):
                self._direct(self._state.documents())

    async def _done(self, duty: str, work: Callable[[], _T], *, is_large: bool) -> _T:
        """What some work comes to that counts as a duty's; what is large is done in the thread."""
        timed = partial(self._duties.timed, duty, work)
        if not is_large:
            return timed()
        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)
