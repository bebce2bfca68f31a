"""The process that looks at TCP connections: of real ones on loopback, by port, cgroup and process; and what the agent makes of it."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from asynchronous import asynchronous

from cwdp.agent.config import AgentConfig
from cwdp.agent.links import LinkTable
from cwdp.agent.tcp import diag, owners
from cwdp.agent.tcp.diag import Diag
from cwdp.agent.tcp.keeper import MOST_WAITING, HostTcp, TcpKeeper
from cwdp.agent.tcp.measuring import Measuring
from cwdp.agent.tcp.orders import TcpOrder, TcpWord
from cwdp.agent.tcp.owners import NamedProcesses, SocketOwners, cgroup_ids, ssh_ids
from cwdp.agent.tcp.services import Service, TcpConfig, TcpService
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.connections import CLOSED, TCP_ROW, TcpReport
from tools.free_ports import free_port

LO = {"lo": ["127.0.0.1"]}


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        with socket.create_connection(listener.getsockname()) as client:
            server, _ = listener.accept()
            with server:
                yield client, server


def order(service: Service, **others: object) -> TcpOrder:
    return TcpOrder(services=[service], nics=LO, interval_s=0.1, **others)  # type: ignore[arg-type]


def rows(word: TcpWord) -> dict[tuple[int, int], np.void]:
    told = [row for nic in word.nics for row in rows_of(nic.rows, TCP_ROW)]
    return {(int(row["local_port"]), int(row["remote_port"])): row for row in told}


def names(ends: tuple[socket.socket, socket.socket]) -> list[tuple[int, int]]:
    return [(end.getsockname()[1], end.getpeername()[1]) for end in ends]


def test_a_service_by_port(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = names(ends)
    with Diag() as ask:
        measuring = Measuring(order(Service(name="x", ports=[(there[0], there[0])])))
        word = measuring.look(ask)
        assert rows(word).keys() == {here, there}
        assert word.in_full
        assert rows(word)[here]["pid"] == os.getpid()
        assert [one.pid for one in word.programs] == [os.getpid()]
        ends[0].sendall(bytes(100))
        time.sleep(0.01)
        word = measuring.look(ask)
        assert (word.in_full, rows(word)[here]["bytes_sent"], rows(word)[there]["bytes_received"]) == (
            False,
            100,
            100,
        )
        assert not rows(measuring.look(ask))
        assert measuring.look(ask).nics == []
        measuring.follow(order(Service(name="x", ports=[(1, 1)])))
        assert not rows(measuring.look(ask))
        assert word.counters["tcp_connections"] == 2


def test_refused_ports_are_never_looked_at(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = names(ends)
    named = Service(name="x", ports=[(here[0], here[0])])
    with Diag() as ask:
        word = Measuring(order(named, refused_ports=[there[0]])).look(ask)
    assert not rows(word)
    assert word.counters["tcp_refused"] == 2


def test_a_service_by_process_and_not_by_the_next_one_with_its_number(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Diag() as ask:
        measuring = Measuring(order(Service(name="x", pids=[os.getpid()])))
        assert set(names(ends)) <= rows(measuring.look(ask)).keys()
        monkeypatch.setattr(owners, "_began", lambda _proc, _pid: 1)
        assert {int(row["state"]) for row in rows(measuring.look(ask)).values()} == {CLOSED}


def test_a_service_by_cgroup(
    ends: tuple[socket.socket, socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = names(ends)[0]
    cgroup = next(
        int(row["cgroup"]) for row in diag.read() if (row["local_port"], row["remote_port"]) == here
    )
    if not cgroup:
        pytest.skip("this kernel does not tell cgroups of sockets")
    monkeypatch.setattr(
        "cwdp.agent.tcp.measuring.cgroup_ids", lambda patterns: {cgroup} if patterns else set()
    )
    with Diag() as ask:
        assert here in rows(Measuring(order(Service(name="x", cgroups=["/x"]))).look(ask))


def test_nothing_is_asked_before_an_address_is_known(ends: tuple[socket.socket, socket.socket]) -> None:
    here = names(ends)[0]
    measuring = Measuring(TcpOrder(services=[Service(name="x", ports=[(here[0], here[0])])]))
    with Diag() as ask:
        assert measuring.look(ask).nics == []
    assert measuring.counters["tcp_reads"] == 0


def test_a_kernel_that_refuses_is_counted_and_ends_no_connection(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = names(ends)[0]
    with Diag() as ask:
        measuring = Measuring(order(Service(name="x", ports=[(here[0], here[0])])))
        assert here in rows(measuring.look(ask))
        with monkeypatch.context() as patch:
            patch.setattr(diag, "SOCK_DIAG_BY_FAMILY", 99)
            word = measuring.look(ask)
        assert (word.nics, word.in_full, word.counters["tcp_read_failed"]) == ([], False, 1)
        word = measuring.look(ask)
    assert (rows(word), word.counters["tcp_closed"], word.counters["tcp_connections"]) == ({}, 0, 2)


def test_cgroups_below_a_path_without_ssh(tmp_path: Path) -> None:
    made = [
        "a.slice/x.service/inner",
        "a.slice/y.service",
        "b.slice/x.service",
        "a.slice/ssh.service/s",
        "system.slice/sshd.service",
    ]
    for path in made:
        (tmp_path / path).mkdir(parents=True)
    number = {path: (tmp_path / path).stat().st_ino for path in ("a.slice", "a.slice/x.service", *made)}
    assert cgroup_ids(["/a.slice/x.service"], tmp_path) == {number["a.slice/x.service"], number[made[0]]}
    assert cgroup_ids(["/*/x.service"], tmp_path) == {
        number["a.slice/x.service"],
        number[made[0]],
        number[made[2]],
    }
    assert cgroup_ids(["/a.slice"], tmp_path) == {
        number[one] for one in ("a.slice", "a.slice/x.service", *made[:2])
    }
    assert cgroup_ids(["/none"], tmp_path) == set()
    assert ssh_ids(tmp_path) == {number[made[4]]}


def test_who_has_a_socket_is_looked_up_now_and_then(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = (os.fstat(end.fileno()).st_ino for end in ends)
    found = SocketOwners()
    assert found.of([mine]) == {mine: os.getpid()}
    assert found.of([mine, theirs]) == {mine: os.getpid()}
    monkeypatch.setattr(found, "_next_s", 0.0)
    assert found.of([theirs, 0]) == {theirs: os.getpid()}
    assert NamedProcesses([os.getpid()]).sockets(os.getpid()) >= {mine, theirs}
    assert NamedProcesses([2**22 + 1]).sockets(2**22 + 1) == set()


def test_the_process_says_what_it_sees_and_ends_with_the_agent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    here, there = names(ends)
    command = [sys.executable, "-m", "cwdp.agent.tcp.measuring"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        wanted = order(Service(name="x", ports=[(there[0], there[0])]))
        process.stdin.write(msgspec.json.encode(wanted) + b"\n")
        process.stdin.flush()
        word = msgspec.json.decode(process.stdout.readline(), type=TcpWord)
        assert rows(word).keys() == {here, there}
        process.stdin.close()
        assert process.wait(10) == 0


def host_tcp(port: int) -> HostTcp:
    config = AgentConfig(nics=["lo"], host="a", tcp=TcpConfig(service={"x": TcpService(ports=[port])}))
    links = LinkTable(lambda _name: None)
    links.renew(
        [
            _Message(
                event="RTM_NEWLINK", family=0, index=1, flags=0x10001, IFLA_IFNAME="lo", IFLA_ADDRESS=""
            ),
            _Message(
                event="RTM_NEWADDR",
                index=1,
                family=2,
                scope=0,
                flags=0,
                IFA_LOCAL="127.0.0.1",
                IFA_ADDRESS="127.0.0.1",
            ),
        ]
    )
    return HostTcp(config, links)


class _Message(dict[str, object]):
    """As pyroute2's."""

    def get_attr(self, name: str) -> object:
        return self.get(name)


@asynchronous
async def test_the_agent_reports_what_its_process_sees(ends: tuple[socket.socket, socket.socket]) -> None:
    tcp = host_tcp(names(ends)[0][0])
    assert tcp.keeper is not None
    (job,) = tcp.jobs()
    running = asyncio.create_task(job)
    tcp.order(0.1)
    told: list[tuple[str, TcpReport]] = []
    end_s = time.monotonic() + 20
    while not told and time.monotonic() < end_s:
        await asyncio.sleep(0.05)
        tcp.tell(lambda *said: told.append(said))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    kind, report = told[0]
    assert (kind, report.host, report.services, [one.nic for one in report.nics]) == (
        "tcp",
        "a",
        ["x"],
        ["lo"],
    )
    assert len(rows_of(report.nics[0].rows, TCP_ROW)) == 2
    assert tcp.counters["tcp_reads"] >= 1
    assert "tcp_connections" not in tcp.counters


def test_nobody_looks_where_no_service_is_named() -> None:
    tcp = HostTcp(AgentConfig(nics=["lo"], host="a"), LinkTable(lambda _name: None))
    tcp.order(0.1)
    assert (tcp.keeper, tcp.jobs(), list(tcp.reports()), tcp.counters) == (None, [], [], {})


def test_reports_that_nobody_takes_are_dropped_and_counted() -> None:
    keeper = TcpKeeper(TcpOrder(services=[Service(name="x", ports=[(free_port(), 65_535)])]))
    word = TcpWord(
        at_ns=1, nics=[], programs=[], in_full=False, counters={"tcp_reads": 1, "tcp_connections": 5}
    )
    for _ in range(MOST_WAITING + 3):
        assert keeper._hear(msgspec.json.encode(word)) == {"tcp_reads": 1}
    assert (len(keeper.words), keeper.dropped) == (MOST_WAITING, 3)
