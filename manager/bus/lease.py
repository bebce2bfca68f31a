"""Who leads a pod, where several managers share a bus: whoever holds most registers of its lease, by the rule of `manager.bus.quorum`.

Each register is asked by itself, with a time limit of its own, and by a connection to another server where several are
known, so one server that stands still delays what is asked of no other. Nothing of it asks for who leads the servers.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct
from nats.aio.client import Client

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, Conflict
from cwdp.shared.bus.connection import Bus
from cwdp.shared.tasks import end, first_end, set_within
from manager.bus.quorum import BEAT_S, LEASE_S, Ask, Quorum
from manager.bus.registers import BUCKET, KEY, Registers

UNCONNECTED_S = 0.05
ANSWER_S = 1.0
CONFIRM_S = 2 * ANSWER_S
LOOK_S = 1.0
MAKE_S = 5.0
SHORTEST_S = 0.001

__all__ = ["ANSWER_S", "BEAT_S", "BUCKET", "KEY", "LEASE_S", "Claim", "Leadership", "Lease"]

_log = logging.getLogger("cwdp.manager.lease")


class Claim(Struct, frozen=True, kw_only=True):
    """Who a manager is: `manager` tells it from all others, `name` is for people."""

    manager: str
    name: str


class Leadership(Protocol):
    """What the rest of a manager asks of its lease; see `Lease`."""

    @property
    def claim(self) -> Claim:
        """Who this manager is."""

    @property
    def holder(self) -> Claim | None:
        """Who led when that was last read."""

    @property
    def epoch(self) -> int:
        """The number of this manager's latest time as the leader."""

    @property
    def others_led(self) -> bool:
        """Whether others may have led before that, since this manager did."""

    @property
    def counters(self) -> Counter[str]:
        """Totals by name."""

    @property
    def leads(self) -> bool:
        """Whether this manager leads, now."""


class Lease:
    """One manager's part in who leads.

    Args:
        buses: connections by which the lease is reached, each to another server where several are known; of whose pod it is.
        claim: who this manager is.
        on_change: called with True when it begins to lead, with False when it does no more.
        is_well: whether it may lead; where it may not, its lease lapses.

    Attributes:
        gone: a manager (`Claim.manager`) that surely runs no more; None for nobody.
    """

    def __init__(
        self,
        buses: Sequence[Bus],
        claim: Claim,
        on_change: Callable[[bool], None],
        is_well: Callable[[], bool] = lambda: True,
    ) -> None:
        self.claim = claim
        self.gone: str | None = None
        self._buses, self._on_change, self._is_well = buses, on_change, is_well
        self._registers = Registers(buses)
        self._rule = Quorum(claim.manager, claim.name, 1, random.Random())  # noqa: S311 - for how long to wait
        self._ways: list[_Way] = []
        self._asking: set[asyncio.Task[None]] = set()
        self._told_that_it_leads = False
        self._wake, self._news = asyncio.Event(), asyncio.Event()

    @property
    def holder(self) -> Claim | None:
        """Who led when that was last read; None while that is not known, or nobody."""
        held = self._rule.holder
        return None if held is None else Claim(manager=held.manager, name=held.name)

    @property
    def epoch(self) -> int:
        """The number of this manager's latest time as the leader; 0 before the first."""
        return self._rule.epoch

    @property
    def others_led(self) -> bool:
        """Whether others may have led before that, since this manager did."""
        return self._rule.others_led

    @property
    def counters(self) -> Counter[str]:
        """Totals by name (`COUNTERS` of `manager.bus.quorum`)."""
        return self._rule.counters

    @property
    def leads(self) -> bool:
        """Whether this manager leads, now: the time is looked at each time that it is asked."""
        return self._rule.leads(_now_s())

    async def run(self) -> None:
        """Try for the lease, or renew it, for ever."""
        try:
            await first_end(self._keep_on(), self._look_after())
        finally:
            await end(*self._asking)

    async def confirm(self) -> bool:
        """Whether it is certain that this manager has led since this was asked: by renewing the lease."""
        rule, asked_s, epoch = self._rule, _now_s(), self.epoch
        rule.hurry(asked_s)
        self._wake.set()
        while rule.leads(now_s := _now_s()) and rule.renewed_s < asked_s and now_s < asked_s + CONFIRM_S:
            await set_within(self._news, BEAT_S)
        return rule.leads(_now_s()) and rule.epoch == epoch and rule.renewed_s >= asked_s

    async def release(self) -> None:
        """Let somebody else have it at once, on the way out; it is not tried for any more."""
        held = self._rule.end()
        self._told_that_it_leads = False
        await end(*self._asking)
        client = self._client(0)
        if client is not None:
            await asyncio.gather(*(self._empty(number) for number in held))

    async def _keep_on(self) -> None:
        while True:
            client = self._client(0)
            if client is not None:
                self._fit(client)
            now_s = _now_s()
            if client is not None and self._is_well():
                for ask in self._rule.due(now_s, time.time()):
                    self._ask(ask)
            self._rule.lapse(now_s)
            self._tell()
            pause_s = UNCONNECTED_S if client is None else self._rule.pause_s(_now_s())
            await set_within(self._wake, max(SHORTEST_S, pause_s))
            self._wake.clear()
            for task in [each for each in self._asking if each.done()]:
                self._asking.remove(task)
                task.result()

    def _fit(self, client: Client) -> None:
        """Have the registers that the bus asks for: it may have become a cluster."""
        self._registers.fit(client)
        count, before = len(self._registers), self._rule
        if len(self._ways) == count:
            return
        before.end()
        self._rule = Quorum(self.claim.manager, self.claim.name, count, random.Random())  # noqa: S311
        self._rule.epoch, self._rule.counters = before.epoch, before.counters
        self._rule.gone = self.gone
        self._ways = [_Way(number) for number in range(count)]

    def _client(self, way: int) -> Client | None:
        """A connection that is ready, the one of this number rather than others."""
        order = [self._buses[(way + each) % len(self._buses)] for each in range(len(self._buses))]
        return next((bus.session for bus in order if bus.session is not None), None)

    def _ask(self, ask: Ask) -> None:
        task = asyncio.create_task(self._answer(self._rule, ask), name=f"register {ask.register}")
        task.add_done_callback(lambda _: self._wake.set())
        self._asking.add(task)

    async def _answer(self, rule: Quorum, ask: Ask) -> None:
        """Ask a register, no longer than a bus that works needs to answer, and tell the rule what came of it."""
        number, way = ask.register, self._ways[ask.register]
        try:
            async with asyncio.timeout(ANSWER_S):
                await way.looked.wait()
                client = self._client(way.bus)
                if client is None:
                    raise TimeoutError
                if ask.record is None:
                    revision, record = await self._registers.read(client, number)
                    rule.found(ask, revision, record, _now_s())
                else:
                    revision = await self._registers.replace(
                        client, number, ask.record, revision=ask.revision
                    )
                    rule.stored(ask, revision, _now_s())
        except Conflict:
            rule.refused(ask, _now_s())
        except JETSTREAM_ERRORS as error:
            way.bus, way.is_silent = way.bus + 1, True
            rule.failed(ask, _now_s())
            _log.debug("a register is out of reach register=%d error=%r", number + 1, error)
        if rule is self._rule:
            self._tell()
        self._news.set()
        self._news = asyncio.Event()

    def _tell(self) -> None:
        rule = self._rule
        if rule.leading == self._told_that_it_leads:
            return
        self._told_that_it_leads = rule.leading
        if rule.leading:
            _log.info("this manager leads name=%s epoch=%d", self.claim.name, rule.epoch)
        else:
            _log.warning("this manager leads no more: %s", rule.why)
        self._on_change(rule.leading)

    async def _look_after(self) -> None:
        """Make registers that are not there, for ever: each is looked for first, and again when it has not answered."""
        while True:
            for number, way in enumerate(self._ways):
                client = self._client(way.bus)
                if way.is_silent and client is not None:
                    way.is_silent = False
                    await self._look(client, number)
                    way.looked.set()
            is_new = any(not way.looked.is_set() for way in self._ways) or not self._ways
            await asyncio.sleep(UNCONNECTED_S if is_new else LOOK_S)

    async def _look(self, client: Client, number: int) -> None:
        try:
            async with asyncio.timeout(MAKE_S):
                await self._registers.make(client, number)
        except JETSTREAM_ERRORS as error:
            _log.debug("a register cannot be made now register=%d error=%r", number + 1, error)

    async def _empty(self, number: int) -> None:
        """Empty a register that is this manager's; twice, as what was asked before may still come."""
        try:
            async with asyncio.timeout(ANSWER_S):
                for _ in range(2):
                    client = self._client(self._ways[number].bus)
                    if client is None:
                        return
                    revision, record = await self._registers.read(client, number)
                    if record is None or record.manager != self.claim.manager:
                        return
                    nobodys = self._rule.nobody(record)
                    with contextlib.suppress(Conflict):
                        await self._registers.replace(client, number, nobodys, revision=revision)
                        return
        except JETSTREAM_ERRORS as error:
            _log.debug("a register lapses register=%d error=%r", number + 1, error)


@dataclass
class _Way:
    """How a register is reached.

    Attributes:
        bus: the number of the connection to ask by, of the lease's, over again after the last.
        is_silent: whether it has not answered, so that it may not be there.
        looked: set once it has been looked for.
    """

    bus: int
    is_silent: bool = True
    looked: asyncio.Event = field(default_factory=asyncio.Event)


def _now_s() -> float:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
