"""What whoever leads must know, kept on the bus: the timeline's name, and what operators want.

The bus is what counts. A manager's own files are read only where the bus holds nothing, as after the loss of its store.
Each key is replaced by compare-and-set, and whoever begins to lead writes all of them back: from then on nothing
that an earlier leader has still to say comes through. That may take seconds, while the servers elect who leads the copies, and is
not waited for: what comes through until then is taken in, and changes by operators are refused.

Who waits reads all of it every second, and begins with that, without asking anybody, where it is new enough.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
from nats.aio.client import Client

from cwdp.errors import BusError, ManagerError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, Bucket, Conflict
from cwdp.shared.bus.connection import Bus
from manager.bus.pods import key_of


class Table(Protocol):
    """What can be kept."""

    revision: int

    def dump(self) -> bytes:
        """All of it."""

    def load(self, data: bytes) -> None:
        """Have what was kept.

        Raises:
            ManagerError: it is none of that.
        """


class SharedTable(Table, Protocol):
    """What leaders of all pods change."""

    def kept(self, revision: int) -> None:
        """It is on the bus as it was at a revision."""

    def ask_again(self) -> None:
        """Ask once more for what was asked for and did not come onto the bus, as somebody else's change was there first."""


BUCKET = "cwdp-wishes"
MOST_BYTES = 1 << 28
TIMELINE = "timeline"
ANSWER_S = 2.0
FOLLOW_S = 0.5
NEW_S, SEEN_S = 1.5, 5.0
"""What was read a shorter time ago is begun with at once, as nobody has led for longer; what is older than the other, never."""

_log = logging.getLogger("cwdp.manager")


@dataclass(frozen=True)
class _Seen:
    """What a key held when it was read at `at_s`, by a clock that goes on while the machine sleeps."""

    revision: int
    data: bytes
    at_s: float


class BusState:
    """Brings tables to the bus, and back.

    Args:
        bus: where.
        confirm: whether it is certain that this manager leads.
        tables: the pod's, by the key under which each is kept.
        shared: those of the whole fleet: whose change comes too late takes what is there, and asks again.

    Attributes:
        on_news: called when a table is another one, as an earlier leader's change came through after this one had begun.
    """

    def __init__(
        self,
        bus: Bus,
        confirm: Callable[[], Awaitable[bool]],
        tables: Mapping[str, Table],
        shared: Mapping[str, SharedTable],
    ) -> None:
        self._bus, self._confirm = bus, confirm
        self._shared = shared
        self._bucket = Bucket(BUCKET, max_bytes=MOST_BYTES)
        self._tables = {**tables, **shared}
        self._revisions: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._stored: dict[str, bytes] = {}
        self._seen: dict[str, _Seen] = {}
        self._unsealed: set[str] = set()
        self.on_news: Callable[[], None] = lambda: None
        self._busy = asyncio.Lock()
        self._told = ""

    async def take_over(self, timeline: str) -> str | None:
        """Begin to lead: have the tables as they are on the bus, or were when they were last seen there.

        Args:
            timeline: the name to give it where it has none yet.

        Returns:
            Its name. None where it is not known, or cannot be given one: then nothing has been changed.
        """
        client = self._bus.session
        if client is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_S), self._busy:
                await self._see_again(client)
                name, is_kept = self._begin(timeline)
                if not is_kept:
                    await self._seal(client)
                    await self._send_changed(client)
        except JETSTREAM_ERRORS as error:
            self._bucket.close()
            self._seen.clear()
            if _text(error) != self._told:
                self._told = _text(error)
                _log.warning("what operators want cannot be read from the bus yet error=%s", self._told)
            return None
        self._told = ""
        return name

    async def seal(self) -> None:
        """See to it that nothing of an earlier leader comes onto the bus any more.

        Raises:
            BusError: it may still.
        """
        if self._unsealed:
            await self._write(self._seal)

    async def send(self) -> None:
        """Have the tables on the bus, once nothing of an earlier leader comes there any more.

        Raises:
            BusError: they are not; they may be with the next call.
        """
        await self._write(self._seal, self._send_changed)

    async def _write(self, *steps: Callable[[Client | None], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(ANSWER_S), self._busy:
                for step in steps:
                    await step(self._bus.session)
        except JETSTREAM_ERRORS as error:
            self._bucket.close()
            raise BusError(
                f"the change cannot be kept on the bus: {_text(error)}", "nothing has been changed; try again"
            ) from error

    async def look(self, *followed: str) -> None:
        """Know all that is there, and have some tables as they are; what is known stays while the bus does not answer."""
        client = self._bus.session
        if client is None:
            return
        before, known = dict(self._seen), dict(self._revisions)
        await self._see_all(client)
        for key in followed:
            seen = self._seen.get(key)
            is_same = seen is before.get(key) or self._revisions.get(key) != known.get(key)
            if seen is None or not seen.data or is_same or self._busy.locked():
                continue
            if self._is_news(key, seen.revision):
                self._load(key, seen.revision, seen.data)

    def _is_news(self, key: str, revision: int) -> bool:
        """Whether a table that was read is to be followed. Others may change what is shared, and a copy that lags tells less."""
        known = self._revisions.get(key, -1)
        return revision > known if key in self._shared else revision != known

    def _under(self, key: str) -> str:
        return key if key in self._shared else key_of(key, self._bus.pod)

    def revert(self) -> None:
        """Have the pod's tables again as they are known to be on the bus."""
        for key, table in self._tables.items():
            if key not in self._shared and table.revision != self._sent.get(key) and key in self._stored:
                table.load(self._stored[key])

    async def _see_all(self, client: Client, within_s: float = FOLLOW_S) -> list[Exception]:
        """Read all keys at the same time; why some could not be."""
        told = await asyncio.gather(*(self._see(client, key, within_s) for key in (TIMELINE, *self._tables)))
        return [error for error in told if error is not None]

    async def _see(self, client: Client, key: str, within_s: float) -> Exception | None:
        try:
            async with asyncio.timeout(within_s):
                revision, data = await self._bucket.read(client, self._under(key))
        except JETSTREAM_ERRORS as error:
            return error
        known = self._seen.get(key)
        now_s = _now_s()
        if known is None or revision >= known.revision or now_s > known.at_s + SEEN_S:  # copies may lag
            self._seen[key] = _Seen(revision, data, now_s)
        return None

    async def _see_again(self, client: Client) -> None:
        """Read what is not known well enough to begin with."""
        if self._is_seen(NEW_S) and all(seen.data for seen in self._seen.values()):
            return
        if self._is_seen(SEEN_S):
            await self._see_all(client)
            return
        await self._bucket.open(client)
        for error in await self._see_all(client, within_s=ANSWER_S):
            raise error

    def _is_seen(self, within_s: float) -> bool:
        """Whether what each key holds was read at most so long ago."""
        since_s = _now_s() - within_s
        return all(key in self._seen and self._seen[key].at_s > since_s for key in (TIMELINE, *self._tables))

    def _begin(self, timeline: str) -> tuple[str, bool]:
        """Have what was seen; the timeline's name, and whether the bus holds that and a table for each key."""
        self._unsealed.clear()
        is_kept = True
        for key in self._tables:
            seen = self._seen[key]
            if seen.data:
                is_read = self._load(key, seen.revision, seen.data)
                if is_read and key not in self._shared:
                    self._unsealed.add(key)
            else:
                self._revisions[key], is_kept = seen.revision, False
                self._sent.pop(key, None)
        seen = self._seen[TIMELINE]
        try:
            name = msgspec.json.decode(seen.data, type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            name, is_kept = timeline, False
        self._revisions[TIMELINE], self._stored[TIMELINE] = seen.revision, msgspec.json.encode(name)
        self._unsealed.add(TIMELINE)
        return name, is_kept

    async def _seal(self, client: Client | None) -> None:
        for key in sorted(self._unsealed):
            await self._write_back(client, key)
            self._unsealed.discard(key)

    async def _send_changed(self, client: Client | None) -> None:
        for key, table in self._tables.items():
            if table.revision != self._sent.get(key):
                await self._send_table(client, key)

    async def _write_back(self, client: Client | None, key: str) -> None:
        """Replace a key by what it holds, so that nobody who saw it before replaces it any more."""
        if client is None:
            raise TimeoutError("there is no connection")
        data, under = self._stored[key], self._under(key)
        try:
            revision = await self._bucket.replace(client, under, data, revision=self._revisions[key])
        except Conflict:
            before, theirs = await self._bucket.read(client, under, latest=True)
            if (key == TIMELINE and theirs not in (b"", data)) or not await self._confirm():
                raise
            latest = theirs or data
            revision = await self._bucket.replace(client, under, latest, revision=before)
            if latest != data:
                self._load(key, revision, latest)
                self.on_news()
        self._revisions[key] = revision

    def _load(self, key: str, revision: int, data: bytes) -> bool:
        """Have a table as it is on the bus; whether it can be read."""
        table = self._tables[key]
        self._revisions[key] = revision
        try:
            table.load(data)
            self._stored[key] = data
        except ManagerError as error:
            _log.error("what the bus holds under %s is left as it is: %s", key, error.message)
            return False
        finally:
            self._sent[key] = table.revision
        if key in self._shared:
            self._shared[key].ask_again()
        return True

    async def _send_table(self, client: Client | None, key: str) -> None:
        if client is None:
            raise TimeoutError("there is no connection")
        table = self._tables[key]
        data, sent, under = table.dump(), table.revision, self._under(key)
        try:
            revision = await self._bucket.replace(client, under, data, revision=self._revisions.get(key, 0))
        except Conflict:  # by somebody who leads now, or by this one, the answer lost
            before, theirs = await self._bucket.read(client, under, latest=True)
            if key in self._shared and theirs != data:
                self._load(key, before, theirs)
                raise
            if not await self._confirm():
                raise
            revision = await self._bucket.replace(client, under, data, revision=before)
        self._revisions[key], self._sent[key], self._stored[key] = revision, sent, data
        if key in self._shared:
            self._shared[key].kept(sent)


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
