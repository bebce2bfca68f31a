"""History as the manager runs it: loops that gather, write, send and read; none of them waits for a disk on the loop."""

import asyncio
import contextlib
import logging
import math
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cwdp.shared.bus.connection import Bus
from cwdp.shared.tasks import first_end
from manager.config import HistorySettings
from manager.fabric.wiring import address_of_each, miswired
from manager.history import queries, samples
from manager.history.changes import Elements, FindingChanges, difference, elements, of_kinds
from manager.history.figures import Figures
from manager.history.measured import Measured, Measurement
from manager.history.queue_pairs import KEPT_S, chosen
from manager.history.recorder import HELD_S, Recorder
from manager.history.records import LeaderRecord, Message, Record
from manager.history.store import FILE, is_corrupt
from manager.history.stream import Stream
from manager.history.writer import Disk, StoppedError, Writer
from manager.ib.links import link_rates
from manager.planner.events import FLEET
from manager.state import FleetState

WRITE_EVERY_S = 0.25
LOOK_EVERY_S = 0.25
LINKS_EVERY_S = 1.0
PAIRS_EVERY_S = 10.0
FABRIC_EVERY_S = 1.0
FABRIC_SHARE = 0.02
RETAIN_EVERY_S = 60.0
AGAIN_S = 2.0
TOLD_EVERY_S = 60.0
WHOLE_EVERY_S = 86_400.0
"""How often all that holds is told again, so that it is in the stream whatever age has taken out of it."""

SETTLES_S = 60.0
"""A manager that begins to lead may know little of the fabric yet: for so long nothing is taken for gone."""

DAY_S = 86_400.0
DATABASE_SHARE = 0.25
STREAM_SHARE, STREAM_MOST_BYTES = 0.125, 1 << 32

_T = TypeVar("_T")
_log = logging.getLogger("cwdp.manager.history")


class History:
    """What one manager keeps of the past.

    Args:
        settings: how much.
        state_dir: below which its files are.
        state: what happens.
        bus: on which managers share it.
        name: tells this manager from all others, as its claim to the lease does.

    Attributes:
        figures: for metrics.
    """

    def __init__(
        self, settings: HistorySettings, state_dir: Path, state: FleetState, bus: Bus, name: str
    ) -> None:
        self.figures = Figures()
        self._settings, self._state, self._name = settings, state, name
        self._directory = state_dir / settings.dir
        self._recorder = Recorder(lambda: self._leading)
        self._writer = Writer(self._directory, self._tell)
        self._stream = Stream(
            bus,
            self._writer,
            max_age_s=settings.days * DAY_S,
            max_bytes=min(int(settings.max_bytes * STREAM_SHARE), STREAM_MOST_BYTES),
            leads=lambda: state.leads,
        )
        self._leading = False
        self._led_since_s = 0.0
        self._generation = b""
        self._number = 0
        self._unwritten: list[Record] = []
        self._writing = asyncio.Lock()
        self._findings = FindingChanges()
        self._known: Elements = {}
        self._seen: tuple[object, ...] = ()
        self._whole_s = 0.0
        state.on_event = self._recorder.hear_event
        state.on_override = self._recorder.hear_override
        state.planner.on_moves.append(self._recorder.hear_moves)

    async def run(self) -> None:
        """Keep history, for ever; whatever fails in it is told, and it goes on a while later: all else does meanwhile."""
        told_s = -math.inf
        try:
            while True:
                try:
                    await self._keep()
                except Exception as error:  # noqa: BLE001 - whatever it is, it must not end what steers packets
                    _log.exception("history failed")
                    if time.monotonic() - told_s > TOLD_EVERY_S:
                        told_s = time.monotonic()
                        self._tell(
                            "history_failed", f"{error!r}; it begins again and again; all else goes on"
                        )
                await asyncio.sleep(AGAIN_S)
        finally:
            await self.flush()
            await self._stream.send_rest()
            await self._writer.close()

    async def _keep(self) -> None:
        await first_end(
            self._every(WRITE_EVERY_S, self.flush),
            self._every(LOOK_EVERY_S, self._look),
            self._every(LINKS_EVERY_S, self._measure_links),
            self._every(PAIRS_EVERY_S, self._measure_pairs),
            self._every(FABRIC_EVERY_S, self._follow_fabric),
            self._every(RETAIN_EVERY_S, self._retain),
            self._stream.send(),
            self._stream.read(),
        )

    async def flush(self) -> None:
        """Have what has happened so far on the disk, as far as it can be written."""
        async with self._writing:
            while records := self._unwritten or self._recorder.next():
                self._number += not self._unwritten
                self._unwritten = records
                try:
                    await self._write(records, self._number)
                except StoppedError:
                    break
                self._unwritten = []
                self._recorder.written(records)
                self.figures.records["written"] += len(records)
                self._stream.wake()
        self._count()

    async def ask(self, question: Callable[[sqlite3.Connection], _T]) -> _T:
        """Ask the store, with all that has happened so far.

        Raises:
            StoppedError: it cannot be read now.
        """
        await self.flush()
        await self._writer.do(lambda _disk: None)

        def read() -> _T:
            with queries.reading(self._directory / FILE) as db:
                return question(db)

        try:
            return await asyncio.to_thread(read)
        except sqlite3.Error as error:
            if is_corrupt(error):
                await self._writer.do(lambda disk: disk.store.check())
            raise StoppedError(str(error)) from error

    async def links_at(self, time_s: float) -> tuple[Measurement | None, tuple[float, float] | None]:
        """What was measured of links at a time, and from when until when anything was. Raises what `ask` raises."""
        return await self._writer.do(lambda disk: _at(disk.links, time_s))

    async def pairs_at(self, time_s: float) -> tuple[Measurement | None, tuple[float, float] | None]:
        """The same of pairs of leaves."""
        return await self._writer.do(lambda disk: _at(disk.pairs, time_s))

    async def series(self, of: str, a: str, b: str, since_s: float, until_s: float) -> Any:
        """What was measured of a link or a pair of leaves over a time; see `Measured.series`."""

        def read(disk: Disk) -> Any:
            return (disk.pairs if of == "pair" else disk.links).series((a, b), since_s, until_s)

        return await self._writer.do(read)

    def _tell(self, kind: str, detail: str) -> None:
        self._state.note(FLEET, kind, detail)

    @staticmethod
    async def _every(interval_s: float, job: Callable[[], Any]) -> None:
        """Do something once an interval; trouble with the disk is told by the writer, and the next time is another try."""
        while True:
            begun_s = time.time()
            with contextlib.suppress(StoppedError):
                await job()
            await asyncio.sleep(rest_s(begun_s, time.time(), interval_s))

    async def _write(self, records: list[Record], number: int) -> None:
        """Write a message, whose number tells whether that has been done by a try that came to no end."""
        name = self._name

        def append(disk: Disk) -> bytes:
            generation = disk.store.generation
            origin = f"{name}.{generation.hex()[:8]}"
            disk.store.append(Message(origin=origin, number=number, records=records))
            return generation

        generation = await self._writer.do(append)
        if self._generation not in (b"", generation):
            self._leading = False  # findings are told anew, under the new database's name
        self._generation = generation

    async def _look(self) -> None:
        """See who leads, and what is new of findings."""
        if self._state.leads != self._leading:
            if self._state.leads:
                await self._begin_to_lead()
            self._leading = self._state.leads
        if not self._leading:
            self._findings.skip(self._state.faults)
            return
        now_s = time.time()
        if now_s - self._whole_s > WHOLE_EVERY_S:
            self._whole_s = now_s
            self._findings.begin_anew()
            self._recorder.add(difference({}, self._known, now_s))
        self._recorder.add(self._findings.step(self._state.faults, now_s))

    async def _begin_to_lead(self) -> None:
        """Go on from what is known, with what was heard since whoever led may have ended."""
        now_s = time.time()
        self._leading, self._led_since_s, self._whole_s = True, time.monotonic(), now_s
        self._seen = ()
        held = self._recorder.held()

        def read(disk: Disk) -> tuple[list[Record], Elements]:
            new: list[Record] = [event for event in held if not disk.store.has_event(event, HELD_S)]
            return new, of_kinds(disk.store.elements())

        try:
            new, self._known = await self._writer.do(read)
        except StoppedError:
            new, self._known = [*held], {}
        self._recorder.add([*new, LeaderRecord(time_s=now_s, name=self._name)])
        self._findings.begin_anew()

    async def _measure_links(self) -> None:
        rates = [link_rates(one) for one in self._state.subnets.now if one.is_fresh]
        sample = samples.with_infiniband(samples.of_links(self._state.links, time.monotonic()), rates)
        if sample is not None:
            time_s, most_bytes = time.time(), self._rings_bytes
            await self._writer.do(
                lambda disk: disk.links.add(
                    sample.names, sample.values, time_s, most_bytes - disk.pairs.ring.size_bytes
                )
            )

    async def _measure_pairs(self) -> None:
        owd, routes = self._state.owd, self._state.fabric.routes
        rows, time_s, most_bytes = (
            chosen(self._state, time.monotonic()),
            time.time(),
            self._rings_bytes,
        )

        def measure(disk: Disk) -> None:
            if rows:
                disk.store.add_queue_pairs(time_s, rows, KEPT_S)
            sample = samples.of_leaf_pairs(owd.extremes(time.monotonic()), routes) if len(owd) else None
            if sample is not None:
                room = most_bytes - disk.links.ring.size_bytes
                disk.pairs.add(sample.names, sample.values, time_s, room)

        await self._writer.do(measure)

    async def _follow_fabric(self) -> None:
        """See what is new of the fabric; in a thread, and seldom where that takes long."""
        if not self._leading:
            return
        started = time.monotonic()
        discovery, planner = self._state.discovery, self._state.planner
        model, aside = discovery.model(), sorted(discovery.fabric.aside)
        owners, ours = self._state.members.nics_by_address, self._state.members.ours_of_several
        counts, avoided = discovery.path_counts, planner.standing.dead
        versions = model.routes.version, self._state.members.version, counts.version
        seen = *versions, aside, avoided, self._settles(started)
        if self._seen == seen:
            return

        def work() -> Elements:
            covered = counts.covered_leaves(ours)
            suspects = miswired(model, address_of_each(owners), covered.__contains__)
            return elements(model, suspects, aside, avoided)

        now = await asyncio.to_thread(work)
        took_s = time.monotonic() - started
        if self._leading:
            if self._settles(started):
                now = self._known | now
            self._recorder.add(difference(self._known, now, time.time()))
            self._known, self._seen = now, seen
        await asyncio.sleep(took_s / FABRIC_SHARE)

    def _settles(self, now_s: float) -> bool:
        return now_s - self._led_since_s < SETTLES_S

    async def _retain(self) -> None:
        settings = self._settings
        oldest_s, most_bytes = time.time() - settings.days * DAY_S, int(settings.max_bytes * DATABASE_SHARE)

        def retain(disk: Disk) -> tuple[bool, int, int, int, int, int]:
            more = disk.store.retain(oldest_s, most_bytes)
            return (
                more,
                disk.store.size_bytes,
                disk.rings_bytes,
                disk.store.unsent_count,
                disk.store.dropped,
                disk.links.no_room + disk.pairs.no_room,
            )

        more = True
        while more:
            more, database, rings, unsent, dropped, no_room = await self._writer.do(retain)
            self.figures.size_bytes = {"database": database, "rings": rings}
            self.figures.waiting["bus"] = unsent
            self.figures.records["unsent_dropped"] = dropped
            self.figures.names_without_room = no_room

    @property
    def _rings_bytes(self) -> int:
        return int(self._settings.max_bytes * (1 - DATABASE_SHARE))

    def _count(self) -> None:
        figures = self.figures
        figures.stopped = bool(self._writer.stopped)
        figures.waiting["disk"] = self._recorder.waiting
        figures.waiting["stream"] = self._stream.behind
        figures.records["dropped"] = self._recorder.counters["dropped"]
        figures.records |= self._stream.counters


def rest_s(begun_s: float, now_s: float, interval_s: float) -> float:
    """Seconds until the middle of the interval of the wall clock that follows the one in which a job was begun.

    So no bucket of the rings is left out, as one is now and then by a rest of an interval after each job. A job that
    takes long rests for a quarter of an interval; a clock that was set back lets none wait longer than one and a half.
    """
    due_s = (begun_s // interval_s + 1.5) * interval_s
    return min(max(due_s - now_s, interval_s / 4), interval_s * 1.5)


def _at(measured: Measured, time_s: float) -> tuple[Measurement | None, tuple[float, float] | None]:
    return measured.at(time_s), measured.span_s()
