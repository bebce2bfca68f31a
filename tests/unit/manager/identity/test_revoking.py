"""How soon a host that is revoked is off the bus, whichever of its servers it is connected to."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from admitting import Leader, is_let_in
from asynchronous import asynchronous
from bus_fakes import POD, authority, bus_server
from fakes import until

from cwdp.agent.joining import join
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Event
from cwdp.shared.bus.sealing import HostSeal
from cwdp.shared.bus.subjects import up
from cwdp.shared.identity import joining as words
from cwdp.shared.identity import jwt
from cwdp.shared.identity.credential import Credential
from cwdp.shared.tasks import end
from manager.identity.accounts import Accounts
from manager.identity.registry import Revoked
from tools.bus_cluster import BusCluster

pytestmark = pytest.mark.needs("nats-server")

WITHIN_S = 5.0
EVERY_S, LISTENED_S = 0.02, 1.0


class _Heard:
    """What a manager hears of hosts: when it last heard each."""

    def __init__(self, leader: Leader) -> None:
        self.last_s: dict[str, float] = {}
        leader.bus.subscribe(up(POD, "*", "event"), Event, self._hear)

    def _hear(self, event: Event) -> None:
        self.last_s[event.host] = time.monotonic()


@asynccontextmanager
async def _talking(url: str, credential: Credential) -> AsyncIterator[Bus]:
    """A host that says something all the time, and comes back whenever it is let in."""
    bus = Bus(url, credential, HostSeal(credential.name, credential.control), pod=POD, name=credential.name)

    async def talk() -> None:
        while True:
            said = Event(host=credential.name, local_ns=1, kind="link_up", nic=None, detail="")
            bus.publish(up(POD, credential.name, "event"), said)
            await asyncio.sleep(EVERY_S)

    bus.start()
    talking = asyncio.create_task(talk())
    try:
        yield bus
    finally:
        await end(talking)
        await bus.close()


async def _joined(leader: Leader, host: str) -> Credential:
    return await join(words.read(await leader.credentials.invite(host, by="root")))


async def _is_off_in_time(leader: Leader, heard: _Heard, host: Bus, servers: dict[str, Credential]) -> None:
    """Revoke a host that is connected: it is off, and refused by each of the servers, and no longer heard."""
    await until(lambda: host.connected and "gone" in heard.last_s)
    assert await leader.credentials.revoke("gone", by="root") == 1
    revoked_s = time.monotonic()
    await until(lambda: not host.connected and host.counters["connect_refused"] > 0, WITHIN_S)
    for url, credential in servers.items():
        assert not await is_let_in(url, credential)
    assert time.monotonic() - revoked_s < WITHIN_S
    await asyncio.sleep(LISTENED_S)
    assert heard.last_s["gone"] - revoked_s < WITHIN_S
    assert time.monotonic() - heard.last_s["gone"] >= LISTENED_S


@asynchronous
async def test_a_host_that_is_revoked_is_off_within_five_seconds(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        leader = Leader(server.url, tmp_path)
        heard = _Heard(leader)
        async with leader:
            gone, stays = await _joined(leader, "gone"), await _joined(leader, "stays")
            async with _talking(server.url, gone) as host, _talking(server.url, stays) as other:
                await until(lambda: other.connected)
                await _is_off_in_time(leader, heard, host, {server.url: gone})
                assert other.counters["connected"] == 1
                assert time.monotonic() - heard.last_s["stays"] < LISTENED_S


@pytest.mark.parametrize("connected_to", ["s1", "s2"])
@asynchronous
async def test_so_is_one_that_is_connected_to_another_server_than_the_manager(
    tmp_path: Path, connected_to: str
) -> None:
    async with BusCluster(tmp_path, authority()) as servers:
        leader = Leader(servers.url_of("s0"), tmp_path)
        heard = _Heard(leader)
        async with leader:
            gone = await _joined(leader, "gone")
            async with _talking(servers.url_of(connected_to), gone) as host:
                everywhere = dict.fromkeys(map(servers.url_of, servers.names), gone)
                await _is_off_in_time(leader, heard, host, everywhere)


@asynchronous
async def test_a_server_that_was_away_learns_of_it_from_the_others(tmp_path: Path) -> None:
    """It compares accounts with them at an interval, and lets the host in until then."""
    gone = authority().host_credential("gone")
    until_s = gone.expires_s
    assert until_s is not None
    revoked = Revoked(expires_s={jwt.public_key(gone.key): until_s})
    async with BusCluster(tmp_path, authority()) as servers:
        assert await is_let_in(servers.url_of("s2"), gone)
        servers.kill("s2")
        assert await Accounts(authority()).tell(servers.url_of("s0"), revoked) == 1
        servers.start("s2")
        async with _talking(servers.url_of("s2"), gone) as host:
            await until(lambda: host.counters["connect_refused"] > 0)
            assert not host.connected
