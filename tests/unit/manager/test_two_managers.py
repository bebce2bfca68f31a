"""Two managers on one bus: one leads, the other waits, answers what is read, and takes over."""

import asyncio
from pathlib import Path

import aiohttp
import msgspec
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, bus_server, connect_as_manager, manager_bus, save_authority
from fakes import FakeHost, fleet, until
from test_manager_service import _agree, _json

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import SteerQp, SteerReport
from cwdp.shared.bus.subjects import up
from cwdp.shared.tasks import end
from manager.bus.lease import BUCKET, KEY, LEASE_S, Claim, Lease
from manager.config import ManagerConfig
from manager.overrides.steering import SteerOverride
from manager.service import Manager

pytestmark = pytest.mark.needs("nats-server")

STEERED = SteerQp(nic="eth0", dst_addr="10.0.0.9", qpn=77, sport=50_000, backup_sport=50_001)
OVERRIDE = SteerOverride(host="h1", nic="eth0", dst="10.0.0.8", qpn=78, sport=50_002)


class _Managers:
    """Managers that share a bus."""

    def __init__(self, tmp_path: Path, url: str) -> None:
        self._tmp_path, self._url = tmp_path, url
        self._authority = save_authority(tmp_path)
        self.of: dict[str, Manager] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def socket(self, name: str) -> str:
        return str(self._tmp_path / f"{name}.sock")

    async def start(self, name: str) -> Manager:
        config = ManagerConfig(
            name=name,
            authority=self._authority,
            nats=self._url,
            state_dir=str(self._tmp_path / name),
            socket=self.socket(name),
            page="",
        )
        manager = self.of[name] = Manager(config)
        self._tasks[name] = asyncio.create_task(manager.run())
        await until(lambda: manager.lease.holder is not None)
        return manager

    async def stop(self, name: str) -> None:
        self.of.pop(name).stop()
        await self._tasks[name]

    async def close(self) -> None:
        for name in list(self.of):
            await self.stop(name)


async def _tell_steering(hosts: list[FakeHost]) -> None:
    while True:
        for host in hosts:
            managed = host.desired.steer if host.desired is not None else []
            if host.name == "h0":
                managed = [STEERED] if host.desired is None else managed
            host.bus.publish(
                up(POD, host.name, "steer"), SteerReport(host=host.name, managed=managed, by_hand=[])
            )
        await asyncio.sleep(0.3)


@asynchronous
async def test_the_lease_is_one_managers_until_it_lapses_or_is_given_up(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server:
        changes: list[tuple[str, bool]] = []

        def lease(name: str) -> tuple[Bus, Lease, asyncio.Task[None]]:
            bus = manager_bus(server.url, name=name)
            bus.start()
            claim = Claim(manager=name, name=name)
            made = Lease([bus], claim, lambda leads: changes.append((name, leads)))
            return bus, made, asyncio.create_task(made.run())

        everybody = [lease(name) for name in ("a", "b", "c")]
        await until(lambda: sum(made.leads for _, made, _ in everybody) == 1)
        await asyncio.sleep(LEASE_S + 1)
        assert len(changes) == 1
        by_name = {made.claim.name: (bus, made, task) for bus, made, task in everybody}
        bus, made, task = by_name.pop(changes[0][0])
        others = [other for _, other, _ in by_name.values()]
        assert {other.holder for other in others} == {made.claim}
        await end(task)
        await until(lambda: any(other.leads for other in others))
        second = next(other for other in others if other.leads)
        assert second.epoch > made.epoch
        await second.release()
        await end(by_name[second.claim.name][2])
        third = next(other for other in others if other is not second)
        await asyncio.wait_for(_until_leads(third), LEASE_S - 0.5)
        for bus, _, task in everybody:
            await end(task)
            await bus.close()


async def _until_leads(lease: Lease) -> None:
    await until(lambda: lease.leads)


@asynchronous
async def test_a_lease_that_lapsed_on_the_bus_is_taken_with_a_later_epoch(tmp_path: Path) -> None:
    """As an earlier build leaves its bucket."""
    async with bus_server(tmp_path / "nats") as server:
        client = await connect_as_manager(server.url)
        store = await client.jetstream().create_key_value(bucket=BUCKET, ttl=1.0, direct=True)
        for _ in range(7):
            await store.put(KEY, msgspec.json.encode(Claim(manager="old", name="old")))
        await asyncio.sleep(2.0)
        await client.close()
        bus = manager_bus(server.url, name="a")
        bus.start()
        lease = Lease([bus], Claim(manager="a", name="a"), lambda _leads: None)
        task = asyncio.create_task(lease.run())
        await until(lambda: lease.leads)
        assert lease.epoch > 7
        await end(task)
        await bus.close()


@asynchronous
async def test_a_lease_that_was_renewed_with_the_answer_lost_is_still_its_own(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server:
        bus = manager_bus(server.url)
        bus.start()
        claim = Claim(manager="a", name="a")
        changes: list[bool] = []
        lease = Lease([bus], claim, changes.append)
        task = asyncio.create_task(lease.run())
        await until(lambda: lease.leads)
        assert bus.session is not None
        store = await bus.session.jetstream().key_value(BUCKET)
        await store.put(KEY, msgspec.json.encode(claim))
        renewed = lease.counters["renewed"]
        await until(lambda: lease.counters["renewed"] > renewed + 1)
        assert changes == [True]
        await end(task)
        await bus.close()


@asynchronous
async def test_a_manager_that_cannot_reach_the_bus_leads_no_more(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server:
        bus = manager_bus(server.url)
        bus.start()
        lease = Lease([bus], Claim(manager="a", name="a"), lambda _leads: None)
        task = asyncio.create_task(lease.run())
        await until(lambda: lease.leads)
    await until(lambda: lease.counters["lost"] == 1, LEASE_S + 2)
    assert not lease.leads
    await end(task)
    await bus.close()


@asynchronous
async def test_the_one_that_waits_answers_what_is_read_refuses_changes_and_takes_over(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server:
        managers = _Managers(tmp_path, server.url)
        hosts = fleet(4, server.url)
        for host in hosts:
            host.start()
        telling = asyncio.create_task(_tell_steering(hosts))
        try:
            first = await managers.start("a")
            second = await managers.start("b")
            await until(lambda: _agree(hosts))
            assert first.state.leads
            assert not second.state.leads
            answer = await _json(managers.socket("b"), "/v1/manager")
            assert (answer["name"], answer["leads"], answer["leader"]) == ("b", False, "a")
            await until(lambda: len(second.state.clock.view(0.0)) == len(hosts))
            clock = await _json(managers.socket("b"), "/v1/clock")
            assert {row["state"] for row in clock["hosts"]} == {"synced"}
            connector = aiohttp.UnixConnector(path=managers.socket("b"))
            async with aiohttp.ClientSession(connector=connector) as session:
                refused = await session.put("http://x/v1/steer", data=b"{}")
                assert refused.status == 503
                assert "'a' leads" in (await refused.json())["error"]
            first.state.steering.set(OVERRIDE)
            await first.commit()
            await until(lambda: all(host.desired and _steers(host) == (host.name == "h1") for host in hosts))
            before = {host.name: host.desired for host in hosts}
            timeline = first.state.clock.timeline
            await managers.stop("a")
            await until(lambda: second.state.leads, LEASE_S - 0.5)
            assert second.state.clock.timeline == timeline
            await until(
                lambda: all(host.update is not None and host.update.timeline == timeline for host in hosts)
            )
            await until(lambda: _raised(hosts, before))
            for host in hosts:
                assert host.desired is not None
                assert host.desired.steer == before[host.name].steer  # type: ignore[union-attr]
                assert host.desired.probes == before[host.name].probes  # type: ignore[union-attr]
            assert second.state.steering.all() == [OVERRIDE]
            assert _agree(hosts)
        finally:
            await end(telling)
            await managers.close()
            for host in hosts:
                await host.stop()


def _steers(host: FakeHost) -> bool:
    return host.desired is not None and OVERRIDE.message() in host.desired.steer


def _raised(hosts: list[FakeHost], before: dict[str, object]) -> bool:
    return all(
        host.desired is not None and host.desired.version > before[host.name].version  # type: ignore[attr-defined]
        for host in hosts
    )
