"""What a manager that takes over knows, and that one that led before changes nothing any more."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Self

import msgspec
import nats.errors
import nats.js.manager
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, bus_server, leader_seal, manager_bus, save_authority
from fakes import FakeHost, fleet, until
from test_manager_service import _agree, _json, _steer
from test_two_managers import OVERRIDE, _Managers

from cwdp.agent.fence import Fence
from cwdp.shared.bus.desired import documents, stored
from cwdp.shared.bus.messages import ClockUpdate, Desired, SteerQp, SteerReport
from cwdp.shared.bus.subjects import document_key, up
from cwdp.shared.tasks import end
from manager.bus.lease import LEASE_S, Claim, Lease
from manager.config import ManagerConfig
from manager.identity.probe_keys import ProbeKeys
from manager.service import Manager
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")


def _steered(host: FakeHost, count: int) -> list[SteerQp]:
    number = int(host.name[1:])
    return [
        SteerQp(nic="eth0", dst_addr=f"10.0.{number}.9", qpn=qpn, sport=50_000 + qpn, backup_sport=60_000)
        for qpn in range(count)
    ]


class _Fleet:
    """Hosts that say what is steered there unless they are late; each begins with some of its own."""

    def __init__(self, url: str, count: int, *, steered: int = 3, late: Iterable[str] = ()) -> None:
        self.hosts = fleet(count, url)
        self.late = set(late)
        self.begun = {host.name: _steered(host, steered) for host in self.hosts}
        self.told: dict[str, list[Desired]] = {host.name: [] for host in self.hosts}
        for host in self.hosts:
            host.bus.watch(host.name, lambda told: self.told[told.host].append(told))
            host.addresses = {"ipv4": f"10.9.0.{host.name[1:]}", "ipv6": None}
        self._telling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for host in self.hosts:
            host.start()
        self._telling = asyncio.create_task(self._tell())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._telling is not None
        await end(self._telling)
        for host in self.hosts:
            await host.stop()

    async def _tell(self) -> None:
        while True:
            for host in self.hosts:
                if host.name not in self.late:
                    done = self.begun[host.name] if host.desired is None else host.desired.steer
                    report = SteerReport(host=host.name, managed=done, by_hand=[])
                    host.bus.publish(up(POD, host.name, "steer"), report)
            await asyncio.sleep(0.2)

    def follow_all(self) -> bool:
        """Whether each host was told to go on with what it had."""
        return all(host.desired and host.desired.steer == self.begun[host.name] for host in self.hosts)


@contextlib.asynccontextmanager
async def _managers(tmp_path: Path, url: str) -> AsyncIterator[_Managers]:
    managers = _Managers(tmp_path, url)
    try:
        yield managers
    finally:
        await managers.close()


@asynchronous
async def test_a_manager_on_another_disk_keeps_the_overrides_and_the_timeline(tmp_path: Path) -> None:
    """Though nobody led for longer than the lease lasts."""
    async with bus_server(tmp_path / "nats") as server, _managers(tmp_path, server.url) as managers:
        async with _Fleet(server.url, 3) as some:
            first = await managers.start("a")
            await until(lambda: _agree(some.hosts) and all(host.desired for host in some.hosts))
            result = await asyncio.to_thread(_steer, managers.socket("a"), "set", "--sport", "50007")
            assert result.exit_code == 0, result.output
            timeline, overrides = first.state.clock.timeline, first.state.steering.all()
            await managers.stop("a")
            await asyncio.sleep(LEASE_S + 0.5)
            second = await managers.start("b")
            await until(lambda: second.state.leads)
            assert second.state.steering.all() == overrides != []
            assert second.state.clock.timeline == timeline
            await asyncio.sleep(1.0)
            await managers.stop("b")
        third = await managers.start("c")
        await until(lambda: third.state.leads)
        assert third.state.steering.all() == overrides
        assert third.state.clock.timeline == timeline


@asynchronous
async def test_overrides_that_cannot_be_read_at_first_are_not_written_over(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server, _managers(tmp_path, server.url) as managers:
        first = await managers.start("a")
        await until(lambda: first.state.leads)
        first.state.steering.set(OVERRIDE)
        await first.commit()
        await managers.stop("a")
        read, fails = nats.js.manager.JetStreamManager.get_last_msg, [3]

        async def unreadable(self: Any, stream: str, *args: Any, **kwargs: Any) -> Any:
            if stream == "KV_cwdp-wishes" and fails[0] > 0:
                fails[0] -= 1
                raise TimeoutError
            return await read(self, stream, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats.js.manager.JetStreamManager, "get_last_msg", unreadable)
            second = await managers.start("b")
            await until(lambda: second.state.leads)
            assert fails == [0]
            assert second.state.steering.all() == [OVERRIDE]


@asynchronous
async def test_a_document_that_is_not_answered_for_is_asked_for_again_soon(tmp_path: Path) -> None:
    """As of a bucket that has just been made, by a server that has not got it yet."""
    read, unanswered = documents.DocumentWriter.read, [4]

    async def unanswering(self: Any, client: Any, host: str) -> Any:
        if unanswered[0] > 0:
            unanswered[0] -= 1
            await asyncio.sleep(5)
            raise nats.errors.TimeoutError
        return await read(self, client, host)

    async with bus_server(tmp_path / "nats") as server, _managers(tmp_path, server.url) as managers:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(documents.DocumentWriter, "read", unanswering)
            async with _Fleet(server.url, 4) as some:
                await managers.start("a")
                await until(lambda: all(host.desired for host in some.hosts))
                assert unanswered == [0]


@asynchronous
async def test_a_host_that_missed_a_rotation_of_the_keys_is_probed_once_it_has_them(tmp_path: Path) -> None:
    """Until then every probe from it and to it is refused, as if its link were silent."""
    keys = ProbeKeys(tmp_path / "rotated.json")
    keys.rotate()
    while keys.stage != "settled":
        keys.step([])
    (tmp_path / "a").mkdir()
    (tmp_path / "rotated.json").rename(tmp_path / "a" / "probe_keys.json")
    async with (
        bus_server(tmp_path / "nats") as server,
        _managers(tmp_path, server.url) as managers,
        _Fleet(server.url, 3) as some,
    ):
        for host, ids in zip(some.hosts, ([2], [2], [1]), strict=True):
            host.key_ids = ids
        manager = await managers.start("a")
        first, second, third = (host.name for host in some.hosts)

        def probed() -> set[tuple[str, str]]:
            documents = [host.desired for host in some.hosts if host.desired is not None]
            return {
                (edge.src.partition("/")[0], edge.dst.partition("/")[0])
                for document in documents
                for edge in document.probes
            }

        await until(lambda: probed() == {(first, second), (second, first)})
        third_host = manager.state.members.hosts[third]
        nic = third_host.hello.nics[0]
        assert manager.state.members.reason(third_host, nic, time.monotonic()) == "no_key"
        some.hosts[2].key_ids = [2]
        await until(lambda: {src for src, _ in probed()} == {first, second, third})


@asynchronous
async def test_a_change_that_the_bus_does_not_take_is_refused_and_undone(tmp_path: Path) -> None:
    async with (
        bus_server(tmp_path / "nats") as server,
        _managers(tmp_path, server.url) as managers,
        _Fleet(server.url, 2) as some,
    ):
        first = await managers.start("a")
        await until(lambda: all(host.desired for host in some.hosts))
        with pytest.MonkeyPatch.context() as patch:

            async def refused(*_: Any, **__: Any) -> Any:
                raise TimeoutError

            patch.setattr(nats.js.kv.KeyValue, "update", refused)
            result = await asyncio.to_thread(_steer, managers.socket("a"), "set", "--sport", "50007")
        assert result.exit_code == 1
        assert "cannot be kept on the bus" in result.stderr
        assert first.state.steering.all() == []
        result = await asyncio.to_thread(_steer, managers.socket("a"), "set", "--sport", "50007")
        assert result.exit_code == 0, result.output
        assert len(first.state.steering.all()) == 1


@asynchronous
async def test_hosts_that_say_late_what_is_steered_there_keep_it(tmp_path: Path) -> None:
    async with (
        bus_server(tmp_path / "nats") as server,
        _managers(tmp_path, server.url) as managers,
        _Fleet(server.url, 4) as some,
    ):
        await managers.start("a")
        await until(some.follow_all)
        some.late |= {"h1", "h2"}
        await managers.stop("a")
        versions = {host.name: host.desired.version for host in some.hosts if host.desired}
        before = {name: len(told) for name, told in some.told.items()}
        await managers.start("b")
        await until(
            lambda: all(host.desired and host.desired.version > versions[host.name] for host in some.hosts)
        )
        for name, told in some.told.items():
            since = told[before[name] :]
            assert since
            assert all(document.steer == some.begun[name] and document.probes for document in since)


@asynchronous
async def test_a_document_that_was_read_from_a_copy_that_lags_behind_is_not_gone_on_from(
    tmp_path: Path,
) -> None:
    async with (
        bus_server(tmp_path / "nats") as server,
        _managers(tmp_path, server.url) as managers,
        _Fleet(server.url, 3) as some,
    ):
        await managers.start("a")
        await until(some.follow_all)
        some.late |= {"h1"}
        await managers.stop("a")
        read, lags = nats.js.manager.JetStreamManager.get_last_msg, [2]

        async def lagging(self: Any, stream: str, subject: str, **kwargs: Any) -> Any:
            found = await read(self, stream, subject, **kwargs)
            if subject.endswith(f".{POD}.h1") and lags[0] > 0:
                lags[0] -= 1
                before = msgspec.structs.replace(
                    leader_seal().opened(stored.KIND, Desired, found.data), steer=[]
                )
                found.seq, found.data = found.seq - 1, leader_seal().encode(stored.KIND, before)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats.js.manager.JetStreamManager, "get_last_msg", lagging)
            second = await managers.start("b")
            await until(lambda: lags == [0])
        written = await _written_by(second, "h1")
        assert written.steer == some.begun["h1"]


async def _written_by(manager: Manager, host: str) -> Desired:
    """A host's document, once it is of this manager."""
    for _ in range(400):
        assert manager.bus.session is not None
        found = await stored.read(
            manager.bus.session, stored.bucket(), document_key(POD, host), leader_seal()
        )
        document = found.document()
        if document is not None and document.epoch == manager.lease.epoch:
            return document
        await asyncio.sleep(0.05)
    raise AssertionError("it never was")


@asynchronous
async def test_hosts_trace_on_what_they_did(tmp_path: Path) -> None:
    """No document of a manager that has just started, and knows no paths, takes the orders to trace away."""
    async with (
        bus_server(tmp_path / "nats") as server,
        _managers(tmp_path, server.url) as managers,
        _Fleet(server.url, 4) as some,
    ):
        await managers.start("a")

        def tracing() -> dict[str, Desired]:
            return {host.name: host.desired for host in some.hosts if host.desired and host.desired.traces}

        await until(lambda: len(tracing()) == 4)
        await managers.stop("a")
        await asyncio.sleep(0.5)
        before = tracing()
        second = await managers.start("b")

        def since(host: str) -> list[Desired]:
            return [told for told in some.told[host] if told.epoch == second.lease.epoch]

        await until(lambda: all(since(host) for host in before))
        await asyncio.sleep(1.0)
        for host, document in before.items():
            assert all(told.traces == document.traces for told in since(host))


@asynchronous
async def test_a_bus_without_its_store_waits_for_what_hosts_say(tmp_path: Path) -> None:
    port = free_port()
    async with _Fleet(f"nats://127.0.0.1:{port}", 3, late=("h1",)) as some:
        async with (
            bus_server(tmp_path / "one", port),
            _managers(tmp_path, f"nats://127.0.0.1:{port}") as managers,
        ):
            some.late.clear()
            await managers.start("a")
            await until(some.follow_all)
        some.late.add("h1")
        before = {name: len(told) for name, told in some.told.items()}
        async with (
            bus_server(tmp_path / "two", port),
            _managers(tmp_path, f"nats://127.0.0.1:{port}") as managers,
        ):
            await managers.start("b")
            await until(lambda: len(some.told["h0"]) > before["h0"])
            await asyncio.sleep(1.0)
            assert len(some.told["h1"]) == before["h1"]
            some.late.clear()
            await until(lambda: len(some.told["h1"]) > before["h1"])
    for name, told in some.told.items():
        assert all(document.steer == some.begun[name] for document in told)


@asynchronous
async def test_nobody_leads_longer_than_its_lease_though_the_bus_stands_still(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server:
        bus = manager_bus(server.url)
        bus.start()
        lease = Lease([bus], Claim(manager="a", name="a"), lambda _leads: None)
        task = asyncio.create_task(lease.run())
        await until(lambda: lease.counters["renewed"] == 2)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        stopped_s = last_s = time.monotonic()
        while time.monotonic() < stopped_s + LEASE_S + 2:
            if lease.leads:
                last_s = time.monotonic()
            await asyncio.sleep(0.01)
        os.kill(server.pid, signal.SIGCONT)
        await end(task)
        await bus.close()
    assert LEASE_S / 2 < last_s - stopped_s < LEASE_S


@asynchronous
async def test_a_manager_that_was_suspended_changes_nothing_once_another_leads(tmp_path: Path) -> None:
    async with (
        bus_server(tmp_path / "nats") as server,
        _managers(tmp_path, server.url) as managers,
        _Fleet(server.url, 4) as some,
    ):
        arguments = [
            "--nats",
            server.url,
            "--socket",
            managers.socket("a"),
            "--state-dir",
            str(tmp_path / "a"),
        ]
        save_authority(tmp_path / "a")
        with (tmp_path / "log").open("ab") as log:
            first = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cwdp", "manager", "run", *arguments, stderr=log
            )
        try:
            await until(lambda: _agree(some.hosts) and all(host.desired for host in some.hosts))
            second = await managers.start("b")
            fences = {host.name: Fence() for host in some.hosts}
            admitted: list[ClockUpdate] = []
            for host in some.hosts:
                take = host.bus._subscriptions[0]._handler

                def admit(update: ClockUpdate, fence: Fence = fences[host.name], take: Any = take) -> None:
                    if fence.admits_clock(update):
                        admitted.append(update)
                        take(update)

                host.bus._subscriptions[0]._handler = admit
            (before_s,) = {host.desired.led_since_s for host in some.hosts if host.desired}
            first.send_signal(signal.SIGSTOP)
            await until(lambda: second.state.leads and _updated_by(admitted, second))
            since = len(admitted)
            first.send_signal(signal.SIGCONT)
            await asyncio.sleep(3.0)
            assert {update.epoch for update in admitted[since:]} == {second.lease.epoch}
            assert {host.desired.epoch for host in some.hosts if host.desired} == {second.lease.epoch}
            (now_s,) = {host.desired.led_since_s for host in some.hosts if host.desired}
            assert {update.led_since_s for update in admitted[since:]} == {now_s}
            assert 0 < before_s < now_s
            answer = await _json(managers.socket("a"), "/v1/manager")
            assert (answer["leads"], answer["epoch"]) == (False, None)
        finally:
            first.kill()
            await first.wait()


def _updated_by(updates: list[ClockUpdate], manager: Manager) -> bool:
    return any(update.epoch == manager.lease.epoch for update in updates)


@asynchronous
async def test_what_no_task_of_the_bus_foresees_ends_the_service(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server:
        manager = Manager(
            ManagerConfig(
                authority=save_authority(tmp_path),
                nats=server.url,
                state_dir=str(tmp_path / "a"),
                socket=str(tmp_path / "sock"),
                page="",
            )
        )
        running = asyncio.create_task(manager.run())
        await until(lambda: manager.bus.connected)

        def unforeseen(*_: Any, **__: Any) -> Any:
            raise LookupError("nobody has foreseen this")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats.aio.client.Client, "publish", unforeseen)
            manager.bus.publish("a.subject", Claim(manager="a", name="a"))
            with pytest.raises(LookupError):
                await asyncio.wait_for(running, 10)


@asynchronous
async def test_a_nats_server_that_is_looked_after_no_more_ends_the_service(tmp_path: Path) -> None:
    port = free_port()
    manager = Manager(
        ManagerConfig(
            bus_listen=f"127.0.0.1:{port}",
            state_dir=str(tmp_path / "a"),
            socket=str(tmp_path / "sock"),
            page="",
        )
    )
    running = asyncio.create_task(manager.run())
    await until(lambda: manager.bus.connected)

    async def unforeseen(*_: Any, **__: Any) -> Any:
        raise LookupError("nobody has foreseen this")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", unforeseen)
        assert manager.server is not None
        assert manager.server.pid is not None
        os.kill(manager.server.pid, signal.SIGKILL)
        with pytest.raises(LookupError):
            await asyncio.wait_for(running, 10)
