"""One manager's part in the audits on the bus: who leads writes them, all others have the same in their files.

What is on the bus counts, and files are copies of it. Only audits that the leader has beyond those on the bus, as the bus could
not take them or has lost its store, are brought there.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace
from nats.aio.client import Client

from cwdp.errors import BusError, ManagerError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, Conflict
from cwdp.shared.bus.connection import Bus
from cwdp.shared.tasks import set_within
from manager.audit.service.kept import Files, Packed
from manager.audit.sharing.store import Entry, Index, Store, entry_of, lacking

LOOK_S = 2.0
GLANCE_S = 0.1
RETRY_S = 5.0
KNOWN_S = 3.0
"""So long who begins an audit waits at most until it is known which there are."""

PUT_S = 15.0
"""So long an audit that is over is waited for to be on the bus. It is tried again later."""

_log = logging.getLogger("cwdp.manager.audit")


class Shared:
    """Keeps files and bus alike.

    Args:
        bus: where audits are shared.
        files: this manager's own.
        epoch: of this manager, where it leads; None where it does not.
        confirm: whether it is certain that it leads.
        on_news: awaited when other audits are in the files than before.
    """

    def __init__(
        self,
        bus: Bus,
        files: Files,
        *,
        epoch: Callable[[], int | None],
        confirm: Callable[[], Awaitable[bool]],
        on_news: Callable[[], Awaitable[None]],
    ) -> None:
        self._bus, self._files, self._store = bus, files, Store(bus.pod)
        self._epoch, self._confirm, self._on_news = epoch, confirm, on_news
        self._index, self._revision = Index(), 0
        self._sealed: tuple[Client, int] | None = None
        self._digests: dict[int, str] = {}
        self._refused: set[str] = set()
        self._given_up: set[str] = set()
        self._busy, self._is_known = asyncio.Lock(), asyncio.Event()
        self._told = ""

    @property
    def last_number(self) -> int:
        """Of the audits on the bus, as far as is known; 0 for none."""
        return 0 if self._index.last is None else self._index.last.number

    async def known(self) -> None:
        """Wait until who leads knows which audits there are; not for long where the bus does not tell."""
        if not self._is_sealed:
            self._is_known.clear()
            await set_within(self._is_known, KNOWN_S)

    async def run(self) -> None:
        """Go on, for ever."""
        due_s, epoch = 0.0, None
        while True:
            began_to_lead = self._epoch() not in (None, epoch)
            if self._bus.connected and (began_to_lead or time.monotonic() >= due_s):
                epoch = self._epoch()
                due_s = time.monotonic() + (LOOK_S if await self._looks_well() else RETRY_S)
            await asyncio.sleep(GLANCE_S)

    async def _looks_well(self) -> bool:
        trouble = await self._try(self._look)
        if trouble not in ("", self._told):
            _log.warning("audits are not shared by the bus error=%s", trouble)
        self._told = trouble
        return not trouble

    async def put(self, number: int) -> str:
        """Bring one of the files to the bus, if it is not there; why that has not been done, "" where it has."""
        try:
            async with asyncio.timeout(PUT_S):
                return await self._try(lambda client: self._put(client, number))
        except TimeoutError:
            return f"not written within {PUT_S:.0f} s"

    @property
    def _is_sealed(self) -> bool:
        """Whether nothing of an earlier leader comes onto the bus any more, and so it is known what is there."""
        epoch, client = self._epoch(), self._bus.session
        return epoch is not None and client is not None and self._sealed == (client, epoch)

    async def _try(self, work: Callable[[Client], Awaitable[None]]) -> str:
        """Do something on the bus; why it came to nothing."""
        client = self._bus.session
        if client is None:
            return "there is no connection"
        async with self._busy:
            try:
                await work(client)
            except Conflict:
                self._begin_anew()
                return "another manager has written there"
            except (BusError, ManagerError) as error:
                return error.message
            except JETSTREAM_ERRORS as error:
                self._begin_anew()
                return str(error) or type(error).__name__
        return ""

    def _begin_anew(self) -> None:
        """Find out what is there before anything else is written: all of it may have been lost."""
        self._sealed = None
        self._store.close()

    async def _look(self, client: Client) -> None:
        if self._epoch() is None:
            self._sealed = None
            if await self._store.is_there(client):
                self._revision, self._index = await self._store.index(client)
        else:
            await self._require_sealed(client)
        if self._index.audits:
            await self._take_in(client)
        if self._epoch() is not None:
            for number in lacking(await asyncio.to_thread(self._files.numbers), self._index):
                if self._digests.get(number) not in self._refused:
                    await self._put(client, number)

    async def _require_sealed(self, client: Client) -> None:
        """Know what is there, and see to it that nothing of an earlier leader comes there any more."""
        epoch = self._epoch()
        if self._is_sealed or epoch is None:
            return
        await self._store.make(client)
        try:
            await self._seal(client, epoch, latest=False)
        except Conflict:
            await self._seal(client, epoch, latest=True)

    async def _seal(self, client: Client, epoch: int, *, latest: bool) -> None:
        revision, index = await self._store.index(client, latest=latest)
        await self._write(client, replace(index, epoch=epoch), revision)
        self._sealed = client, epoch
        self._is_known.set()

    async def _write(self, client: Client, index: Index, revision: int) -> None:
        """Say which audits there are.

        Raises:
            BusError: this manager may lead no more.
            Conflict: somebody else has said so.
        """
        if not await self._confirm():
            raise BusError("it is not certain that this manager leads", "ask another one")
        self._revision = await self._store.replace(client, index, revision)
        self._index = index

    async def _take_in(self, client: Client) -> None:
        """Have the same audits in the files."""
        has_news = False
        for entry in reversed(self._index.audits):
            if await asyncio.to_thread(self._digest, entry.number) != entry.digest:
                has_news |= await self._fetch(client, entry)
        for number in await asyncio.to_thread(self._outdated, self._index):
            await asyncio.to_thread(self._drop, number)
            has_news = True
        if has_news:
            await self._on_news()

    async def _fetch(self, client: Client, entry: Entry) -> bool:
        packed = await self._store.read(client, entry)
        if packed is None:
            return False
        try:
            await asyncio.to_thread(self._files.take_in, entry.number, packed)
        except OSError as error:
            raise ManagerError(f"audit {entry.number} cannot be kept: {error.strerror}") from error
        self._digests[entry.number] = entry.digest
        return True

    def _digest(self, number: int) -> str:
        """Of one in the files; "" for none."""
        if number not in self._digests:
            try:
                self._digests[number] = self._files.packed(number).digest
            except OSError:
                return ""
        return self._digests[number]

    def _outdated(self, index: Index) -> list[int]:
        """Those in the files that the bus has no more, or never had and has a later one."""
        there, after = {each.number for each in index.audits}, lacking(self._files.numbers(), index)
        assert index.last is not None
        last_s = index.last.ended_s
        return [
            number
            for number in self._files.numbers()
            if number not in there and (number not in after or self._ended_s(number) < last_s)
        ]

    def _ended_s(self, number: int) -> float:
        try:
            return self._files.ended_s(number)
        except ManagerError:
            return 0.0

    def _drop(self, number: int) -> None:
        self._digests.pop(number, None)
        try:
            self._files.drop(number)
        except OSError as error:
            raise ManagerError(f"audit {number} cannot be removed: {error.strerror}") from error

    async def _put(self, client: Client, number: int) -> None:
        if self._given_up:
            self._begin_anew()  # what was tried last may be there
        await self._require_sealed(client)
        packed, ended_s = await asyncio.to_thread(self._read, number)
        digest = self._digests[number] = await asyncio.to_thread(lambda: packed.digest)
        if any(each.digest == digest for each in self._index.audits):
            return
        if number <= self.last_number:
            raise ManagerError(f"the bus has another audit {self.last_number}")
        try:
            entry = entry_of(number, ended_s, secrets.token_hex(4), packed)
        except ManagerError:
            self._refused.add(digest)
            raise
        await self._store.sweep(client, self._index, self._given_up)
        self._given_up.add(entry.prefix)
        index = self._index.with_one(entry)
        if not await self._store.write(client, entry, packed, may_go_on=lambda: self._is_sealed):
            raise BusError("this manager leads no more", "ask another one")
        await self._write(client, index, self._revision)
        self._given_up.clear()
        with contextlib.suppress(*JETSTREAM_ERRORS):  # else before the next one
            await self._store.sweep(client, index)

    def _read(self, number: int) -> tuple[Packed, float]:
        try:
            return self._files.packed(number), self._files.ended_s(number)
        except OSError as error:
            raise ManagerError(f"audit {number} cannot be read: {error.strerror}") from error
