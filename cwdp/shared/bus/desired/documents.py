"""Desired documents on the bus: each under its host's key, written by compare-and-set, in parts where it is too long.

A document longer than a message of the bus lies in parts beside its host's key (`POD.HOST.1`, `POD.HOST.2`, ...), which are
written first; the key itself then holds how many there are. A key is replaced only by who has seen what it holds.
Who finds that somebody else has written it makes sure that it still leads first (see `manager.bus.lease`). Who goes on from
what a key held (`DocumentWriter.read`) replaces just that: any copy of the bucket may have answered, and one of them may
lag behind the others.

To hosts whose agents read them, changes since the document was written whole are written beside it (`POD.HOST.change`,
`cwdp.shared.bus.desired.changes`), until they together would be longer than the document.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import nats.js.errors
from nats.aio.client import Client

from cwdp.errors import BusError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, Conflict
from cwdp.shared.bus.desired import stored
from cwdp.shared.bus.desired.changes import KIND as CHANGE
from cwdp.shared.bus.desired.changes import change_of
from cwdp.shared.bus.desired.stored import (
    KIND,
    Held,
    Part,
    bucket,
    change_key,
    held_of,
    part_key,
    read,
)
from cwdp.shared.bus.messages import Desired, encode
from cwdp.shared.bus.sealing import Seal
from cwdp.shared.bus.subjects import document_key, down
from cwdp.shared.tasks import set_within

COUNTERS = ("written", "split", "changes", "removed", "failed", "too_large")
WRITTEN_AT_ONCE = 64
RETRY_S = 0.5
REMOVED_WITHIN_S = 5.0
HEADROOM_BYTES = 1024
"""Of a message, for what is not the part itself."""

_log = logging.getLogger("cwdp.bus")

Trouble = Callable[[str, int, str], None]
"""Told of documents that cannot be written: a host, how many others besides, and why."""


class TooLargeError(BusError):
    """A document is longer than all parts that it may have."""


class UnconfirmedError(BusError):
    """Somebody else has written a key, and who leads is not known now."""


class SupersededError(BusError):
    """What was gone on from was not the latest that an earlier leader wrote."""


@dataclass
class _Whole:
    """A document that is whole on the bus, and what may be written of changes to it.

    Attributes:
        left_bytes: of all changes together, before it is shorter to write the whole again; 0 where it may be gone.
        is_changed: whether there is a change to it.
    """

    document: Desired
    left_bytes: int
    is_changed: bool = False


@dataclass(frozen=True)
class _Leaving:
    """A host that has left for good; `removed` tells in the end whether nothing of it is on the bus."""

    host: str
    removed: "asyncio.Future[bool]"


class DocumentWriter:
    """Brings documents to the bus and keeps them there.

    Args:
        pod: in which the hosts are.
        seal: a leader's, that signs them.
        confirm: whether it is certain that this process may write, asked where somebody else has.
        on_trouble: told when some cannot be written, once for each reason.

    Attributes:
        counters: totals by name (`COUNTERS`).
        on_superseded: called with a host whose document is not written, as another one came after what was read.
        reads_changes: whether a host's agent takes in changes; others are always told the whole.
    """

    def __init__(
        self, pod: str, seal: Seal, *, confirm: Callable[[], Awaitable[bool]], on_trouble: Trouble
    ) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._pod, self._seal = pod, seal
        self._confirm, self._on_trouble = confirm, on_trouble
        self._bucket = bucket()
        self.on_superseded: Callable[[str], None] = lambda _host: None
        self.reads_changes: Callable[[str], bool] = lambda _host: False
        self._documents: dict[str, Desired] = {}
        self._wholes: dict[str, _Whole] = {}
        self._unwritten_since_s: dict[str, float] = {}
        self._next_try_s: dict[str, float] = {}
        self._held: dict[str, Held] = {}
        self._gone_on_from: dict[str, bytes] = {}
        self._superseded: set[str] = set()
        self._leaving: dict[str, _Leaving] = {}
        self._told: set[str] = set()
        self._wake = asyncio.Event()

    @property
    def unwritten(self) -> int:
        """How many documents are not on the bus as they should be."""
        return len(self._unwritten_since_s)

    def oldest_s(self) -> float:
        """For how long the one has not been that waits the longest, in seconds."""
        since_s = min(self._unwritten_since_s.values(), default=None)
        return 0.0 if since_s is None else time.monotonic() - since_s

    def put(self, document: Desired) -> None:
        """Keep a document on the bus from now on; not one that goes on from what was superseded, until that is read anew."""
        under = document_key(self._pod, document.host)
        if under in self._superseded:
            return
        self._end_leaving(under, is_removed=False)
        self._documents[under] = document
        self._unwritten_since_s.setdefault(under, time.monotonic())
        self._next_try_s.pop(under, None)
        self._wake.set()

    async def remove(self, host: str, *, within_s: float = REMOVED_WITHIN_S) -> None:
        """Keep nothing of a host that has left for good on the bus: its document, the parts of it, the change to it.

        Raises:
            BusError: it was not removed in time; it is tried again for as long as this process may write.
        """
        under = document_key(self._pod, host)
        self._documents.pop(under, None)
        leaving = self._leaving.get(under)
        if leaving is None:
            leaving = self._leaving[under] = _Leaving(host, asyncio.get_running_loop().create_future())
        self._unwritten_since_s.setdefault(under, time.monotonic())
        self._next_try_s.pop(under, None)
        self._wake.set()
        try:
            async with asyncio.timeout(within_s):
                is_removed = await asyncio.shield(leaving.removed)
        except TimeoutError:
            is_removed = False
        if not is_removed:
            raise BusError(f"what {host} was told is on the bus still", "try again")

    def is_removed(self, host: str) -> bool:
        """Whether what was read of a host's document last was that it has been removed."""
        held = self._held.get(document_key(self._pod, host))
        return held is not None and held.is_empty and held.revision > 0

    def put_whole(self) -> None:
        """Write those whole whose hosts' agents do not read their changes, as one of an older release begun since."""
        for under, whole in self._wholes.items():
            document = self._documents.get(under)
            if whole.is_changed and document is not None and not self.reads_changes(document.host):
                self.put(document)

    async def read(self, client: Client, host: str) -> Desired | None:
        """A host's document to go on from, whoever wrote it; None where there is none that can be read.

        Any copy tells it, unless what one told has turned out not to be the latest.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        await self._bucket.open(client)
        under = document_key(self._pod, host)
        found = await read(client, self._bucket, under, self._seal, latest=under in self._superseded)
        self._held[under], self._held[change_key(under)] = found.held, held_of(*found.change)
        self._gone_on_from[under] = found.change[1]
        self._wholes.pop(under, None)
        self._superseded.discard(under)
        return found.document()

    def withdraw(self) -> None:
        """Keep none any more: what is on the bus is others' from now on."""
        for memory in (self._documents, self._unwritten_since_s, self._next_try_s, self._held, self._wholes):
            memory.clear()
        self._gone_on_from.clear()
        self._superseded.clear()
        for under in list(self._leaving):
            self._end_leaving(under, is_removed=False)

    async def run(self, client: Client) -> None:
        """Write every document once a session, and each again when it changes, for as long as the session lasts."""
        now_s = time.monotonic()
        for key in (*self._documents, *self._leaving):
            self._unwritten_since_s.setdefault(key, now_s)
        self._next_try_s.clear()
        self._wholes.clear()
        while True:
            self._wake.clear()
            due = self._due()
            if due:
                await self._write_batch(client, due)
            else:
                await self._wait()

    def _due(self) -> list[str]:
        """Some that may be written now, those first that have waited longest."""
        now_s = time.monotonic()
        due = [key for key in self._unwritten_since_s if self._next_try_s.get(key, 0.0) <= now_s]
        return due[:WRITTEN_AT_ONCE]

    async def _wait(self) -> None:
        """Wait for a new document, or for when one may be tried again."""
        next_s = min(self._next_try_s.values(), default=None)
        await set_within(self._wake, None if next_s is None else max(0.0, next_s - time.monotonic()))

    async def _write_batch(self, client: Client, keys: list[str]) -> None:
        """Write these at the same time, each for itself."""
        outcomes = await asyncio.gather(*(self._try(client, key) for key in keys))
        failed = [
            (key, why)
            for key, why in zip(keys, outcomes, strict=True)
            if why is not None and (key in self._documents or key in self._leaving)
        ]
        if failed:
            self._bucket.close()
            for whole in self._wholes.values():
                whole.left_bytes = 0
        by_reason: dict[str, list[str]] = {}
        for key, why in failed:
            self._next_try_s[key] = time.monotonic() + RETRY_S
            whose = self._documents.get(key) or self._leaving[key]
            by_reason.setdefault(why, []).append(whose.host)
        for why in by_reason.keys() - self._told:
            first, *others = by_reason[why]
            _log.warning("documents are not written first=%s others=%d error=%s", first, len(others), why)
            self._on_trouble(first, len(others), why)
        self._told |= by_reason.keys()
        if not self._unwritten_since_s:
            self._told.clear()

    async def _try(self, client: Client, key: str) -> str | None:
        """Write one; why it could not be, None where it is written or nobody's business any more."""
        document, leaving, what = self._documents.get(key), self._leaving.get(key), "written"
        try:
            if document is not None:
                await self._write(client, key, document)
            elif leaving is not None:
                await self._remove(client, key)
                self._end_leaving(key, is_removed=True)
                what = "removed"
            else:
                return None
            why = None
        except SupersededError as error:
            self._give_up(key)
            what, why = "failed", error.message
        except TooLargeError as error:
            what, why = "too_large", error.message
        except UnconfirmedError as error:
            what, why = "failed", error.message
        except JETSTREAM_ERRORS as error:
            what, why = "failed", _why(error)
        self.counters[what] += 1
        if self._documents.get(key) is not document:
            return None
        if why is None:
            self._unwritten_since_s.pop(key, None)
            self._next_try_s.pop(key, None)
        return why

    def _give_up(self, key: str) -> None:
        """Leave a key as it is until it is gone on from anew."""
        document = self._documents.pop(key)
        self._superseded.add(key)
        for memory in (self._unwritten_since_s, self._next_try_s, self._held, self._wholes):
            memory.pop(key, None)
        self.on_superseded(document.host)

    def _end_leaving(self, key: str, *, is_removed: bool) -> None:
        """Remove nothing any more under a key."""
        leaving = self._leaving.pop(key, None)
        if leaving is not None and not leaving.removed.done():
            leaving.removed.set_result(is_removed)

    async def _remove(self, client: Client, key: str) -> None:
        """Remove a document; its head last, which tells how many parts there are."""
        for memory in (self._wholes, self._gone_on_from, self._held):
            memory.pop(key, None)
        self._held.pop(change_key(key), None)
        self._superseded.discard(key)
        await self._require_confirmed(key)
        await self._bucket.open(client)
        head = held_of(*await self._bucket.read(client, key))
        parts = (part_key(key, number) for number in range(1, min(head.parts, stored.MOST_PARTS) + 1))
        for each in (*parts, change_key(key), key):
            revision, data = await self._bucket.read(client, each)
            self._held.pop(each, None)
            if data:
                await self._bucket.delete(client, each, revision=revision)

    async def _write(self, client: Client, key: str, document: Desired) -> None:
        if not await self._write_change(client, key, document):
            await self._write_whole(client, key, document)

    async def _write_change(self, client: Client, key: str, document: Desired) -> bool:
        """Write what has changed since the document was written whole, if that is to be; whether it is."""
        whole = self._wholes.get(key)
        change = change_of(whole.document, document) if whole and self.reads_changes(document.host) else None
        if whole is None or change is None:
            return False
        data = self._seal.encode(CHANGE, change)
        if len(data) > min(whole.left_bytes, client.max_payload - HEADROOM_BYTES):
            return False
        whole.left_bytes -= len(data)
        whole.is_changed = True
        held = await self._look(client, change_key(key))
        try:
            revision = await self._bucket.replace(client, change_key(key), data, revision=held.revision)
        except Conflict:
            self._held.pop(change_key(key))
            await self._require_confirmed(key)
            return False
        self._held[change_key(key)] = Held(revision, document.epoch, 0)
        await client.publish(down(self._pod, document.host, CHANGE), data)
        self.counters["changes"] += 1
        return True

    async def _write_whole(self, client: Client, key: str, document: Desired) -> None:
        self._wholes.pop(key, None)
        data = self._seal.encode(KIND, document)
        most_bytes = client.max_payload - HEADROOM_BYTES
        pieces = [] if len(data) <= most_bytes else _cut(data, most_bytes)
        if len(pieces) > stored.MOST_PARTS:
            raise TooLargeError(
                f"the document of {document.host} has {len(data)} bytes, and {stored.MOST_PARTS * most_bytes} can be told"
            )
        before = await self._look(client, key)
        await self._hold_change(client, key)
        for number, piece in enumerate(pieces, start=1):
            part = Part(epoch=document.epoch, version=document.version, data=piece)
            await self._replace(client, part_key(key, number), encode(part), document.epoch)
        head = data if not pieces else self._seal.encode(KIND, _head(document, len(pieces)))
        await self._replace(client, key, head, document.epoch, parts=len(pieces))
        self.counters["split"] += bool(pieces)
        for number in range(len(pieces) + 1, min(before.parts, stored.MOST_PARTS) + 1):
            held = await self._look(client, part_key(key, number))
            await self._bucket.delete(client, part_key(key, number), revision=held.revision)
            self._held.pop(part_key(key, number), None)
        await self._remove_change(client, key, document.epoch)
        self._wholes[key] = _Whole(document, len(data))

    async def _hold_change(self, client: Client, key: str) -> None:
        """Make sure that no change has come after the one that was gone on from, and that none comes: it is written again."""
        data = self._gone_on_from.get(key)
        if data is None:
            return
        held = await self._look(client, change_key(key))
        try:
            revision = await self._bucket.replace(client, change_key(key), data, revision=held.revision)
        except Conflict:
            await self._require_confirmed(key)
            raise SupersededError(f"{key} has another change than was read") from None
        self._held[change_key(key)] = Held(revision, held.epoch, 0, is_empty=held.is_empty)

    async def _remove_change(self, client: Client, key: str, epoch: int) -> None:
        """Remove the change to the document before; one that says nothing any more does no harm till then."""
        held = await self._look(client, change_key(key))
        if held.is_empty:
            return
        if held.epoch > epoch:
            await self._require_confirmed(key)
        self._held.pop(change_key(key))
        with contextlib.suppress(Conflict):
            await self._bucket.delete(client, change_key(key), revision=held.revision)

    async def _replace(self, client: Client, key: str, data: bytes, epoch: int, *, parts: int = 0) -> None:
        held = await self._look(client, key)
        if held.epoch > epoch:
            await self._require_confirmed(key)
        try:
            revision = await self._bucket.replace(client, key, data, revision=held.revision)
        except Conflict:
            revision = await self._replace_others(client, key, data, epoch)
        self._gone_on_from.pop(key, None)
        self._held[key] = Held(revision, epoch, parts)

    async def _replace_others(self, client: Client, key: str, data: bytes, epoch: int) -> int:
        """Replace what somebody else has written, where that is certain to count no more; the new revision."""
        self._held.pop(key, None)
        held = await self._look(client, key, latest=True)
        await self._require_confirmed(key)
        if key in self._gone_on_from and held.epoch != epoch:
            raise SupersededError(f"{key} holds another document than was read")
        return await self._bucket.replace(client, key, data, revision=held.revision)

    async def _require_confirmed(self, key: str) -> None:
        if not await self._confirm():
            raise UnconfirmedError(f"somebody else has written {key}, and it is not known who leads")

    async def _look(self, client: Client, key: str, *, latest: bool = False) -> Held:
        """What a key holds, as far as that has been seen."""
        if key not in self._held:
            await self._bucket.open(client)
            self._held[key] = held_of(*await self._bucket.read(client, key, latest=latest))
        return self._held[key]


def _why(error: Exception) -> str:
    if isinstance(error, nats.js.errors.APIError) and error.description:
        return f"the bus refuses them: {error.description}"
    return f"the bus does not take them: {str(error) or type(error).__name__}"


def _cut(data: bytes, most_bytes: int) -> list[bytes]:
    return [data[start : start + most_bytes] for start in range(0, len(data), most_bytes)]


def _head(document: Desired, parts: int) -> Desired:
    return Desired(host=document.host, epoch=document.epoch, version=document.version, probes=[], parts=parts)
