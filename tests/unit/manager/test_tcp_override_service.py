"""Operators steer a TCP connection by the whole manager: by command, by HTTP, on the bus, in the history, and over its end."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from asynchronous import asynchronous
from bus_fakes import POD
from click.testing import CliRunner
from fakes import FakeHost, fleet, until
from one_manager import config_of, running

from cwdp.cli import main
from cwdp.shared.addresses import address_bytes
from cwdp.shared.bus.messages import SteerReport
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.subjects import up
from cwdp.shared.connections import TCP_ROW, NicConnections, TcpReport
from cwdp.shared.tcp import SteeredTcp, SteerTcp
from manager.service import Manager
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")

NAME = "h0/eth0:40001 - h1/eth0:5201"
PORTS = {"h0": 40_001, "h1": 5_201}
PEER = {"h0": "h1", "h1": "h0"}
TELL_S = 0.2


@contextlib.asynccontextmanager
async def _hosts(port: int) -> AsyncIterator[list[FakeHost]]:
    hosts = fleet(2, f"nats://127.0.0.1:{port}")
    for host in hosts:
        host.start()
    telling = asyncio.create_task(_tell(hosts))
    try:
        yield hosts
    finally:
        telling.cancel()
        for host in hosts:
            await host.stop()


async def _tell(hosts: list[FakeHost]) -> None:
    """Each host tells of the connection between them again and again, and that it is steered as it was told."""
    at_ns = 0
    while True:
        at_ns += round(TELL_S * 1e9)
        for host in hosts:
            tcp = host.desired.tcp if host.desired else []
            told = [SteeredTcp(steer=one, managed=True, confirmed=True) for one in tcp]
            host.bus.publish(up(POD, host.name, "tcp"), _connection(host, at_ns))
            steered = SteerReport(host=host.name, managed=[], by_hand=[], tcp=told, boot_id="boot")
            host.bus.publish(up(POD, host.name, "steer"), steered)
        await asyncio.sleep(TELL_S)


def _connection(host: FakeHost, at_ns: int) -> TcpReport:
    row = np.zeros(1, TCP_ROW)
    for end, name in (("local", host.name), ("remote", PEER[host.name])):
        address = ip_address(host.fleet[name].addresses["ipv4"] or "")
        row[f"{end}_addr"] = np.frombuffer(address_bytes(address), np.uint8)
    row["local_port"], row["remote_port"], row["state"] = PORTS[host.name], PORTS[PEER[host.name]], 1
    nic = NicConnections(nic="eth0", rows=row_bytes(row))
    return TcpReport(host=host.name, at_ns=at_ns, nics=[nic], services=["x"], boot_id="boot")


def _run(socket: str, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*arguments, "--manager", f"unix://{socket}"], env={"COLUMNS": "80"})
    return result.exit_code, result.output


async def _json(socket: str, path: str, **query: str) -> Any:
    connector = aiohttp.UnixConnector(path=socket)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"http://x{path}", params=query) as answer,
    ):
        assert answer.status == 200
        return json.loads(await answer.text())


def _wanted(host: FakeHost, sports: tuple[int, int]) -> SteerTcp:
    peer = host.fleet[PEER[host.name]]
    return SteerTcp(
        nic="eth0",
        local_addr=host.addresses["ipv4"] or "",
        remote_addr=peer.addresses["ipv4"] or "",
        local_port=PORTS[host.name],
        remote_port=PORTS[peer.name],
        sport=sports[0],
        backup_sport=sports[1],
        override=True,
    )


def _told(hosts: list[FakeHost]) -> list[list[SteerTcp]]:
    return [host.desired.tcp if host.desired else [] for host in hosts]


def _is_told(manager: Manager) -> bool:
    """Whether both hosts have told of the connection, and of what is steered."""
    return len(manager.state.traffic.tcp.tables) == len(manager.state.planner.steered_tcp.nics) == len(PORTS)


@asynchronous
async def test_it_reaches_both_ends_and_outlives_the_manager(tmp_path: Path) -> None:
    port = free_port()
    config = config_of(tmp_path, port)
    options = ("--sport", "50001", "--backup", "50002", "--back-sport", "50003", "--back-backup", "50004")
    async with _hosts(port) as hosts:
        wanted = [[_wanted(hosts[0], (50_001, 50_002))], [_wanted(hosts[1], (50_003, 50_004))]]
        async with running(config) as manager:
            await until(lambda: all(host.desired and host.desired.probes for host in hosts))
            await until(lambda: _is_told(manager))
            status, output = await asyncio.to_thread(
                _run, config.socket, "steer", "tcp", "set", NAME, *options
            )
            assert (status, output) == (
                0,
                f"{NAME} leaves from 50001, backed up by 50002; comes back from 50003, backed up by 50004\n",
            )
            await until(lambda: _told(hosts) == wanted)
            (listed,) = (await _json(config.socket, "/v1/steer/tcp", host="h1"))["connections"]
            assert (listed["connection"], listed["near"]["sport"], listed["far"]["sport"]) == (
                NAME,
                50_001,
                50_003,
            )
            await _check_shown(config.socket)
        (tmp_path / "state" / "steer_tcp.json").unlink()
        before = max(host.desired.version for host in hosts if host.desired)
        async with running(config) as manager:
            await until(lambda: manager.state.leads and len(manager.state.overrides.tcp) == 1)
            await until(lambda: all(host.desired and host.desired.version > before for host in hosts))
            await until(lambda: _is_told(manager))
            await asyncio.to_thread(_check_refused, config.socket)
            assert _told(hosts) == wanted
            status, output = await asyncio.to_thread(
                _run, config.socket, "steer", "tcp", "unset", *NAME.split()
            )
            assert (status, output) == (0, f"{NAME} is left to the planner\n")
            await until(lambda: _told(hosts) == [[], []])
            kinds = "steer_set,steer_withdrawn"
            for host in ("h0", "h1"):
                events = (await _json(config.socket, "/v1/events", kind=kinds, host=host))["events"]
                assert [event["kind"] for event in events] == ["steer_set", "steer_withdrawn"]
                assert f"TCP {NAME} leaves from 50001 (backup 50002)" in events[0]["detail"]
            changes = await _changes(config.socket, 2)
            assert [(one["what"], one["action"], one["wanted"]["far"]["host"]) for one in changes] == [
                ("steer", "set", "h1"),
                ("steer", "withdrawn", "h1"),
            ]


async def _changes(socket: str, count: int) -> list[Any]:
    """Operators' changes in the history, once so many are written."""
    rows: list[Any] = []
    for _ in range(200):
        rows = (await _json(socket, "/v1/history", what="override"))["rows"]
        if len(rows) == count:
            break
        await asyncio.sleep(0.05)
    return rows


async def _check_shown(socket: str) -> None:
    rows: list[Any] = []
    for _ in range(200):
        rows = (await _json(socket, "/v1/tcp"))["connections"]
        if all(row["steered"] for row in rows):
            break
        await asyncio.sleep(0.05)
    assert [row["steered"]["set_by"] for row in rows] == ["operator", "operator"]
    status, output = await asyncio.to_thread(_run, socket, "tcp")
    assert status == 0
    assert "path*" in output
    assert "an operator has steered it" in " ".join(output.split())
    status, output = await asyncio.to_thread(_run, socket, "steer", "list", "--host", "h0")
    assert (status, NAME in output, "its path" in output) == (0, True, True)


def _check_refused(socket: str) -> None:
    for arguments, message in (
        (("set", "h0/eth0:1 - h1/eth0:2", "--sport", "50001"), "no agent tells of the TCP connection"),
        (("set", "nonsense", "--sport", "50001"), "names no TCP connection"),
        (("set", NAME, "--sport", "50007"), "no way back is known"),
        (("unset", "h0/eth0:1 - h1/eth0:2"), "no operator steers the TCP connection"),
    ):
        status, output = _run(socket, "steer", "tcp", *arguments)
        assert (status, message in output, output.count("\n")) == (1, True, 2), output
