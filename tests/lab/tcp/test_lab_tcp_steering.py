"""The closed loop of TCP in the lab: connections that collide on a spine are told apart by the planner, and go so."""

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
from manager.config import PlannerSettings
from tools.lab import Lab, LabSpec, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.truth.ecmp import Stream, switches_of
from tools.lab.truth.passing import spines_crossed
from tools.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

RATE_BPS = 20_000_000
PORT = 5_201
SETTLE_S = 90.0


@pytest.fixture
def lab() -> Iterator[Lab]:
    name = lab_name("tcpsteer")
    spec = LabSpec(
        name=name,
        leaves=2,
        spines=2,
        hosts_per_leaf=2,
        rate_bps=RATE_BPS,
        spine_rate_bps=RATE_BPS,
        by_headers=True,
    )
    lifecycle.up(spec)
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)


def colliding(lab: Lab) -> list[Stream]:
    """A connection from each host of the first leaf to one of the second, by ports that lead over the same spine."""
    hosts = lab.hosts
    candidates = [
        [
            Stream(near.name, near.nics[0].ipv4, far.nics[0].ipv4, port, PORT, "tcp")
            for port in range(20_000, 20_016)
        ]
        for near, far in zip(hosts[:2], hosts[2:], strict=True)
    ]
    crossed = switches_of(lab, [stream for each in candidates for stream in each])
    first = candidates[0][0]
    return [first, next(one for one in candidates[1] if crossed[one][1] == crossed[first][1])]


@contextmanager
def sending(lab: Lab, streams: list[Stream]) -> Iterator[None]:
    """`iperf3` by each, for as long as the test may take."""
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with ExitStack() as stack:
        for far in lab.hosts[2:]:
            server = stack.enter_context(
                lab.popen(far.name, ["iperf3", "--server", "--port", str(PORT)], **quiet)
            )
            stack.callback(server.terminate)
        time.sleep(0.5)
        for stream, far in zip(streams, lab.hosts[2:], strict=True):
            command = ["iperf3", "--client", str(far.nics[0].ipv4), "--port", str(PORT), "--time", "200"]
            command += ["--cport", str(stream.sport)]
            client = stack.enter_context(lab.popen(stream.source, command, **quiet))
            stack.callback(client.terminate)
        yield


def test_connections_that_collide_on_a_spine_end_up_apart(lab: Lab) -> None:
    need.installed("iperf3")
    streams = colliding(lab)
    ends = list(zip(lab.hosts[:2], lab.hosts[2:], strict=True))
    between = [(near.nics[0].ipv4, far.nics[0].ipv4) for near, far in ends]
    fleet = Fleet(lab, planner=PlannerSettings(enabled=True), tcp_ports=[f"{PORT}-{PORT}"])
    with fleet, sending(lab, streams):
        client = ManagerClient(f"unix://{fleet.socket}")

        def large() -> list[Any]:
            """What the two connections are told, by the ends that send."""
            try:
                rows = client.get("/v1/tcp", {"sort": "bytes"})["connections"]
            except ManagerError:
                return []
            names = {(stream.source, stream.sport) for stream in streams}
            return [row for row in rows if (row["host"], row["local_port"]) in names]

        def are_apart() -> bool:
            fleet.check()
            steered = [row["steered"] for row in large() if row["steered"]]
            if len(steered) != 2 or any(one["standing"] != "primary" for one in steered):
                return False
            seen = spines_crossed(lab)
            return all(pair in seen for pair in between) and len({seen[pair] for pair in between}) == 2

        assert wait_for(are_apart, SETTLE_S, poll_s=0.5), large()
        assert wait_for(lambda: _have_room(large()), SETTLE_S, poll_s=0.5), large()


def _have_room(rows: list[Any]) -> bool:
    """Each gets more than two that share a link."""
    return len(rows) == 2 and min(row["bps"] or 0.0 for row in rows) > 0.6 * RATE_BPS
