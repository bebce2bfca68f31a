"""TCP in the lab: by which way it goes, what agents and manager see of it, and the experiments from end to end."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import need
import pytest
from conftest import lab_name

from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from tools.experiments.tcp import contention, contention_run, failover, failover_run
from tools.experiments.tcp.arms import Arm
from tools.lab import Lab, LabSpec, lifecycle, state
from tools.lab.fleet.processes import Fleet
from tools.lab.network.netns import netns_enter
from tools.lab.truth.ecmp import Stream, switches_of
from tools.lab.truth.passing import Between, spines_crossed
from tools.mpi.allreduce import PROGRAM
from tools.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

CONNECTIONS = 6


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    name = lab_name("tcp")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=1, leaves=2, spines=4, by_headers=True))
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)


def test_switches_choose_by_the_ports_of_tcp(lab: Lab) -> None:
    """Linux would otherwise choose by the hash of the sender's socket, and the ports would say nothing."""
    near, far = lab.hosts
    there = far.nics[0].ipv4
    with netns_enter(far.netns), socket.socket() as listener:
        listener.bind((str(there), 5201))
        listener.listen(CONNECTIONS)
        for port in range(20_000, 20_000 + CONNECTIONS):
            with netns_enter(near.netns), socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                client.bind((str(near.nics[0].ipv4), port))
                client.connect((str(there), 5201))
                server, _ = listener.accept()
                with server:
                    seen = _seen_while_sending(lab, client, server)
            stream = Stream(near.name, near.nics[0].ipv4, there, port, 5201, "tcp")
            assert seen[near.nics[0].ipv4, there] == switches_of(lab, [stream])[stream][1]


def _seen_while_sending(lab: Lab, client: socket.socket, server: socket.socket) -> dict[Between, str]:
    sender = subprocess.Popen(
        [
            "python3",
            "-c",
            "import time,socket,sys\ns=socket.socket(fileno=0)\nfor _ in range(80): s.send(b'x'*900); time.sleep(.01)",
        ],
        stdin=client.fileno(),
        stdout=subprocess.DEVNULL,
    )
    try:
        server.recv(1)
        return spines_crossed(lab)
    finally:
        sender.kill()
        sender.wait()


@contextmanager
def sending(lab: Lab, *ports: int) -> Iterator[None]:
    """`iperf3` from the first host to the second, to each of some ports."""
    near, far = lab.hosts
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with ExitStack() as stack:
        for host, command in (
            (far, ["iperf3", "--server", "--port"]),
            (
                near,
                ["iperf3", "--client", str(far.nics[0].ipv4), "--time", "90", "--bitrate", "5M", "--port"],
            ),
        ):
            for port in ports:
                process = stack.enter_context(lab.popen(host.name, [*command, str(port)], **quiet))
                stack.callback(process.terminate)
            time.sleep(0.5)
        yield


def test_a_fleet_sees_both_ends_of_a_named_service_and_nothing_else(lab: Lab) -> None:
    need.installed("iperf3")
    near, far = lab.hosts
    with Fleet(lab, tcp_ports=["5201-5209"]) as fleet, sending(lab, 5202, 6001):
        client = ManagerClient(f"unix://{fleet.socket}")

        def connections() -> list[Any]:
            try:
                found: list[Any] = client.get("/v1/tcp")["connections"]
            except ManagerError:
                return []
            return found

        def both_send() -> bool:
            fleet.check()
            rows = connections()
            return any(row["bps"] for row in rows) and all(row["both_ends"] for row in rows)

        assert wait_for(both_send, 60.0, poll_s=0.25)
        rows = connections()
    assert {port for row in rows for port in (row["local_port"], row["remote_port"]) if port < 10_000} == {
        5202
    }
    assert {row["host"] for row in rows} == {near.name, far.name}
    assert {row["process"]["name"] for row in rows if row["process"]} == {"iperf3"}
    assert {row["peer"] for row in rows} == {f"{host.name}/nic0" for host in lab.hosts}


def test_all_reduces_of_two_jobs_come_out_right(monkeypatch: pytest.MonkeyPatch) -> None:
    need.installed("mpirun")
    need.installed(PROGRAM)
    name = lab_name("allreduce")
    monkeypatch.setattr(contention_run, "NAME", name)
    spec = LabSpec(name=name, rate_bps=15_000_000, by_headers=True)
    setting = contention.make_setting(spec, size_bytes=64 * 1024)
    result = contention_run.run_contention(setting, [Arm.REHASH], 1, seconds=6.0)
    (run,) = result["runs"]
    assert [job["iterations"] > 0 for job in run["jobs"]] == [True, True]
    assert (run["wrong_sums"], run["resets"]) == (0, 0)
    assert 0 < run["optimum_share"] < 1.02
    assert state.load(name) is None


def test_without_cwdp_a_connection_waits_as_long_as_its_link_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need.installed("iperf3")
    name = lab_name("tcpcut")
    monkeypatch.setattr(failover_run, "NAME", name)
    spec = LabSpec(name=name, hosts_per_leaf=1, rate_bps=30_000_000, by_headers=True)
    result = failover_run.run_failover(failover.make_setting(spec, 0.5), [Arm.ECMP], 1, 1)
    (run,) = result["runs"]
    assert run["connections"] == 2
    assert run["stalls_ns"]
    assert max(run["stalls_ns"]) > failover.DARK_S * 0.9e9
    assert (run["resets"], run["failed"]) == (0, 0)
    assert run["retransmits"] > 0


def test_with_cwdp_a_connection_leaves_a_link_that_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    need.installed("iperf3")
    name = lab_name("tcpleave")
    monkeypatch.setattr(failover_run, "NAME", name)
    spec = LabSpec(name=name, hosts_per_leaf=1, rate_bps=failover.RATE_BPS, by_headers=True)
    result = failover_run.run_failover(failover.make_setting(spec, 0.2), [Arm.CWDP], 1, 1)
    (run,) = result["runs"]
    assert run["connections"] == 2
    assert run["stalls_ns"]
    assert max(run["stalls_ns"]) < failover.DARK_S * 0.25e9
    assert (run["resets"], run["failed"]) == (0, 0)
