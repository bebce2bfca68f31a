"""Audits on the bus: all managers have the same, whole or not at all, the last ones only, and only who leads writes."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.kv
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, bus_server, connect_as_manager, manager_bus
from fakes import until
from nats.aio.client import Client

from cwdp.errors import BusError
from cwdp.shared.audit.facts import HostFacts, Subject
from cwdp.shared.bus.buckets import stream_of
from cwdp.shared.tasks import end
from manager.audit.results import Audit
from manager.audit.service.kept import KEPT, Files, Finished, Packed
from manager.audit.sharing import shared as rules
from manager.audit.sharing import store as places
from manager.audit.sharing.shared import Shared
from manager.audit.sharing.store import PIECE_BYTES, ROOM_BYTES, Entry, Index, Store, entry_of

pytestmark = pytest.mark.needs("nats-server")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Managers look often."""
    monkeypatch.setattr(rules, "LOOK_S", 0.2)
    monkeypatch.setattr(rules, "RETRY_S", 0.4)


def _finished(number: int, by: str = "ann", ended_s: float = 0.0) -> Finished:
    nothing = Audit(results=[], hosts={"h1": number}, passed={}, not_applicable={})
    return Finished(
        number=number,
        level="facts",
        by=by,
        began_s=1.0,
        ended_s=ended_s or 1.0 + number,
        hosts=["h1"],
        audit=nothing,
        network=nothing,
    )


def _facts(host: str = "h1", size_bytes: int = 0) -> list[HostFacts]:
    """Whose compressed size is about so much."""
    noise = os.urandom(size_bytes).hex()
    return [HostFacts(host=host, taken_s=1.0, subjects=[Subject(kind="host", facts={"product": noise})])]


class _Manager:
    """What one has of audits."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        self.bus, self.files = manager_bus(url, name=name), Files(folder / name)
        self.epoch: int | None = None
        self.is_deposed, self.news = False, 0
        self.looking: asyncio.Task[None] | None = None
        self.shared = Shared(
            self.bus, self.files, epoch=lambda: self.epoch, confirm=self._confirm, on_news=self._count
        )

    async def _confirm(self) -> bool:
        return not self.is_deposed

    async def _count(self) -> None:
        self.news += 1

    @property
    def numbers(self) -> list[int]:
        return self.files.numbers()

    async def lead(self, epoch: int) -> None:
        self.epoch = epoch
        await self.shared.known()

    async def look_no_more(self) -> None:
        """Do only what is asked for."""
        assert self.looking is not None
        await end(self.looking)

    async def make(self, number: int, facts: list[HostFacts] | None = None, **known: Any) -> str:
        """Have made an audit; what is wrong with the bus."""
        self.files.keep(_finished(number, **known), facts or _facts())
        return await self.shared.put(number)


@asynccontextmanager
async def _running(folder: Path, url: str, name: str) -> AsyncIterator[_Manager]:
    made = _Manager(folder, url, name)
    made.bus.start()
    made.looking = asyncio.create_task(made.shared.run())
    try:
        await until(lambda: made.bus.connected)
        yield made
    finally:
        await end(made.looking)
        await made.bus.close()


@asynccontextmanager
async def _two(folder: Path) -> AsyncIterator[tuple[_Manager, _Manager, str]]:
    """One that leads, one that waits, and where their bus is."""
    async with (
        bus_server(folder / "nats") as server,
        _running(folder, server.url, "a") as first,
        _running(folder, server.url, "b") as second,
    ):
        await first.lead(1)
        yield first, second, server.url


async def _kept(client: Client) -> Index:
    return (await Store(POD).index(client))[1]


async def _pieces(client: Client) -> set[str]:
    """Which audits, and tries to write one, have pieces on the bus."""
    keys = await Store(POD)._bucket.keys(client)
    return {key.rpartition(".")[0] for key in keys} - {""}


@asynchronous
async def test_who_waits_has_the_same_to_the_byte(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, second, _):
        large = _facts(size_bytes=3 * PIECE_BYTES)
        assert await first.make(1) == ""
        assert await first.make(2, large) == ""
        await until(lambda: second.numbers == [1, 2])
        assert second.files.packed(2) == first.files.packed(2)
        assert second.files.read(2) == _finished(2)
        assert second.files.facts(2) == large
        assert second.shared.last_number == 2
        assert second.news > 0
        assert await first.shared.put(2) == ""


@asynchronous
async def test_who_begins_to_lead_a_new_fleet_waits_for_nothing(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server, _running(tmp_path, server.url, "a") as only:
        await asyncio.sleep(3 * rules.GLANCE_S)
        began_s = time.monotonic()
        await only.lead(1)
        assert time.monotonic() - began_s < rules.KNOWN_S
        assert await only.make(1) == ""


@asynchronous
async def test_a_manager_with_empty_files_has_all_soon(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, _, url):
        for number in range(1, 4):
            assert await first.make(number) == ""
        async with _running(tmp_path, url, "c") as third:
            await until(lambda: third.numbers == [1, 2, 3])


@asynchronous
async def test_the_oldest_go(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, second, url):
        for number in range(1, KEPT + 3):
            assert await first.make(number) == ""
        last = list(range(3, KEPT + 3))
        await until(lambda: second.numbers == last)
        client = await connect_as_manager(url)
        index = await _kept(client)
        assert [entry.number for entry in index.audits] == last
        assert await _pieces(client) == {entry.prefix for entry in index.audits}
        await client.close()


@asynchronous
async def test_one_that_was_written_in_part_is_never_shown_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _two(tmp_path) as (first, second, url):
        assert await first.make(1) == ""
        update, written = nats.js.kv.KeyValue.update, 0

        async def fails(self: nats.js.kv.KeyValue, key: str, value: bytes, *args: Any, **known: Any) -> int:
            nonlocal written
            written += 1
            if written > 2:
                first.epoch = None  # its manager has ended
                raise nats.errors.TimeoutError
            return await update(self, key, value, *args, **known)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats.js.kv.KeyValue, "update", fails)
            assert "timeout" in await first.make(2, _facts(size_bytes=3 * PIECE_BYTES))
        client = await connect_as_manager(url)
        assert len(await _pieces(client)) == 2
        await second.lead(2)
        await until(lambda: second.numbers == [1])
        assert [entry.number for entry in (await _kept(client)).audits] == [1]
        assert await second.make(2, by="bob") == ""
        index = await _kept(client)
        assert [entry.number for entry in index.audits] == [1, 2]
        assert await _pieces(client) == {entry.prefix for entry in index.audits}
        await client.close()


@asynchronous
async def test_pieces_that_a_leader_gave_up_are_removed_with_its_next_try(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, _, url):
        large = _facts(size_bytes=3 * PIECE_BYTES)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Shared, "_write", _refuses)
            assert await first.make(1, large) == "not now"
        assert await first.make(1, large) == ""
        client = await connect_as_manager(url)
        index = await _kept(client)
        assert await _pieces(client) == {entry.prefix for entry in index.audits}
        assert len(index.audits) == 1
        await client.close()


@asynchronous
async def test_pieces_of_later_audits_are_not_swept_by_who_led_before(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, second, url):
        assert await first.make(1) == ""
        client = await connect_as_manager(url)
        before = await _kept(client)
        await second.lead(2)
        assert await second.make(2) == ""
        await Store(POD).sweep(client, before)
        assert len(await _pieces(client)) == 2
        await client.close()


@asynchronous
async def test_an_audit_that_came_there_though_it_was_given_up_stays_whole(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, second, _):
        replaces = Store.replace

        async def replaces_unheard(*args: Any) -> int:
            await replaces(*args)
            raise BusError("not heard")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "replace", replaces_unheard)
            patch.setattr(Store, "read", _refuses)
            assert await first.make(1) == "not heard"
        assert await first.make(2) == ""
        await until(lambda: second.numbers == [1, 2])
        assert second.files.packed(1) == first.files.packed(1)


async def _refuses(*_: object) -> None:
    raise BusError("not now")


@asynchronous
async def test_a_leader_of_before_writes_no_more(tmp_path: Path) -> None:
    """It was suspended since it made sure that it leads; then it knows that it leads no more."""
    async with _two(tmp_path) as (first, second, url):
        assert await first.make(1) == ""
        await first.look_no_more()
        await second.lead(2)
        assert await second.make(2, by="bob") == ""
        assert await first.make(2, by="carl") == "another manager has written there"
        first.is_deposed = True
        assert "not certain" in await first.shared.put(2)
        async with _running(tmp_path, url, "c") as third:
            await until(lambda: third.numbers == [1, 2])
            assert third.files.read(2).by == second.files.read(2).by == "bob"


@asynchronous
async def test_what_the_bus_could_not_take_is_brought_there_later(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, second, _):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rules, "PUT_S", 0.0)
            assert "not written within" in await first.make(1)
        await until(lambda: second.numbers == [1])


@asynchronous
async def test_what_is_too_large_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LARGEST_BYTES", 10_000)
    async with _two(tmp_path) as (first, second, _):
        assert "bytes, and the bus takes 10,000" in await first.make(1, _facts(size_bytes=50_000))
        assert first.numbers == [1]
        assert await first.make(2) == ""
        await until(lambda: second.numbers == [2])


@asynchronous
async def test_a_bus_that_has_lost_its_store_is_given_all_again(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, second, url):
        for number in (1, 2):
            assert await first.make(number) == ""
        await until(lambda: second.numbers == [1, 2])
        client = await connect_as_manager(url)
        await client.jsm().delete_stream(stream_of(places.BUCKET))
        assert await first.make(3) != ""
        await until(lambda: second.numbers == [1, 2, 3])
        assert [entry.number for entry in (await _kept(client)).audits] == [1, 2, 3]
        await client.close()


@asynchronous
async def test_where_two_have_made_audits_apart_those_of_the_leader_count(tmp_path: Path) -> None:
    """As after an upgrade from a release whose managers kept their own."""
    for name, numbers in (("a", (1, 2, 3)), ("b", (1, 2, 3, 4, 5))):
        files = Files(tmp_path / name)
        for number in numbers:
            files.keep(_finished(number, by=name, ended_s=number + 10.0 * (name == "a")), _facts())
    async with _two(tmp_path) as (first, second, _):
        await until(lambda: second.numbers == [1, 2, 3] and second.files.read(3).by == "a")
        assert {second.files.read(number).by for number in second.numbers} == {"a"}
        assert first.numbers == [1, 2, 3]


def _entry(number: int, size_bytes: int) -> Entry:
    return Entry(number=number, ended_s=1.0, stamp="x", digest="", verdicts_bytes=0, facts_bytes=size_bytes)


def test_large_ones_leave_room_for_fewer() -> None:
    index = Index(audits=[_entry(number, ROOM_BYTES // 4) for number in range(1, 5)])
    assert [each.number for each in index.with_one(_entry(5, 10)).audits] == [2, 3, 4, 5]
    assert [each.number for each in index.with_one(_entry(5, ROOM_BYTES // 2)).audits] == [3, 4, 5]


def test_an_audit_is_cut_into_pieces() -> None:
    packed = Packed(b"v" * 10, b"f" * PIECE_BYTES)
    entry = entry_of(7, 1.0, "abcd", packed)
    assert entry.pieces() == ["7.abcd.0", "7.abcd.1"]
    assert _entry(1, 2 * PIECE_BYTES).pieces() == ["1.x.0", "1.x.1"]
