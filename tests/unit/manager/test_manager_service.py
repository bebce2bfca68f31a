"""The whole manager over loopback, with hosts that exist in arithmetic only, and trouble of each kind."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, connect_as, credential_of, leader_seal
from click.testing import CliRunner, Result
from fakes import FakeHost, fleet, until
from one_manager import config_of, running
from prometheus_client.parser import text_string_to_metric_families

from cwdp.cli import main
from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from cwdp.shared.bus import connection
from cwdp.shared.bus.desired import stored
from cwdp.shared.bus.messages import HELLO_INTERVAL_S, ClockUpdate, NicSlices, RoceSettings, SteerQp
from cwdp.shared.bus.subjects import document_key, up
from cwdp.shared.slices import Match, Slice, SliceSet
from manager.hosts.members import MISSED_HELLOS
from manager.service import Manager
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")

HOSTS = 6
SETTLED_NS = 60.0


@contextlib.asynccontextmanager
async def _fleet(port: int, count: int = HOSTS) -> AsyncIterator[list[FakeHost]]:
    hosts = fleet(count, f"nats://127.0.0.1:{port}")
    for host in hosts:
        host.start()
    try:
        yield hosts
    finally:
        for host in hosts:
            await host.stop()


def _spread_ns(hosts: list[FakeHost]) -> float:
    """How far apart the hosts believe the timeline to be at one instant."""
    now_ns = time.monotonic_ns()
    readings = [host.global_ns(now_ns) for host in hosts]
    return max(readings) - min(readings)


def _agree(hosts: list[FakeHost]) -> bool:
    return all(host.update is not None for host in hosts) and _spread_ns(hosts) < SETTLED_NS


async def _all_updated(hosts: list[FakeHost]) -> None:
    counts = [host.updates for host in hosts]
    await until(lambda: all(host.updates > n for host, n in zip(hosts, counts, strict=True)))


def _steps_ns(hosts: list[FakeHost], before: list[ClockUpdate | None]) -> list[float]:
    """How far each host's clock now lies from what its earlier line says of the same instant."""
    now_ns, steps = time.monotonic_ns(), []
    for host, earlier in zip(hosts, before, strict=True):
        now = host.global_ns(now_ns)
        later, host.update = host.update, earlier
        steps.append(now - host.global_ns(now_ns))
        host.update = later
    return steps


async def _get(socket: str, path: str) -> tuple[int, str]:
    connector = aiohttp.UnixConnector(path=socket)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"http://x{path}") as answer,
    ):
        return answer.status, await answer.text()


async def _json(socket: str, path: str) -> Any:
    status, text = await _get(socket, path)
    assert status == 200
    return json.loads(text)


@asynchronous
async def test_clocks_converge_and_are_shown(tmp_path: Path) -> None:
    port = free_port()
    config = config_of(tmp_path, port)
    async with running(config), _fleet(port) as hosts:
        await until(lambda: _agree(hosts))
        stranger = await connect_as(f"nats://127.0.0.1:{port}", credential_of("h0"))
        for kind in ("hello", "report", "event"):
            await stranger.publish(up(POD, "h0", kind), b"\xc1garbage")
        await stranger.close()
        await asyncio.sleep(0.5)
        assert _agree(hosts)
        clock = await _json(config.socket, "/v1/clock")
        assert {row["state"] for row in clock["hosts"]} == {"synced"}
        assert {row["edges_used"] for row in clock["hosts"]} == {2 * (HOSTS - 1)}
        for row, host in zip(clock["hosts"], hosts, strict=True):
            assert row["drift_ppb"] == pytest.approx(-1e9 * host.drift / (1 + host.drift), abs=1e5)
        owd = await _json(config.socket, "/v1/owd?src=h0&sort=name&limit=2")
        assert owd["path_count"] == HOSTS - 1
        assert [row["dst"] for row in owd["paths"]] == ["h1/eth0", "h2/eth0"]
        assert owd["paths"][0]["fwd_p99_ns"] == 9000
        events = await _json(config.socket, "/v1/events")
        assert {event["kind"] for event in events["events"]} >= {"host_up", "clock_synced"}
        assert (await _get(config.socket, "/healthz"))[0] == 200
        assert (await _get(config.socket, "/v1/owd?sort=nonsense"))[0] == 400
        await until(lambda: all(len(host.priors) == HOSTS - 1 for host in hosts))
        _check_priors(hosts)
        await _check_metrics(config.socket)
        await asyncio.to_thread(_check_commands, config.socket)


def _check_priors(hosts: list[FakeHost]) -> None:
    for host in hosts:
        for dst, prior in host.priors.items():
            truth = (1 + host.fleet[dst.partition("/")[0]].drift) / (1 + host.drift) - 1
            assert abs(prior.slope - truth) < 6 * prior.sigma
            assert 0 < prior.sigma < 1e-6


async def _check_metrics(socket: str) -> None:
    _, text = await _get(socket, "/metrics")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["cwdp_collector_success",] == 1
    assert samples["cwdp_manager_hosts", "up"] == HOSTS
    assert samples["cwdp_clock_hosts", "synced"] == HOSTS
    assert samples["cwdp_clock_hosts", "set_aside"] == 0
    assert samples["cwdp_bus_messages_total", "received_bad"] == 3
    assert 0 < samples["cwdp_clock_bound_seconds", "0.99"] < 1e-6
    assert samples["cwdp_owd_p99_seconds", "1.0"] == pytest.approx(9e-6)
    assert samples["cwdp_dataplane_events_total", "probe_ok"] > 0
    assert samples["cwdp_manager_counters_dropped_total",] == 0


def _check_commands(socket: str) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "--manager", f"unix://{socket}"])
        assert result.exit_code == 0, result.output
        return result.output

    for command in ("clock", "owd", "host"):
        table = run(command)
        assert "h0" in table
        assert max(map(len, table.splitlines())) <= 80
        assert json.loads(run(command, "--json"))
    assert "dataplane.eth0.probe_ok" in run("host", "h0")
    assert len(json.loads(run("owd", "--json", "--limit", "3"))["paths"]) == 3
    unknown = CliRunner().invoke(main, ["host", "nobody", "--manager", f"unix://{socket}"])
    assert unknown.exit_code == 1
    assert unknown.stderr == (
        "error: the manager knows no host 'nobody'\n  `cwdp host` lists those that it knows\n"
    )
    assert ManagerClient(f"unix://{socket}").get("/healthz") == {"status": "ok"}
    with pytest.raises(ManagerError, match="refused"):
        ManagerClient(f"unix://{socket}").get("/v1/owd", {"sort": "nonsense"})


def _steer(socket: str, *arguments: str) -> Result:
    key = ("--host", "h0", "--dev", "eth0", "--dst", "10.0.0.9", "--qpn", "7")
    return CliRunner().invoke(
        main, ["steer", arguments[0], *key, *arguments[1:], "--manager", f"unix://{socket}"]
    )


@asynchronous
async def test_agents_are_told_changes_as_long_as_their_hellos_say_that_they_read_them(
    tmp_path: Path,
) -> None:
    port = free_port()
    config = config_of(tmp_path, port)
    async with _fleet(port) as hosts, running(config) as manager:
        await until(lambda: all(host.desired and host.desired.probes for host in hosts))
        counters, first = manager.bus.documents.counters, hosts[0]
        await asyncio.to_thread(_steer, config.socket, "set", "--sport", "50000", "--backup", "50001")
        await until(lambda: first.desired is not None and len(first.desired.steer) == 1)
        assert counters["changes"] > 0
        say = first.hello
        first.hello = lambda: msgspec.structs.replace(say(), reads_changes=False)  # type: ignore[method-assign]
        await until(lambda: not manager.state.members.hosts["h0"].hello.reads_changes)
        assert manager.bus.session is not None
        bucket, under = stored.bucket(), document_key(POD, "h0")

        async def is_whole() -> bool:
            assert manager.bus.session is not None
            found = await stored.read(manager.bus.session, bucket, under, leader_seal())
            return found.to_it is None and found.whole is not None and len(found.whole.steer) == 1

        for _ in range(200):
            if await is_whole():
                break
            await asyncio.sleep(0.05)
        assert await is_whole()
        await asyncio.to_thread(_steer, config.socket, "set", "--sport", "50002", "--backup", "50001")
        await until(lambda: first.desired is not None and first.desired.steer[0].sport == 50_002)
        assert await is_whole()


@asynchronous
async def test_steering_reaches_the_host_and_outlives_the_manager(tmp_path: Path) -> None:
    port = free_port()
    config = config_of(tmp_path, port)
    wanted = SteerQp(nic="eth0", dst_addr="10.0.0.9", qpn=7, sport=50_000, backup_sport=50_001, override=True)

    def followed(hosts: list[FakeHost], steer: list[SteerQp]) -> bool:
        return hosts[0].desired is not None and hosts[0].desired.steer == steer

    async with _fleet(port) as hosts:
        async with running(config):
            await until(lambda: all(host.desired and host.desired.probes for host in hosts))
            ports = ("--sport", "50000", "--backup", "50001")
            result = await asyncio.to_thread(_steer, config.socket, "set", *ports)
            assert (result.exit_code, result.output) == (
                0,
                "h0/eth0: 10.0.0.9 QPN 7 leaves from 50000, backed up by 50001\n",
            )
            await until(lambda: followed(hosts, [wanted]))
            answer = await _json(config.socket, "/v1/steer?host=h0")
            assert [(row["dst"], row["sport"]) for row in answer["steered"]] == [("10.0.0.9", 50_000)]
        before = hosts[0].desired
        assert before is not None
        assert before.roce == RoceSettings()
        async with running(config):
            await until(lambda: hosts[0].desired is not None and hosts[0].desired.version > before.version)
            assert followed(hosts, [wanted])
            result = await asyncio.to_thread(_steer, config.socket, "unset")
            assert result.exit_code == 0, result.output
            await until(lambda: followed(hosts, []))
            result = await asyncio.to_thread(_steer, config.socket, "unset")
            assert (result.exit_code, result.stderr) == (
                1,
                "error: the manager refused: 10.0.0.9 QPN 7 is not steered at h0/eth0\n  correct the arguments\n",
            )


def _slice(socket: str, *arguments: str) -> Result:
    where = ("--host", "h0", "--dev", "eth0", "--manager", f"unix://{socket}")
    return CliRunner().invoke(main, ["slice", *arguments, *where])


@asynchronous
async def test_slices_reach_the_host_and_outlive_the_manager(tmp_path: Path) -> None:
    port = free_port()
    config = config_of(tmp_path, port)
    file = tmp_path / "slices.toml"
    file.write_text('[[slice]]\nname = "bulk"\nguaranteed = "5mbit"\nmatch = [{ dscp = 8 }]\n')
    bulk = Slice(name="bulk", guaranteed="5mbit", match=(Match(dscp=8),))
    wanted = NicSlices(nic="eth0", wanted=SliceSet(slice=(bulk,), link_rate="1gbit"))

    def followed(hosts: list[FakeHost], slices: list[NicSlices]) -> bool:
        return hosts[0].desired is not None and hosts[0].desired.slices == slices

    async with _fleet(port) as hosts:
        async with running(config):
            await until(lambda: all(host.desired and host.desired.probes for host in hosts))
            result = await asyncio.to_thread(
                _slice, config.socket, "apply", str(file), "--link-rate", "1gbit"
            )
            assert result.exit_code == 0, result.output
            assert result.output.startswith("h0/eth0: 1 slice wanted")
            await until(lambda: followed(hosts, [wanted]))
            answer = await _json(config.socket, "/v1/slice?host=h0")
            assert [row["wanted"]["slice"][0]["name"] for row in answer["interfaces"]] == ["bulk"]
            result = await asyncio.to_thread(
                _slice, config.socket, "apply", str(file), "--link-rate", "4mbit"
            )
            assert "the guarantees exceed the link: 5mbit = 5mbit" in result.stderr
        before = hosts[0].desired
        assert before is not None
        async with running(config):
            await until(lambda: hosts[0].desired is not None and hosts[0].desired.version > before.version)
            assert followed(hosts, [wanted])
            result = await asyncio.to_thread(_slice, config.socket, "delete")
            assert result.exit_code == 0, result.output
            await until(lambda: followed(hosts, []))
            result = await asyncio.to_thread(_slice, config.socket, "delete")
            assert result.exit_code == 1
            assert result.stderr.startswith("error: the manager refused: no slices are wanted at h0/eth0\n")


@asynchronous
async def test_clocks_go_on_when_nats_server_is_killed(tmp_path: Path) -> None:
    port = free_port()
    async with running(config_of(tmp_path, port)) as manager, _fleet(port) as hosts:
        await until(lambda: _agree(hosts))
        server = manager.server
        assert server is not None
        assert server.pid is not None
        timeline = hosts[0].update.timeline if hosts[0].update else ""
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: not any(host.bus.connected for host in hosts))
        for _ in range(3):
            await _all_updated(hosts)
        assert _agree(hosts)
        assert {host.update.timeline for host in hosts if host.update} == {timeline}
        assert all(row.state == "synced" for row in manager.state.clock.view(time.monotonic()))


@asynchronous
async def test_a_killed_manager_takes_up_the_timeline_without_a_step(tmp_path: Path) -> None:
    port = free_port()
    config = config_of(tmp_path, port)
    arguments = [
        "--bus-listen",
        config.bus_listen,
        "--page",
        "",
        "--socket",
        config.socket,
        "--state-dir",
        config.state_dir,
    ]
    command = [sys.executable, "-m", "cwdp", "manager", "run", *arguments]

    async def start() -> asyncio.subprocess.Process:
        with (tmp_path / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(*command, stderr=log)

    async with _fleet(port) as hosts:
        first = await start()
        try:
            await until(lambda: _agree(hosts))
            await asyncio.sleep(1.0)
        finally:
            first.kill()
            await first.wait()
        await until(lambda: not any(host.bus.connected for host in hosts))
        before = [host.update for host in hosts]
        probes = [host.desired.probes for host in hosts if host.desired]
        second = await start()
        try:
            steps: list[float] = []
            for _ in range(6):
                await _all_updated(hosts)
                steps += _steps_ns(hosts, before)
            assert max(map(abs, steps)) < 100
            assert _agree(hosts)
            seen = {host.update.timeline for host in hosts if host.update}
            assert seen == {update.timeline for update in before if update}
            assert [host.desired.probes for host in hosts if host.desired] == probes
        finally:
            second.terminate()
            assert await second.wait() == 0


@asynchronous
async def test_a_liar_is_named_and_the_others_keep_their_time(tmp_path: Path) -> None:
    port = free_port()
    async with running(config_of(tmp_path, port)) as manager, _fleet(port, 8) as hosts:
        await until(lambda: _agree(hosts))
        liar, honest = hosts[3], [host for host in hosts if host.name != "h3"]
        liar.lie_ns = 1e6
        await until(lambda: manager.state.clock.state_of("h3") == "set_aside")
        assert manager.state.clock.states() == {"synced": 7, "set_aside": 1, "unsynced": 0, "holdover": 0}
        assert _agree(honest)
        assert any(e.kind == "clock_set_aside" and e.host == "h3" for e in manager.state.events)


@asynchronous
async def test_a_second_manager_on_the_same_socket_is_refused(tmp_path: Path) -> None:
    port = free_port()
    config = config_of(tmp_path, port)
    async with running(config) as manager:
        await until(lambda: manager.bus.connected)
        with pytest.raises(ManagerError, match="another manager answers"):
            await Manager(config).run()


@asynchronous
async def test_every_host_hears_of_its_clock_though_the_queue_holds_fewer(tmp_path: Path) -> None:
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "SEND_QUEUE_MESSAGES", 12)
        async with running(config_of(tmp_path, port)) as manager, _fleet(port, 30) as hosts:
            await until(lambda: all(host.update is not None for host in hosts))
            for _ in range(3):
                await _all_updated(hosts)
            assert manager.bus.counters["dropped_slow"] == 0


@asynchronous
async def test_a_loop_that_stood_still_reads_the_hellos_before_it_gives_hosts_up(tmp_path: Path) -> None:
    port, stop = free_port(), threading.Event()

    async def live() -> None:
        async with _fleet(port, 4):
            await asyncio.to_thread(stop.wait)

    elsewhere = threading.Thread(target=lambda: asyncio.run(live()))
    async with running(config_of(tmp_path, port)) as manager:
        elsewhere.start()
        try:
            await until(lambda: len(manager.state.members.hosts) == 4)
            await asyncio.sleep(1.2)
            time.sleep(MISSED_HELLOS * HELLO_INTERVAL_S + 1.5)  # noqa: ASYNC251 - it is to stand still
            await asyncio.sleep(2.0)
            assert [event.kind for event in manager.state.events if event.kind == "host_lost"] == []
            assert {host.state for host in manager.state.members.hosts.values()} == {"up"}
            _, text = await _get(manager.config.socket, "/metrics")
            lag_s = re.search(r"^cwdp_manager_loop_lag_seconds (\S+)$", text, re.MULTILINE)
            assert lag_s is not None
            assert float(lag_s[1]) > MISSED_HELLOS * HELLO_INTERVAL_S
        finally:
            stop.set()
            await asyncio.to_thread(elsewhere.join)
