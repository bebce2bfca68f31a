"""What whoever leads must know, kept on the bus: the timeline's name, and what operators want.

The bus is what counts. A manager's own files are read only where the bus holds nothing, as after the loss of its store.
Each key is replaced by compare-and-set, and whoever begins to lead writes all of them back first: from then on nothing
that an earlier leader has still to say comes through.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
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

_log = logging.getLogger("cwdp.manager")


class BusState:
    """Brings tables to the bus, and back.

    Args:
        bus: where.
        confirm: whether it is certain that this manager leads.
        tables: the pod's, by the key under which each is kept.
        shared: those of the whole fleet: whose change comes too late takes what is there, and asks again.
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
        self._busy = asyncio.Lock()
        self._told = ""

    async def take_over(self, timeline: str) -> str | None:
        """Begin to lead: have the tables as they are on the bus.

        Args:
            timeline: the name to give it where it has none yet.

        Returns:
            Its name. None where the bus does not answer: nothing is known then, and nothing has been changed.
        """
        client = self._bus.session
        if client is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_S), self._busy:
                await self._bucket.open(client)
                name = await self._take_over_timeline(client, timeline)
                for key in self._tables:
                    await self._take_over_table(client, key)
        except JETSTREAM_ERRORS as error:
            self._bucket.close()
            if _text(error) != self._told:
                self._told = _text(error)
                _log.warning("what operators want cannot be read from the bus yet error=%s", self._told)
            return None
        self._told = ""
        return name

    async def send(self) -> None:
        """Have the tables on the bus.

        Raises:
            BusError: they are not; they may be with the next call.
        """
        try:
            async with asyncio.timeout(ANSWER_S), self._busy:
                for key, table in self._tables.items():
                    if table.revision != self._sent.get(key):
                        await self._send_table(self._bus.session, key)
        except JETSTREAM_ERRORS as error:
            self._bucket.close()
            raise BusError(
                f"the change cannot be kept on the bus: {_text(error)}", "nothing has been changed; try again"
            ) from error

    async def follow(self, key: str) -> None:
        """Have a table as it is on the bus, for a manager that waits; what is known stays while the bus does not answer."""
        async with self._busy:
            client = self._bus.session
            if client is None:
                return
            try:
                async with asyncio.timeout(FOLLOW_S):
                    revision, data = await self._bucket.read(client, self._under(key))
            except JETSTREAM_ERRORS:
                return
            if data and self._is_news(key, revision):
                self._load(key, revision, data)

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

    async def _take_over_timeline(self, client: Client, own: str) -> str:
        under = self._under(TIMELINE)
        revision, data = await self._bucket.read(client, under)
        try:
            name = msgspec.json.decode(data, type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            name = own
        await self._bucket.replace(client, under, msgspec.json.encode(name), revision=revision)
        return name

    async def _take_over_table(self, client: Client, key: str) -> None:
        self._revisions[key], data = await self._bucket.read(client, self._under(key))
        if data and (not self._load(key, self._revisions[key], data) or key in self._shared):
            return
        await self._send_table(client, key)

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
            before, theirs = await self._bucket.read(client, under)
            if key in self._shared and theirs != data:
                self._load(key, before, theirs)
                raise
            if not await self._confirm():
                raise
            revision = await self._bucket.replace(client, under, data, revision=before)
        self._revisions[key], self._sent[key], self._stored[key] = revision, sent, data
        if key in self._shared:
            self._shared[key].kept(sent)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
