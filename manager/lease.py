"""Who leads, where several managers share a bus: whoever holds the lease, a key of JetStream that lapses by itself.

It is taken by compare-and-set, so never by two, and renewed several times before it lapses. A manager that could not
renew it in time stops leading before anybody else can begin to. (Gray and Cheriton, Leases, SOSP 1989.)
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import nats.errors
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StorageType
from nats.js.kv import KeyValue

from cwdp.shared.bus import Bus

BUCKET = "cwdp-leader"
KEY = "leader"
LEASE_S = 5.0
BEAT_S = 1.0
MARGIN_S = 0.5
COUNTERS = ("taken", "renewed", "lost", "failed")

_SUBJECT = f"$KV.{BUCKET}.{KEY}"
_ERRORS = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError)

_log = logging.getLogger("cwdp.manager.lease")


class Claim(Struct, frozen=True, kw_only=True):
    """Who a manager is: `manager` tells it from all others, `name` is for people; `timeline` is what it keeps."""

    manager: str
    name: str
    timeline: str


class Lease:
    """One manager's part in who leads.

    Args:
        bus: by which the lease is reached.
        claim: who this manager is.
        on_change: called with True when it begins to lead, with False when it does no more.

    Attributes:
        holder: who led when that was last read; None while that is not known, or nobody.
        earlier: who else has led since this manager did, as far as it has seen.
        counters: totals by name (`COUNTERS`).
    """

    def __init__(self, bus: Bus, claim: Claim, on_change: Callable[[bool], None]) -> None:
        self.claim = claim
        self.holder: Claim | None = None
        self.earlier: Claim | None = None
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._bus = bus
        self._on_change = on_change
        self._revision: int | None = None
        self._renewed_s = 0.0
        self._store: tuple[Client, KeyValue] | None = None

    @property
    def leads(self) -> bool:
        """Whether this manager leads."""
        return self._revision is not None

    async def run(self) -> None:
        """Try for the lease, or renew it, for ever."""
        while True:
            started = time.monotonic()
            client = self._bus.session
            if client is not None:
                await self._beat(client, started)
            if self.leads and time.monotonic() - self._renewed_s > LEASE_S - MARGIN_S:
                self._lose("it could not be renewed in time")
            await asyncio.sleep(BEAT_S if client is not None else BEAT_S / 10)

    async def release(self) -> None:
        """Let somebody else have it at once, on the way out."""
        client, revision = self._bus.session, self._revision
        if client is None or revision is None:
            return
        self._revision = None
        try:
            store = await self._opened(client)
            await asyncio.wait_for(store.update(KEY, b"", last=revision), BEAT_S)
        except _ERRORS as error:
            _log.debug("the lease lapses by itself error=%s", error)

    async def _beat(self, client: Client, started: float) -> None:
        try:
            async with asyncio.timeout(LEASE_S - MARGIN_S):
                store = await self._opened(client)
                if self._revision is None:
                    await self._try_for(client, store, started)
                else:
                    await self._renew(client, store, started)
        except _ERRORS as error:
            self._store = None
            self.counters["failed"] += 1
            _log.debug("the lease is out of reach error=%s", error)

    async def _opened(self, client: Client) -> KeyValue:
        """The bucket; made anew in each session, as it is in memory only."""
        if self._store is None or self._store[0] is not client:
            config = KeyValueConfig(
                bucket=BUCKET, history=1, ttl=LEASE_S, storage=StorageType.MEMORY, direct=True
            )
            self._store = client, await client.jetstream().create_key_value(config)
        return self._store[1]

    async def _try_for(self, client: Client, store: KeyValue, started: float) -> None:
        revision, self.holder = await _read(client)
        if self.holder is not None and self.holder.manager != self.claim.manager:
            self.earlier = self.holder
            return
        try:
            self._revision = await store.update(KEY, msgspec.json.encode(self.claim), last=revision)
        except nats.js.errors.KeyWrongLastSequenceError:
            return
        self.counters["taken"] += 1
        self._renewed_s = started
        self.holder = self.claim
        _log.info(
            "this manager leads name=%s earlier=%s",
            self.claim.name,
            self.earlier.name if self.earlier else "-",
        )
        self._on_change(True)

    async def _renew(self, client: Client, store: KeyValue, started: float) -> None:
        """Renew it; one that lapsed meanwhile, or was renewed with the answer lost, is taken anew unless it is another's."""
        claim = msgspec.json.encode(self.claim)
        try:
            self._revision = await store.update(KEY, claim, last=self._revision)
        except nats.js.errors.KeyWrongLastSequenceError:
            revision, holder = await _read(client)
            if holder is not None and holder.manager != self.claim.manager:
                self._lose(f"{holder.name} has taken it")
                return
            self._revision = await store.update(KEY, claim, last=revision)
        self.counters["renewed"] += 1
        self._renewed_s = started

    def _lose(self, why: str) -> None:
        self._revision = self.holder = self.earlier = None
        self.counters["lost"] += 1
        _log.warning("this manager leads no more: %s", why)
        self._on_change(False)


async def _read(client: Client) -> tuple[int, Claim | None]:
    """The key's revision, 0 where there is none, and whose it is; see `cwdp.shared.bus` for the direct get."""
    try:
        found = await client.jetstream().get_last_msg(f"KV_{BUCKET}", _SUBJECT, direct=True)
    except nats.js.errors.NotFoundError:
        return 0, None
    try:
        return found.seq or 0, msgspec.json.decode(found.data or b"", type=Claim)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return found.seq or 0, None
