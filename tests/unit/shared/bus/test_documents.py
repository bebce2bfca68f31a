"""Desired documents over a real nats-server: too large, too many, refused, and written by two at once."""

import asyncio
import random
from pathlib import Path

import msgspec
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, bus_server, connect_as_manager, host_bus, leader_seal, manager_bus
from fakes import until
from test_bus import _buses

from cwdp.errors import BusError
from cwdp.shared.bus.desired import stored
from cwdp.shared.bus.messages import DESIRED_BUCKET, Desired, SteerQp
from cwdp.shared.bus.subjects import document_key, down

pytestmark = pytest.mark.needs("nats-server")


def _document(host: str, steered: int, version: int = 1, epoch: int = 1) -> Desired:
    """Some 100 bytes for each queue pair."""
    draw = random.Random(f"{host} {steered} {version}")
    steer = [
        SteerQp(
            nic="eth0",
            dst_addr=f"fd00:1234:5678:9abc::{draw.randrange(1 << 16):x}",
            qpn=number,
            sport=draw.randrange(49_152, 65_536),
            backup_sport=draw.randrange(49_152, 65_536),
        )
        for number in range(steered)
    ]
    return Desired(host=host, version=version, epoch=epoch, probes=[], steer=steer)


class _Readers:
    """The buses of some hosts, and the last document that each has taken in."""

    def __init__(self, url: str, hosts: list[str]) -> None:
        self.last: dict[str, Desired] = {}
        self.buses = [host_bus(url, host) for host in hosts]
        for bus, host in zip(self.buses, hosts, strict=True):
            bus.watch(host, lambda document: self.last.__setitem__(document.host, document))

    def have(self, *wanted: Desired) -> bool:
        return all(self.last.get(document.host) == document for document in wanted)


async def _stored(url: str, host: str) -> Desired:
    client = await connect_as_manager(url)
    try:
        found = await client.jetstream().get_last_msg(
            f"KV_{DESIRED_BUCKET}", f"$KV.{DESIRED_BUCKET}.{document_key(POD, host)}", direct=True
        )
        return leader_seal().opened(stored.KIND, Desired, found.data or b"")
    finally:
        await client.close()


@asynchronous
async def test_documents_that_no_message_holds_arrive_whole_and_keep_back_no_other(tmp_path: Path) -> None:
    draw = random.Random(21)
    large = {draw.randrange(90): draw.randrange(12_000, 45_000) for _ in range(3)}
    wanted = [_document(f"h{host}", large.get(host, draw.randrange(3))) for host in range(90)]
    async with bus_server(tmp_path) as server:
        writer = manager_bus(server.url, name="writer")
        readers = _Readers(server.url, [f"h{host}" for host in [*large, 0, 45, 89]])
        async with _buses(writer, *readers.buses):
            for document in wanted:
                writer.put(document)
            await until(lambda: writer.connected and writer.documents.unwritten == 0)
            await until(lambda: readers.have(*(wanted[host] for host in [*large, 0, 45, 89])))
            assert writer.documents.counters["split"] == len(large)
            late = _Readers(server.url, [f"h{host}" for host in large])
            async with _buses(*late.buses):
                await until(lambda: late.have(*(wanted[host] for host in large)))


@asynchronous
async def test_a_document_that_grows_and_shrinks_is_the_last_one_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async with bus_server(tmp_path) as server:
        writer, readers = manager_bus(server.url, name="writer"), _Readers(server.url, ["h"])
        async with _buses(writer, *readers.buses):
            for version, steered in enumerate((10, 50_000, 15_000, 30_000, 1), start=1):
                document = _document("h", steered, version)
                writer.put(document)
                await until(lambda document=document: readers.have(document))  # type: ignore[misc]
            await until(lambda: writer.documents.unwritten == 0)
        client = await connect_as_manager(server.url)
        store = await client.jetstream().key_value(DESIRED_BUCKET)
        assert await store.keys() == [document_key(POD, "h")]
        await client.close()


@asynchronous
async def test_of_a_host_that_has_left_nothing_stays_and_one_of_its_name_may_come(tmp_path: Path) -> None:
    """Its document in parts and the change to it; that of another host stays."""
    async with bus_server(tmp_path) as server:
        writer, readers = manager_bus(server.url, name="writer"), _Readers(server.url, ["h", "stays"])
        writer.documents.reads_changes = lambda _host: True
        async with _buses(writer, *readers.buses):
            long = _document("h", 50_000)
            for document in (long, _document("stays", 1)):
                writer.put(document)
            await until(lambda: writer.documents.unwritten == 0)
            writer.put(msgspec.structs.replace(long, version=2, steer=long.steer[1:]))
            await until(lambda: writer.documents.counters["changes"] == 1)
            client = await connect_as_manager(server.url)
            gone, stays = (document_key(POD, host) for host in ("h", "stays"))
            keys = [gone, stored.change_key(gone), *(stored.part_key(gone, number) for number in (1, 2, 3))]

            async def held(key: str) -> bytes:
                return (await stored.bucket().read(client, key))[1]

            assert all([await held(key) for key in (*keys, stays)])
            await writer.documents.remove("h")
            assert not any([await held(key) for key in keys])
            assert await held(stays)
            assert await writer.documents.read(client, "h") is None
            assert writer.documents.is_removed("h")
            assert await writer.documents.read(client, "another") is None
            assert not writer.documents.is_removed("another")
            again = _document("h", 2, version=3)
            writer.put(again)
            await until(lambda: readers.have(again))
            assert not writer.documents.is_removed("h")
            await client.close()


@asynchronous
async def test_who_is_not_sure_to_lead_removes_nothing(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        writer, readers = manager_bus(server.url, name="writer"), _Readers(server.url, ["h"])
        async with _buses(writer, *readers.buses):
            document = _document("h", 1)
            writer.put(document)
            await until(lambda: readers.have(document))
            writer.documents._confirm = _no
            with pytest.raises(BusError, match="on the bus still"):
                await writer.documents.remove("h", within_s=0.2)
            assert await _stored(server.url, "h") == document
            removing = asyncio.create_task(writer.documents.remove("h"))
            await asyncio.sleep(0)
            writer.documents.withdraw()
            with pytest.raises(BusError, match="on the bus still"):
                await removing
            assert await _stored(server.url, "h") == document


@asynchronous
async def test_a_document_longer_than_all_parts_is_named_and_keeps_back_no_other(tmp_path: Path) -> None:
    most, stored.MOST_PARTS = stored.MOST_PARTS, 1
    told: list[tuple[str, int, str]] = []
    try:
        async with bus_server(tmp_path) as server:
            writer = manager_bus(server.url, name="writer", on_trouble=lambda *what: told.append(what))
            async with _buses(writer):
                for host in range(70):
                    writer.put(_document(f"h{host}", 30_000 if host == 3 else 1))
                await until(lambda: writer.documents.counters["written"] == 69)
                assert writer.documents.unwritten == 1
                assert [host for host, _, _ in told] == ["h3"]
                assert "the document of h3 has" in told[0][2]
                writer.put(_document("h3", 1))
                await until(lambda: writer.documents.unwritten == 0)
    finally:
        stored.MOST_PARTS = most


@asynchronous
async def test_a_bus_that_is_full_is_told_of_once_and_for_how_long(tmp_path: Path) -> None:
    most, stored.MOST_BYTES = stored.MOST_BYTES, 1 << 20
    told: list[tuple[str, int, str]] = []
    try:
        async with bus_server(tmp_path) as server:
            writer = manager_bus(server.url, name="writer", on_trouble=lambda *what: told.append(what))
            async with _buses(writer):
                for host in range(40):
                    writer.put(_document(f"h{host}", 500))
                await until(lambda: writer.documents.counters["failed"] > 40)
                before_s = writer.documents.oldest_s()
                assert 0 < writer.documents.unwritten < 40
                assert len({why for _, _, why in told}) == len(told) > 0
                assert any(
                    "resources" in why or "storage" in why or "maximum bytes" in why for _, _, why in told
                )
                await until(lambda: writer.documents.oldest_s() > before_s)
    finally:
        stored.MOST_BYTES = most


async def _no() -> bool:
    return False


@pytest.mark.parametrize("has_written", [True, False])
def test_who_led_before_cannot_write_over_who_leads(tmp_path: Path, *, has_written: bool) -> None:
    """Suspended in the middle of a write, whether it has seen what is on the bus before or not."""

    async def run(tmp_path: Path) -> None:
        async with bus_server(tmp_path) as server:
            before, now = (
                manager_bus(server.url, name="before", confirm=_no),
                manager_bus(server.url, name="now"),
            )
            async with _buses(before, now):
                await until(lambda: before.connected and now.connected)
                if has_written:
                    before.put(_document("h", 1, version=5, epoch=7))
                    await until(lambda: before.documents.counters["written"] == 1)
                now.put(_document("h", 2, version=6, epoch=8))
                await until(lambda: now.documents.unwritten == 0)
                before.put(_document("h", 3, version=6, epoch=7))
                await until(lambda: before.documents.counters["failed"] > 1)
                assert await _stored(server.url, "h") == _document("h", 2, version=6, epoch=8)
                now.put(_document("h", 4, version=7, epoch=8))
                await until(lambda: now.documents.unwritten == 0)
                assert await _stored(server.url, "h") == _document("h", 4, version=7, epoch=8)

    asyncio.run(asyncio.wait_for(run(tmp_path), 30))


@asynchronous
async def test_who_leads_writes_over_what_came_late_from_who_led_before(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        before, now = manager_bus(server.url, name="before"), manager_bus(server.url, name="now")
        async with _buses(before, now):
            now.put(_document("h", 1, version=1, epoch=8))
            await until(lambda: now.documents.unwritten == 0 and before.connected)
            for version in (9, 10):
                before.put(_document("h", 2, version=version, epoch=7))
            await until(lambda: before.documents.unwritten == 0)
            now.put(_document("h", 3, version=2, epoch=8))
            await until(lambda: now.documents.unwritten == 0)
            assert await _stored(server.url, "h") == _document("h", 3, version=2, epoch=8)


@asynchronous
async def test_documents_that_are_withdrawn_while_they_are_written_end_nothing(tmp_path: Path) -> None:
    draw = random.Random(28)
    async with bus_server(tmp_path) as server:
        writer, readers = manager_bus(server.url, name="writer"), _Readers(server.url, ["h7"])
        async with _buses(writer, *readers.buses):
            await until(lambda: writer.connected)
            for version in range(1, 30):
                for host in range(150):
                    writer.put(_document(f"h{host}", 3, version))
                await asyncio.sleep(draw.uniform(0.0, 0.03))
                writer.documents.withdraw()
                assert writer.documents.unwritten == 0
            last = _document("h7", 3, version=30)
            writer.put(last)
            await until(lambda: readers.have(last))


@asynchronous
async def test_many_messages_are_sent_though_the_queue_holds_few(tmp_path: Path) -> None:
    got: list[Desired] = []
    subject = down(POD, "h", "many")
    async with bus_server(tmp_path) as server:
        listener, sender = host_bus(server.url, "h"), manager_bus(server.url)
        listener.subscribe(subject, Desired, got.append)
        async with _buses(listener, sender):
            await until(lambda: sender.connected and listener.connected)
            turns = 0

            async def turn() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            turning = asyncio.create_task(turn())
            await sender.publish_each((subject, _document("h", 0, i)) for i in range(7000))
            assert turns > 50
            turning.cancel()
            await until(lambda: len(got) == 7000)
            assert sender.counters["dropped_slow"] == 0


@asynchronous
async def test_nothing_is_written_after_what_was_superseded_before_it_is_read_anew(tmp_path: Path) -> None:
    """A change that was decided meanwhile goes on from the wrong document as well."""
    async with bus_server(tmp_path) as server:
        before, after = (manager_bus(server.url, name=name, confirm=_certain) for name in ("before", "after"))
        superseded: list[str] = []
        after.documents.on_superseded = superseded.append
        async with _buses(before, after):
            before.put(_document("h", 3, epoch=1))
            await until(lambda: before.connected and before.documents.unwritten == 0)
            await until(lambda: after.connected)
            assert after.session is not None
            await after.documents.read(after.session, "h")
            last = _document("h", 4, version=2, epoch=1)
            before.put(last)
            await until(lambda: before.documents.unwritten == 0)
            after.put(_document("h", 0, version=3, epoch=2))
            await until(lambda: superseded == ["h"])
            after.put(_document("h", 1, version=4, epoch=2))
            await asyncio.sleep(0.5)
            assert await _stored(server.url, "h") == last
            assert await after.documents.read(after.session, "h") == last
            mended = _document("h", 4, version=5, epoch=2)
            after.put(mended)
            await until(lambda: after.documents.unwritten == 0)
            assert await _stored(server.url, "h") == mended


async def _certain() -> bool:
    return True
