"""Changes of documents: what they make of one is what was wanted, and nothing else is ever followed."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import POD, bus_server, connect_as_manager, host_bus, leader_seal, manager_bus
from fakes import until
from msgspec.structs import replace
from nats.aio.client import Client

from cwdp.agent.fence import Fence
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.desired import stored
from cwdp.shared.bus.desired.changes import KIND, change_of, changed, changes
from cwdp.shared.bus.desired.stored import change_key
from cwdp.shared.bus.messages import (
    DESIRED_BUCKET,
    Desired,
    Detour,
    ProbeEdge,
    RoceSettings,
    Spread,
    SteerQp,
    TraceOrder,
    encode,
)
from cwdp.shared.bus.subjects import document_key, down
from cwdp.shared.tcp import SteerTcp

KEY = document_key(POD, "h")


def _steer(number: int, sport: int = 50_000) -> SteerQp:
    return SteerQp(nic=f"eth{number % 8}", dst_addr="10.0.0.9", qpn=number, sport=sport, backup_sport=60_000)


def _connection(number: int, sport: int) -> SteerTcp:
    return SteerTcp(
        nic="eth0",
        local_addr="10.0.0.1",
        remote_addr=f"10.0.0.{2 + number % 2}",
        local_port=40_000 + number,
        remote_port=5_201,
        sport=sport,
    )


def _document(version: int, *, steered: int = 256, epoch: int = 1) -> Desired:
    return Desired(
        host="h", version=version, epoch=epoch, probes=[], steer=[_steer(i) for i in range(steered)]
    )


def _moved(document: Desired, number: int, sport: int) -> Desired:
    """One queue pair steered elsewhere, in the next version."""
    steer = [replace(one, sport=sport) if one.qpn == number else one for one in document.steer]
    return replace(document, version=document.version + 1, steer=steer)


def _content(document: Desired) -> tuple[object, ...]:
    """What it says, in any order."""
    lists = [
        sorted(map(repr, found))
        for found in (
            document.steer,
            document.traces,
            document.detours,
            document.spreads,
            document.tcp,
            document.tcp_traces,
        )
    ]
    return *lists, replace(document, steer=[], traces=[], detours=[], spreads=[], tcp=[], tcp_traces=[])


@pytest.mark.parametrize("seed", range(20))
def test_what_a_change_makes_of_a_document_is_the_other(seed: int) -> None:
    draw = random.Random(seed)

    def some(version: int) -> Desired:
        numbers = draw.sample(range(40), draw.randrange(40))
        return replace(
            _document(version, steered=0),
            steer=[_steer(i, draw.choice((50_000, 50_001))) for i in numbers],
            traces=[
                TraceOrder(nic="eth0", dst_addr=f"10.0.0.{i}", sports=[draw.choice((1, 2))]) for i in numbers
            ],
            tcp_traces=[
                TraceOrder(nic="eth0", dst_addr=f"10.0.1.{i}", sports=[draw.choice((1, 2))]) for i in numbers
            ],
            tcp=[_connection(i, draw.choice((50_000, 50_001))) for i in numbers],
            detours=[Detour(nic="eth1", dst_addr=f"10.0.0.{i}", other_addr=None, sport=7) for i in numbers],
            spreads=[
                Spread(nic="eth1", dst_addr=f"10.0.0.{i}", sports=[50_000 + len(numbers)]) for i in numbers
            ],
            report_interval_s=draw.choice((0.25, 1.0)),
        )

    base, wanted = some(3), some(4)
    change = change_of(base, wanted)
    assert change is not None
    assert changes(base, change)
    assert _content(changed(base, change)) == _content(wanted)


def test_a_change_is_to_one_document_of_one_leader_only() -> None:
    base = _document(3)
    change = change_of(base, _moved(base, 7, 50_001))
    assert change is not None
    assert (len(change.steer), len(encode(change)) < 300) == (1, True)
    others = [
        replace(base, version=2),
        replace(base, epoch=2),
        replace(base, led_since_s=1.0),
        replace(base, host="i"),
    ]
    assert not any(changes(other, change) for other in others)
    assert all(change_of(other, _moved(base, 7, 50_001)) is None for other in others[1:])


@dataclass
class _Told:
    """A manager's bus and that of a host, what it was handed on, and a bare client that may do all that managers may."""

    url: str
    writer: Bus
    host: Bus
    told: list[Desired]
    client: Client

    async def write(self, document: Desired) -> None:
        """Have it on the bus and at the host."""
        self.writer.put(document)
        await until(lambda: self.writer.documents.unwritten == 0)
        await until(lambda: self.has(document))

    def has(self, document: Desired) -> bool:
        return bool(self.told) and _content(self.told[-1]) == _content(document)

    async def stored(self) -> Desired | None:
        found = await stored.read(self.client, stored.bucket(), KEY, leader_seal())
        return found.document()

    async def bytes_of(self, key: str) -> bytes:
        return (await stored.bucket().read(self.client, key))[1]

    async def keys(self) -> list[str]:
        return list(await (await self.client.jetstream().key_value(DESIRED_BUCKET)).keys())


@asynccontextmanager
async def _told(path: Path) -> AsyncIterator[_Told]:
    async with bus_server(path) as server:
        writer, host = manager_bus(server.url, name="writer"), host_bus(server.url, "h")
        writer.documents.reads_changes = lambda _host: True
        told: list[Desired] = []
        host.watch("h", told.append)
        for bus in (writer, host):
            bus.start()
        await until(lambda: writer.connected and host.connected)
        client = await connect_as_manager(server.url)
        try:
            yield _Told(server.url, writer, host, told, client)
        finally:
            await client.close()
            for bus in (writer, host):
                await bus.close()


@pytest.mark.needs("nats-server")
@asynchronous
async def test_one_move_writes_a_short_message_and_many_the_document_anew(tmp_path: Path) -> None:
    async with _told(tmp_path) as fleet:
        document = _document(1)
        await fleet.write(document)
        whole = await fleet.bytes_of(KEY)
        counters, written = fleet.writer.documents.counters, 0
        for number in range(100):
            document = _moved(document, number, 50_001 + number)
            before = counters["changes"]
            await fleet.write(document)
            if counters["changes"] > before:
                written += len(await fleet.bytes_of(change_key(KEY)))
            else:
                written += len(await fleet.bytes_of(KEY))
                assert await fleet.keys() == [KEY]
            stored = await fleet.stored()
            assert stored is not None
            assert _content(stored) == _content(document)
        assert counters["changes"] > 90
        assert written < 100 * len(whole) / 7
        assert fleet.host.counters["received_bad"] == fleet.host.counters["received_not_theirs"] == 0


@pytest.mark.needs("nats-server")
@asynchronous
async def test_a_host_that_starts_or_has_missed_messages_does_what_was_wanted_last(tmp_path: Path) -> None:
    async with _told(tmp_path) as fleet:
        await fleet.write(_document(1))
        document = _moved(_document(1), 7, 50_007)
        await fleet.write(document)
        late, told = host_bus(fleet.url, "h"), list[Desired]()
        late.watch("h", told.append)
        late.start()
        await until(lambda: bool(told))
        assert [_content(one) for one in told] == [_content(document)]
        await late.close()
        watch = fleet.host._watches[0]
        watch._whole = None
        document = _moved(document, 8, 50_008)
        await fleet.write(document)
        watch._whole = _document(0)
        await fleet.write(_moved(document, 9, 50_009))


@pytest.mark.needs("nats-server")
@asynchronous
async def test_an_old_change_is_followed_by_nobody(tmp_path: Path) -> None:
    """Neither told again, nor laid beside the document by a server that lies, nor with another document."""
    async with _told(tmp_path) as fleet:
        fence = Fence()
        first = _document(1)
        await fleet.write(first)
        second = _moved(first, 7, 50_007)
        await fleet.write(second)
        old = await fleet.bytes_of(change_key(KEY))
        last = _moved(second, 8, 50_008)
        await fleet.write(last)
        assert [fence.admits_document(one) for one in fleet.told] == [True] * 3
        await fleet.client.publish(down(POD, "h", KIND), old)
        await until(lambda: len(fleet.told) == 4)
        assert not fence.admits_document(fleet.told[-1])
        bad = [leader_seal().encode(stored.KIND, last), old[:-1] + b"x", bytes(64) + old[64:]]
        for data in bad:
            await fleet.client.publish(down(POD, "h", KIND), data)
        await until(lambda: fleet.host.counters["received_not_theirs"] == len(bad))
        later = replace(_document(9, epoch=2), led_since_s=5.0)
        await fleet.write(later)
        assert fence.admits_document(fleet.told[-1])
        await fleet.client.jetstream().publish(f"$KV.{DESIRED_BUCKET}.{change_key(KEY)}", old)
        assert await fleet.stored() == later
        before = len(fleet.told)
        await fleet.client.publish(down(POD, "h", KIND), old)
        await asyncio.sleep(0.3)
        assert all(one == later for one in fleet.told[before:])
        await fleet.client.publish(down(POD, "h", stored.KIND), leader_seal().encode(stored.KIND, first))
        await fleet.client.publish(down(POD, "h", KIND), old)
        await until(lambda: len(fleet.told) > before + 1)
        assert not any(fence.admits_document(one) for one in fleet.told[before:])
        assert fence.counters["desired_fenced"] > 0


async def _no() -> bool:
    return False


@pytest.mark.needs("nats-server")
@asynchronous
async def test_who_led_before_changes_nothing_that_who_leads_has_gone_on_from(tmp_path: Path) -> None:
    async with _told(tmp_path) as fleet:
        fleet.writer.documents._confirm = _no
        first = _document(1)
        await fleet.write(first)
        await fleet.write(second := _moved(first, 7, 50_007))
        now = manager_bus(fleet.url, name="now")
        now.documents.reads_changes = lambda _host: True
        now.start()
        await until(lambda: now.connected)
        assert now.session is not None
        found = await now.documents.read(now.session, "h")
        assert found is not None
        assert _content(found) == _content(second)
        taken = replace(found, version=3, epoch=2)
        now.put(taken)
        await until(lambda: now.documents.unwritten == 0)
        fleet.writer.put(_moved(second, 8, 50_008))
        await until(lambda: fleet.writer.documents.counters["failed"] > 0)
        assert await fleet.stored() == taken
        moved = _moved(taken, 9, 50_009)
        now.put(moved)
        await until(lambda: now.documents.unwritten == 0 and fleet.has(moved))
        assert now.documents.counters["changes"] == 1
        await now.close()


@pytest.mark.needs("nats-server")
@asynchronous
async def test_a_change_that_came_after_what_was_read_is_not_written_over(tmp_path: Path) -> None:
    """As where a copy of the bucket lags behind: the document is the same, the change another."""
    for has_change in (False, True):
        async with _told(tmp_path / str(has_change)) as fleet:
            document = _document(1)
            await fleet.write(document)
            if has_change:
                await fleet.write(document := _moved(document, 6, 50_006))
            now = manager_bus(fleet.url, name="now")
            superseded: list[str] = []
            now.documents.on_superseded = superseded.append
            now.start()
            await until(lambda now=now: now.connected)  # type: ignore[misc]
            assert now.session is not None
            read = await now.documents.read(now.session, "h")
            assert read is not None
            await fleet.write(last := _moved(document, 7, 50_007))
            now.put(replace(read, version=5, epoch=2))
            await until(lambda superseded=superseded: superseded == ["h"])  # type: ignore[misc]
            found = await now.documents.read(now.session, "h")
            assert found is not None
            assert _content(found) == _content(last)
            await now.close()


@pytest.mark.needs("nats-server")
@asynchronous
async def test_what_was_broken_off_between_document_and_change_is_what_some_leader_wanted(
    tmp_path: Path,
) -> None:
    """A new document with the change to the one before still beside it."""
    async with _told(tmp_path) as fleet:
        await fleet.write(first := _document(1))
        await fleet.write(second := _moved(first, 7, 50_007))
        change = await fleet.bytes_of(change_key(KEY))
        bucket, third = stored.bucket(), replace(second, version=3, steer=second.steer[:-1])
        revision, _ = await bucket.read(fleet.client, KEY)
        data = leader_seal().encode(stored.KIND, third)
        await bucket.replace(fleet.client, KEY, data, revision=revision)
        assert await fleet.bytes_of(change_key(KEY)) == change
        assert await fleet.stored() == third


@pytest.mark.needs("nats-server")
@asynchronous
async def test_the_whole_is_written_where_the_bucket_was_taken_away_or_another_wrote_the_change(
    tmp_path: Path,
) -> None:
    async with _told(tmp_path) as fleet:
        await fleet.write(document := _document(1))
        await fleet.write(document := _moved(document, 7, 50_007))
        await fleet.client.jetstream().publish(f"$KV.{DESIRED_BUCKET}.{change_key(KEY)}", b"another's")
        await fleet.write(document := _moved(document, 8, 50_008))
        assert await fleet.stored() == document
        assert await fleet.keys() == [KEY]
        await fleet.write(document := _moved(document, 9, 50_009))
        await fleet.client.jsm().delete_stream(f"KV_{DESIRED_BUCKET}")
        await fleet.write(document := _moved(document, 10, 50_010))
        assert await fleet.stored() == document
        assert fleet.writer.documents.counters["changes"] == 2


@pytest.mark.needs("nats-server")
@asynchronous
async def test_agents_that_read_no_changes_are_told_the_whole_and_one_that_is_older_now_at_once(
    tmp_path: Path,
) -> None:
    async with _told(tmp_path) as fleet:
        reads = True
        fleet.writer.documents.reads_changes = lambda _host: reads
        await fleet.write(document := _document(1))
        await fleet.write(document := _moved(document, 7, 50_007))
        fleet.writer.documents.put_whole()
        assert fleet.writer.documents.unwritten == 0
        reads = False
        fleet.writer.documents.put_whole()
        await until(lambda: fleet.writer.documents.unwritten == 0)
        data = await fleet.bytes_of(KEY)
        assert leader_seal().opened(stored.KIND, Desired, data) == document
        assert await fleet.keys() == [KEY]
        await fleet.write(document := _moved(document, 8, 50_008))
        data = await fleet.bytes_of(KEY)
        assert leader_seal().opened(stored.KIND, Desired, data) == document
        assert fleet.writer.documents.counters["changes"] == 1


def test_probes_and_failover_are_told_with_the_whole() -> None:
    base = _document(1)
    edge = ProbeEdge(
        src="h/eth0",
        dst="i/eth0",
        src_addr="10.0.0.1",
        dst_addr="10.0.0.2",
        sports=[50_000],
        reply_sports=[50_001],
        pairs_per_s=1.0,
    )
    assert change_of(base, replace(base, version=2, probes=[edge])) is None
    assert change_of(base, replace(base, version=2, roce=RoceSettings())) is None
