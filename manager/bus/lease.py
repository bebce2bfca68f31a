"""Who leads a pod, where several managers share a bus: whoever holds its lease, a key of JetStream.

Its holder replaces it again and again, each time by compare-and-set. Others look at it; who has seen it stand still for
`LEASE_S` may take it by compare-and-set in its turn, so it is never taken by two; who knows that its holder runs no
more takes it at once. A holder leads so long from when it sent the last renewal that came through, less a margin:
others begin to count when they see that renewal, which is later. So everybody counts by a clock of its own, and none
needs to be right; the bus's servers count nothing, for copies of a stream that drop a message by their own clocks do
not agree on whether it is there. The revision by which the lease was taken is the leader's epoch, a fencing token:
higher than that of all who led before, whatever they still send. (Gray and Cheriton, Leases, SOSP 1989; Burrows, The
Chubby lock service, OSDI 2006.)
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct
from nats.aio.client import Client

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, Conflict, OneKey
from cwdp.shared.bus.connection import Bus
from manager.bus.pods import bucket_of

BUCKET = "cwdp-lease"
KEY = "leader"
LEASE_S = 3.5
BEAT_S = 0.25
UNCONNECTED_S = 0.05
MARGIN_S = 0.5
ANSWER_S = 1.0
COUNTERS = ("taken", "renewed", "lost", "failed")

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
        bus: by which the lease is reached, of whose pod it is.
        claim: who this manager is.
        on_change: called with True when it begins to lead, with False when it does no more.
        is_well: whether it may lead; where it may not, its lease lapses.

    Attributes:
        holder: who led when that was last read; None while that is not known, or nobody.
        epoch: the number of this manager's latest time as the leader; 0 before the first.
        others_led: whether others may have led before that, since this manager did.
        counters: totals by name (`COUNTERS`).
        gone: a manager (`Claim.manager`) that surely runs no more; None for nobody.
    """

    def __init__(
        self,
        bus: Bus,
        claim: Claim,
        on_change: Callable[[bool], None],
        is_well: Callable[[], bool] = lambda: True,
    ) -> None:
        self.claim = claim
        self.holder: Claim | None = None
        self.epoch, self.others_led = 0, True
        self.gone: str | None = None
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._bus = bus
        self._bucket = OneKey(bucket_of(BUCKET, bus.pod))
        self._on_change, self._is_well = on_change, is_well
        self._revision: int | None = None
        self._last_revision = -1
        self._sent_s = self._until_s = 0.0
        self._seen, self._seen_s = -1, 0.0
        self._busy = asyncio.Lock()

    @property
    def leads(self) -> bool:
        """Whether this manager leads, now: the time is looked at each time that it is asked."""
        return self._revision is not None and _now_s() < self._until_s

    async def run(self) -> None:
        """Try for the lease, or renew it, for ever."""
        while True:
            client = self._bus.session
            if client is not None and self._is_well():
                await self._beat(client)
            if self._revision is not None and not self.leads:
                self._step_down("it could not be renewed in time")
            await asyncio.sleep(self._pause_s() if client is not None else UNCONNECTED_S)

    def _pause_s(self) -> float:
        """Until when something is due: a renewal, or to take what lapses, or the end of this manager's own lease."""
        due_s = self._until_s if self.leads else self._seen_s + LEASE_S
        left_s = due_s - _now_s()
        return left_s if 0 < left_s < BEAT_S else BEAT_S

    async def confirm(self) -> bool:
        """Whether it is certain that this manager has led since this was asked: by renewing the lease."""
        asked_s, epoch, client = _now_s(), self.epoch, self._bus.session
        while client is not None and self._revision is not None and self._sent_s < asked_s:
            failed = self.counters["failed"]
            await self._beat(client)
            if self.counters["failed"] > failed:
                break
        return self.leads and self.epoch == epoch and self._sent_s >= asked_s

    async def release(self) -> None:
        """Let somebody else have it at once, on the way out."""
        client, revision = self._bus.session, self._revision
        if client is None or revision is None:
            return
        self._revision = None
        try:
            await asyncio.wait_for(self._bucket.replace(client, KEY, b"", revision=revision), ANSWER_S)
        except JETSTREAM_ERRORS as error:
            _log.debug("the lease lapses error=%s", error)

    async def _beat(self, client: Client) -> None:
        """Try or renew; no longer than this manager may lead, nor than a bus that works needs to answer."""
        within_s = ANSWER_S if self._revision is None else min(ANSWER_S, max(0.0, self._until_s - _now_s()))
        try:
            async with asyncio.timeout(within_s), self._busy:
                if self._revision is None:
                    await self._try_for(client)
                else:
                    await self._renew(client)
        except JETSTREAM_ERRORS as error:
            self._bucket.close()
            self.counters["failed"] += 1
            _log.debug("the lease is out of reach error=%s", error)

    async def _try_for(self, client: Client) -> None:
        revision, self.holder = await self._read(client)
        if revision != self._seen:
            self._seen, self._seen_s = revision, _now_s()
        is_others = self.holder is not None and self.holder.manager not in (self.claim.manager, self.gone)
        if is_others and _now_s() < self._seen_s + LEASE_S:
            return
        last = self._last_revision
        try:
            await self._claim(client, revision)
        except Conflict:
            return
        self.epoch = self._last_revision
        self.others_led = self.epoch != last + 1
        self.counters["taken"] += 1
        self.holder = self.claim
        _log.info("this manager leads name=%s epoch=%d", self.claim.name, self.epoch)
        self._on_change(True)

    async def _renew(self, client: Client) -> None:
        """Renew it; also where it was renewed and the answer lost. One that others took is lost."""
        assert self._revision is not None
        try:
            await self._claim(client, self._revision)
        except Conflict:
            revision, holder = await self._read(client)
            if holder is None or holder.manager != self.claim.manager:
                self._step_down("it was emptied" if holder is None else f"{holder.name} has taken it")
                return
            await self._claim(client, revision)
        self.counters["renewed"] += 1

    async def _claim(self, client: Client, revision: int) -> None:
        sent_s = _now_s()
        data = msgspec.json.encode(self.claim)
        self._revision = await self._bucket.replace(client, KEY, data, revision=revision)
        self._last_revision = self._revision
        self._sent_s, self._until_s = sent_s, sent_s + LEASE_S - MARGIN_S

    def _step_down(self, why: str) -> None:
        self._revision = self.holder = None
        self.counters["lost"] += 1
        _log.warning("this manager leads no more: %s", why)
        self._on_change(False)

    async def _read(self, client: Client) -> tuple[int, Claim | None]:
        """The key's revision, 0 where there is none, and whose it is."""
        await self._bucket.open(client)
        revision, data = await self._bucket.read(client, KEY)
        try:
            return revision, msgspec.json.decode(data, type=Claim)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return revision, None


def _now_s() -> float:
    """A clock that goes on while the machine sleeps: the lease at the server does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
