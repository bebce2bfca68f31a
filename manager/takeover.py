"""Makes whoever holds the lease the leader, once it knows what was decided before, by whomever."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from nats.aio.client import Client

from cwdp.errors import BusError, ManagerError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Desired, Leader
from cwdp.shared.tasks import first_end
from manager.bus.lease import Leadership
from manager.bus.state import BusState
from manager.clock.timeline import Identity, save_identity
from manager.planner.events import FLEET
from manager.state import FleetState

GLANCE_S, LONGEST_PAUSE_S = 0.1, 1.0
READ_SHARE = 0.2
READ_S = 2.0
"""So long one document is waited for: a copy of a bucket that has just been made may not answer, and others wait meanwhile."""

READ_AT_ONCE = 256

_log = logging.getLogger("cwdp.manager")


class TakeOver:
    """What comes before deciding: the timeline, operators' overrides, and what each host was told last.

    Args:
        bus, lease, state: the manager's.
        kept: what is on the bus for whoever leads.
        reader: a connection on which nothing else comes, not started: on that of a manager that has just begun answers lie behind
            seconds of what hosts say.
        identity: the file with the timeline's name.
        direct: has hosts do as documents say.
    """

    def __init__(
        self,
        bus: Bus,
        lease: Leadership,
        state: FleetState,
        kept: BusState,
        reader: Bus,
        *,
        identity: Path,
        direct: Callable[[Iterable[Desired]], None],
    ) -> None:
        self._bus, self._lease, self._state, self._kept = bus, lease, state, kept
        self._reader, self._identity, self._direct = reader, identity, direct
        self._superseded: list[str] = []
        bus.documents.on_superseded = self._superseded.append
        kept.on_news = lambda: direct(state.documents())

    async def run(self) -> None:
        """Begin to lead with the lease; then keep the bus up to date, and take up each host that comes; for ever."""
        self._reader.start()
        try:
            await first_end(self._lead(), self._keep())
        finally:
            await self._reader.close()

    async def _lead(self) -> None:
        while True:
            started, pause_s = time.monotonic(), GLANCE_S
            if self._state.leads:
                if not await self._take_up_hosts():
                    pause_s = (time.monotonic() - started) / READ_SHARE
            elif self._lease.leads:
                await self._begin()
            await asyncio.sleep(min(max(GLANCE_S, pause_s), LONGEST_PAUSE_S))

    async def _keep(self) -> None:
        while True:
            if self._state.leads and self._lease.leads:
                with contextlib.suppress(BusError):  # said by who asked for a change; tried again
                    await self._kept.send()
            await asyncio.sleep(GLANCE_S)

    async def _begin(self) -> None:
        epoch, own = self._lease.epoch, self._state.clock.timeline
        timeline = await self._kept.take_over(own)
        if timeline is None or not self._lease.leads or self._lease.epoch != epoch:
            return
        leader, others_led = Leader(epoch, time.time()), self._lease.others_led
        self._state.lead(time.monotonic(), leader, timeline=timeline, others_led=others_led)
        self._state.note(FLEET, "manager_leads", f"{self._lease.claim.name} leads")
        if timeline != own:
            try:
                save_identity(self._identity, Identity(timeline=timeline, starts=self._state.starts))
            except ManagerError as error:
                _log.warning("the timeline's name is on the bus only: %s", error.message)

    async def _take_up_hosts(self) -> bool:
        """Whether all that were there could be."""
        self._forget_superseded()
        hosts, client, taken = self._state.not_taken_up(), self._reader.session, False
        if client is None:
            return False
        for start in range(0, len(hosts), READ_AT_ONCE):
            batch = hosts[start : start + READ_AT_ONCE]
            found = await asyncio.gather(*(self._read(client, host) for host in batch))
            for host, (is_known, document) in zip(batch, found, strict=True):
                if is_known and self._has_left(host):
                    self._state.members.forget(host)
                elif is_known and self._state.take_up(host, document, time.monotonic()):
                    taken = True
        if taken:
            self._direct(self._state.documents())
        return not set(hosts).intersection(self._state.not_taken_up())

    def _forget_superseded(self) -> None:
        """Take those up again that were told something after what was read of them."""
        for host in self._superseded:
            self._state.take_up_again(host)
        if self._superseded:
            self._superseded.clear()
            self._direct(self._state.documents())

    def _has_left(self, host: str) -> bool:
        """Whether a host is gone for good: another manager has put it out."""
        return self._state.members.is_lost(host) and self._bus.documents.is_removed(host)

    async def _read(self, client: Client, host: str) -> tuple[bool, Desired | None]:
        """Whether it is known what the bus holds for a host, and that."""
        try:
            async with asyncio.timeout(READ_S):
                return True, await self._bus.documents.read(client, host)
        except JETSTREAM_ERRORS as error:
            _log.debug("a document cannot be read yet host=%s error=%s", host, error)
            return False, None
