"""The lease and documents on three servers of which some fail: nobody leads beside another, nothing is taken for lost."""

import asyncio
import random
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import pytest
from bus_fakes import POD, authority, manager_bus
from fakes import until
from nats.aio.client import Client

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, Bucket, Conflict, OneKey, stream_of
from cwdp.shared.bus.connection import Bus
from cwdp.shared.tasks import end
from manager.bus.copies import Copies
from manager.bus.lease import LEASE_S, Claim, Lease
from manager.bus.registers import IN_CLUSTER, Registers, buckets
from tools.bus_cluster import BusCluster

pytestmark = pytest.mark.needs("nats-server")

WITHIN_S = 240.0
MOST_S = 5.0
"""Without a leader, whatever becomes of a server."""


@asynccontextmanager
async def _connected(url: str, name: str, is_up: bool = True) -> AsyncIterator[Bus]:
    bus = manager_bus(url, name=name)
    bus.start()
    try:
        await until(lambda: bus.connected or not is_up)
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def _copied(bus: Bus, *streams: str) -> AsyncIterator[None]:
    copies = asyncio.create_task(Copies(bus, lambda: True, streams).run())
    try:
        yield
    finally:
        await end(copies)


class _Lead:
    """Two managers that try to lead, as a context; watched all the time: never do two lead."""

    def __init__(self, servers: BusCluster, but: str = "") -> None:
        self._servers, self._but = servers, but
        self.leases: list[Lease] = []
        self.longest_s = 0.0
        self.told: list[bool] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for name in "ab":
                buses = [
                    await stack.enter_async_context(
                        _connected(self._servers.url_of(server), name, server != self._but)
                    )
                    for server in self._servers.names
                ]
                lease = Lease(buses, Claim(manager=name, name=name), self.told.append)
                self.leases.append(lease)
                stack.push_async_callback(end, asyncio.create_task(lease.run()))
            await until(lambda: any(lease.leads for lease in self.leases))
            self._watching = asyncio.create_task(self._watch())
            stack.push_async_callback(end, self._watching)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        watching_failed = self._watching.done()
        await self._stack.aclose()
        assert not watching_failed

    @property
    def epoch(self) -> int:
        return max(lease.epoch for lease in self.leases)

    @property
    def renewed(self) -> int:
        return sum(lease.counters["renewed"] for lease in self.leases)

    async def _watch(self) -> None:
        led_s = time.monotonic()
        while True:
            leading = sum(lease.leads for lease in self.leases)
            assert leading < 2
            now_s = time.monotonic()
            self.longest_s = max(self.longest_s, now_s - led_s)
            led_s = now_s if leading else led_s
            await asyncio.sleep(0.005)


async def _homes(client: Client | None) -> list[str]:
    """Which server keeps each register."""
    assert client is not None
    infos = [await client.jsm().stream_info(stream_of(name)) for name in buckets(POD, IN_CLUSTER)]
    return [(info.cluster.leader if info.cluster else None) or "" for info in infos]


async def _all_made(servers: BusCluster, client: Client | None) -> None:
    for _ in range(200):
        with suppress(*JETSTREAM_ERRORS):
            if sorted(await _homes(client)) == servers.names:
                return
        await asyncio.sleep(0.1)
    raise AssertionError("registers are missing, or together")


@pytest.mark.parametrize("seed", [2])
def test_one_leads_on_whichever_server_fails_and_comes_back_and_never_two(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)

    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers, _Lead(servers) as lead:
            await _all_made(servers, lead.leases[0]._buses[0].session)
            epoch = lead.epoch
            for name in draw.sample(servers.names, 3):
                stops = draw.random() < 0.5
                (servers.suspend if stops else servers.kill)(name)
                await asyncio.sleep(draw.uniform(4.0, 12.0))
                (servers.resume if stops else servers.start)(name)
                await asyncio.sleep(LEASE_S + 6.0)
                renewed = lead.renewed
                await until(lambda before=renewed: lead.renewed > before + 1, 5.0)
            assert lead.epoch >= epoch
        sys.stderr.write(
            f"without a leader for {lead.longest_s:.2f} s at most, epoch {lead.epoch - epoch} later\n"
        )
        assert lead.longest_s < MOST_S

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


def test_a_server_that_has_lost_its_disk_has_an_empty_register_that_the_leader_takes_again(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers, _Lead(servers) as lead:
            await _all_made(servers, lead.leases[0]._buses[0].session)
            leader = next(lease for lease in lead.leases if lease.leads)
            number = (await _homes(leader._buses[0].session)).index("s2")
            epoch = leader.epoch
            servers.kill("s2")
            shutil.rmtree(tmp_path / "s2" / "jetstream")
            servers.start("s2")
            held = leader._rule._registers[number]
            await until(lambda: held.revision == 0, 60.0)
            await until(lambda: held.revision > 1 and held.renewed_s > 0, 60.0)
            assert (leader.leads, leader.epoch) == (True, epoch)

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


def test_registers_are_made_once_servers_are_there_and_two_are_enough(tmp_path: Path) -> None:
    """A server that takes no streams keeps no register; its own is made once it does."""

    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers:
            servers.kill("s1")
            async with _Lead(servers, but="s1") as lead:
                assert lead.epoch > 0
                servers.start("s1")
                await _all_made(servers, lead.leases[0]._buses[0].session)

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


def test_a_register_is_read_and_replaced_while_nobody_leads_the_servers(tmp_path: Path) -> None:
    async def go() -> None:
        async with (
            BusCluster(tmp_path, authority()) as servers,
            _connected(servers.url_of("s0"), "a") as bus,
        ):
            register, client = OneKey("some"), bus.session
            assert client is not None
            await register.make(client, "s0")
            revision = await register.replace(client, "key", b"one", revision=0)
            servers.kill("s1")
            servers.kill("s2")
            await asyncio.sleep(1.0)
            assert await register.read(client, "key") == (revision, b"one")
            after = await register.replace(client, "key", b"two", revision=revision)
            with pytest.raises(Conflict):
                await register.replace(client, "key", b"three", revision=revision)
            assert await register.read(client, "key") == (after, b"two")
            with pytest.raises(JETSTREAM_ERRORS):
                await Bucket("other", max_bytes=1 << 20).open(client)

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


def test_of_many_that_take_it_at_once_one_has_it(tmp_path: Path) -> None:
    """Each by another server, also where they make it at once."""

    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers, AsyncExitStack() as stack:
            buses = [
                await stack.enter_async_context(_connected(servers.url_of(name), name))
                for name in servers.names
            ]
            sessions = [bus.session for bus in buses]
            takers = [OneKey("some") for _ in buses]
            making = [
                taker.make(session, "s1") for taker, session in zip(takers, sessions, strict=True) if session
            ]
            await asyncio.gather(*making, return_exceptions=True)
            revision = 0
            for _ in range(200):
                tries = [
                    taker.replace(session, "leader", b"mine", revision=revision)
                    for taker, session in zip(takers, sessions, strict=True)
                    if session
                ]
                done = await asyncio.gather(*tries, return_exceptions=True)
                (revision,) = [each for each in done if isinstance(each, int)]
                assert sum(isinstance(each, Conflict) for each in done) == len(buses) - 1

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


def test_where_no_server_has_a_tag_registers_lie_on_different_ones_all_the_same(tmp_path: Path) -> None:
    """As where servers have been configured by an earlier build, and know of each other."""

    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers, _connected(servers.url_of("s0"), "a") as bus:
            registers = Registers([bus, bus, bus])
            assert bus.session is not None
            await Bucket("some", max_bytes=1 << 20).open(bus.session)
            await servers.until_whole(stream_of("some"))
            registers.fit(bus.session)
            for number in range(IN_CLUSTER):
                await registers._make(bus.session, number, "no such tag")
            assert sorted(await _homes(bus.session)) == servers.names

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


def test_makers_at_the_same_time_differ_so_that_the_servers_see_two(tmp_path: Path) -> None:
    """Two that were alike would leave copies that never catch up: `cwdp.shared.bus.buckets.maker` says why."""

    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers, AsyncExitStack() as stack:
            buses = [
                await stack.enter_async_context(_connected(servers.url_of(name), name))
                for name in servers.names
            ]
            sessions = [bus.session for bus in buses]
            some = [Bucket("some", max_bytes=1 << 20) for _ in buses]
            tries = [bucket.open(session) for bucket, session in zip(some, sessions, strict=True) if session]
            await asyncio.gather(*tries, return_exceptions=True)
            await servers.until_whole(stream_of("some"))
            assert sessions[0] is not None
            assert sessions[1] is not None
            info = await sessions[0].jsm().stream_info(stream_of("some"))
            assert (info.config.description or "").startswith("made by ")
            again = [
                await bucket.open(session) for bucket, session in zip(some, sessions, strict=True) if session
            ]
            assert len(again) == len(buses)
            revision = await some[0].replace(sessions[0], "leader", b"", revision=0)
            assert await some[1].read(sessions[1], "leader", latest=True) == (revision, b"")

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


def test_a_stream_that_was_made_with_one_copy_gets_three(tmp_path: Path) -> None:
    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers, _connected(servers.url, "a") as bus:
            assert bus.session is not None
            await bus.session.jetstream().add_stream(name="some", subjects=["some"], num_replicas=1)
            assert await servers.copies("some") == 1
            async with _copied(bus, "missing", "some"):
                await servers.until_whole("some")

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


def test_while_nobody_leads_the_copies_of_a_bucket_what_it_holds_is_not_taken_for_nothing(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers, _connected(servers.url, "a") as bus:
            bucket, stream = Bucket("some", max_bytes=1 << 20), stream_of("some")
            assert bus.session is not None
            revision = await bucket.replace(bus.session, "key", b"one", revision=0)
            async with _copied(bus, stream):
                await servers.until_whole(stream)
            servers.kill(str(await servers.leader(stream)))
            refused = 0
            while True:
                await until(lambda: bus.connected)
                assert bus.session is not None
                try:
                    assert await Bucket("some", max_bytes=1 << 20).read(bus.session, "key") == (
                        revision,
                        b"one",
                    )
                    revision = await Bucket("some", max_bytes=1 << 20).replace(
                        bus.session, "key", b"two", revision=revision
                    )
                    break
                except Conflict:
                    raise
                except JETSTREAM_ERRORS:
                    refused += 1
                    await asyncio.sleep(0.1)
            assert refused > 0
            for _ in range(100):
                held = await bucket.read(bus.session, "key")
                if held != (1, b"one"):  # a copy may not have got it yet
                    break
                await asyncio.sleep(0.1)
            assert held == (revision, b"two")

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))
