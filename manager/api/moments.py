"""The moments that pages are made from: that of now, made anew at most so often, and those of the past from history."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from manager.api.metrics import Sources
from manager.api.tables import copied
from manager.fabric.wiring import Miswired, address_of_each, miswired
from manager.moment import pairs, parts, talkers
from manager.moment.moment import Moment
from manager.moment.pairs import Pairs
from manager.moment.parts import Parts
from manager.moment.talkers import Talkers
from manager.planner.flows import sending
from manager.view import link_views

_T = TypeVar("_T")

LEAST_S = 1.0
"""A moment of now lasts so long at least."""

SHARE = 0.05
"""Of a core, to make them."""

LATE_S = 2.0
"""Who asks so long after it was due, as the first does after a while, waits for the next one."""

PAIRS_LAST_S = 5.0
THREAD_ABOVE = 5_000


class Moments:
    """Makes moments; whoever asks for that of now meanwhile gets the same."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state
        self._now: Moment | None = None
        self._due_s = self._late_s = 0.0
        self._renewing: asyncio.Task[Moment] | None = None
        self._making = asyncio.Lock()
        self._pairs: tuple[Pairs | None, Pairs | None] = None, None
        self._pairs_due_s = 0.0
        self._parts = Parts()
        self._parts_of: tuple[object, ...] = ()

    async def now(self) -> Moment:
        """The fabric as it is, or as it was a moment ago while that is made anew."""
        now_s = time.monotonic()
        if self._now is None or now_s >= self._late_s:
            return await self._renew()
        if now_s >= self._due_s and (self._renewing is None or self._renewing.done()):
            self._renewing = asyncio.create_task(self._renew())
        return self._now

    async def _renew(self) -> Moment:
        async with self._making:
            started = time.monotonic()
            if self._now is None or started >= self._due_s:
                self._now = await self._make(started)
                ended = time.monotonic()
                self._due_s = started + max(LEAST_S, (ended - started) / SHARE)
                self._late_s = self._due_s + LATE_S
            return self._now

    async def _make(self, now_s: float) -> Moment:
        state, routes = self._state, self._state.fabric.routes
        await self._follow_parts()
        await self._follow_pairs(now_s)
        findings, avoided = link_views.findings_of(state), state.planner.standing.dead
        leaf_pairs, nic_pairs = self._pairs
        tables, nics = await copied(state.traffic.queue_pairs.tables), state.members.nics_by_address
        jobs = state.traffic.verbs.jobs

        def find_talkers() -> Talkers:
            return talkers.of_now(sending(tables, nics, now_s), routes, jobs)

        return Moment(
            at_s=time.time(),
            is_live=True,
            links=link_views.table_of_now(state, findings, avoided),
            parts=self._parts,
            talkers=await _off_loop(sum(len(table.keys) for table in tables.values()), find_talkers),
            leaf_pairs=leaf_pairs,
            nic_pairs=nic_pairs,
            routes=routes,
            findings=findings,
        )

    async def _follow_parts(self) -> None:
        state = self._state
        discovery, avoided = state.discovery, state.planner.standing.dead
        model, aside = discovery.model(), sorted(discovery.fabric.aside)
        seen = model, discovery.path_counts, state.members.version, aside, avoided
        owners, ours = state.members.nics_by_address, state.members.ours_of_several
        counts = discovery.path_counts

        def suspected() -> list[Miswired]:
            covered = counts.covered_leaves(ours)
            return miswired(model, address_of_each(owners), covered.__contains__)

        if self._parts_of != seen:
            suspects = await _off_loop(len(model.routes.links), suspected)
            self._parts, self._parts_of = parts.of_now(model, suspects, aside, avoided), seen

    async def _follow_pairs(self, now_s: float) -> None:
        if now_s < self._pairs_due_s:
            return
        owd, shown = self._state.owd, self._parts

        def measure() -> tuple[Pairs | None, Pairs | None]:
            if not len(owd):
                return None, None
            of_nics = pairs.of_nics(owd.extremes(now_s))
            return of_nics.grouped(shown.leaf_of, shown.leaves), of_nics

        self._pairs = await _off_loop(len(owd), measure)
        took_s = time.monotonic() - now_s
        self._pairs_due_s = now_s + max(LEAST_S if len(owd) < THREAD_ABOVE else PAIRS_LAST_S, took_s / SHARE)


async def _off_loop(size: int, work: Callable[[], _T]) -> _T:
    """Do what touches nothing: in a thread where there is much to do, so that clocks go on meanwhile."""
    return await asyncio.to_thread(work) if size > THREAD_ABOVE else work()
