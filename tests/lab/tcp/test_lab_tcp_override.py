"""An operator moves a live TCP connection over another spine by hand, and releases it again."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import need
import pytest
from click.testing import CliRunner
from conftest import lab_name

from cwdp.cli import main
from manager.config import PlannerSettings
from tools.lab import Lab, LabSpec, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.truth.passing import spines_crossed
from tools.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

RATE_BPS = 20_000_000
PORT = 5_201
SETTLE_S = 90.0


@pytest.fixture
def lab() -> Iterator[Lab]:
    name = lab_name("tcphand")
    spec = LabSpec(name=name, leaves=2, spines=2, hosts_per_leaf=1, rate_bps=RATE_BPS, by_headers=True)
    lifecycle.up(spec)
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)


@contextmanager
def sending(lab: Lab, target: str) -> Iterator[subprocess.Popen[Any]]:
    """The client of an `iperf3` from the first host to an address of the second, for as long as the test may take."""
    near, far = lab.hosts
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with ExitStack() as stack:
        server = stack.enter_context(
            lab.popen(far.name, ["iperf3", "--server", "--port", str(PORT)], **quiet)
        )
        stack.callback(server.terminate)
        time.sleep(0.5)
        command = ["iperf3", "--client", target, "--port", str(PORT), "--time", "280"]
        client = stack.enter_context(lab.popen(near.name, [*command, "--bitrate", "8M"], **quiet))
        stack.callback(client.terminate)
        yield client


class Operator:
    """Who gives commands to a fleet's manager."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._manager = fleet, ("--manager", f"unix://{fleet.socket}")

    def run(self, *arguments: str) -> str:
        """A command that has to do what it is told."""
        result = CliRunner().invoke(main, [*arguments, *self._manager], env={"COLUMNS": "80"})
        assert result.exit_code == 0, result.output
        return result.output

    def rows(self) -> list[Any]:
        """The ends of the large connection as `cwdp tcp` tells of them, that which sends first; none until both tell of it."""
        self._fleet.check()
        result = CliRunner().invoke(main, ["tcp", "--sort", "bytes", "--json", *self._manager])
        told = json.loads(result.output)["connections"] if result.exit_code == 0 else []
        large = [row for row in told if max(row["bytes_acked"], row["bytes_received"]) > 100_000]
        large = [row for row in large if row["both_ends"] and row["peer"] is not None]
        return sorted(large, key=lambda row: row["remote_port"] != PORT) if len(large) == 2 else []

    def goes(self, set_by: str) -> bool:
        """Whether both ends go by a path that was set by somebody, as the far end has confirmed."""
        found = [row["steered"] for row in self.rows()]
        return bool(found) and all(
            one is not None and (one["set_by"], one["standing"]) == (set_by, "primary") for one in found
        )

    def ways(self, name: str) -> list[Any]:
        """Both directions of a connection as `cwdp path` tells of them."""
        ways: list[Any] = json.loads(self.run("path", name, "--json"))["ways"]
        return ways


def name_of(row: Any) -> str:
    """A connection as `cwdp tcp` prints it."""
    return f"{row['host']}/{row['nic']}:{row['local_port']} - {row['peer']}:{row['remote_port']}"


def ports_by_way(way: Any) -> dict[tuple[str, ...], int]:
    """A source port of each path that is known whole."""
    return {tuple(port["nodes"]): port["sport"] for port in way["known"]["ports"] if all(port["nodes"])}


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_an_operator_moves_a_live_connection_over_another_spine_and_releases_it(
    lab: Lab, family: str
) -> None:
    need.installed("iperf3")
    near, far = (getattr(host.nics[0], family) for host in lab.hosts)
    fleet = Fleet(lab, planner=PlannerSettings(enabled=True), tcp_ports=[f"{PORT}-{PORT}"])
    with fleet, sending(lab, str(far)) as client:
        operator = Operator(fleet)
        assert wait_for(lambda: operator.goes("planner"), SETTLE_S, poll_s=0.5), operator.rows()
        name = name_of(operator.rows()[0])
        assert name in operator.run("tcp", "--limit", "0")
        there = operator.ways(name)[0]
        assert wait_for(lambda: len(ports_by_way(operator.ways(name)[0])) == 2, SETTLE_S, poll_s=0.5)

        crossed = []
        for nodes, sport in ports_by_way(operator.ways(name)[0]).items():
            other = next(port for way, port in ports_by_way(there).items() if way != nodes)
            told = operator.run(
                "steer", "tcp", "set", *name.split(), "--sport", str(sport), "--backup", str(other)
            )
            assert f"leaves from {sport}, backed up by {other}; comes back from" in told

            def takes(nodes: tuple[str, ...] = nodes) -> bool:
                if not operator.goes("operator"):
                    return False
                ways = operator.ways(name)
                found = [tuple(way["path"]["nodes"] or ()) for way in ways]
                return found == [nodes, nodes[::-1]] and all(way["path"]["owd"] for way in ways)

            assert wait_for(takes, SETTLE_S, poll_s=0.5), operator.run("path", name)
            sent = operator.rows()[0]["bytes_acked"]
            seen = spines_crossed(lab)
            assert seen[near, far] == seen[far, near]
            crossed.append(seen[near, far])
            assert wait_for(lambda sent=sent: operator.rows()[0]["bytes_acked"] > sent, SETTLE_S, poll_s=0.5)
            assert "path*" in operator.run("tcp")
            assert "operator" in operator.run("steer", "list", "--host", lab.hosts[1].name)
        assert set(crossed) == set(lab.topology.spines)

        assert operator.run("steer", "tcp", "unset", name) == f"{name} is left to the planner\n"
        assert wait_for(lambda: operator.goes("planner"), SETTLE_S, poll_s=0.5), operator.rows()
        assert "*" not in "".join(line for line in operator.run("tcp").splitlines() if str(PORT) in line)
        assert client.poll() is None
