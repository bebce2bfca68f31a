"""The planner on real packets: queue pairs that collide are taken apart."""

import time
from collections.abc import Iterator

import pytest
from conftest import lab_name
from waiting import until

from cwdp.cli.client import ManagerClient
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from tools.lab import Lab, LabSpec, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.truth.clocks import Truth
from tools.lab.truth.spines import spines_by_port
from tools.roce.flows import Endpoint, Flow
from tools.roce.generator import Generator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

RATE_BPS = 8_000_000
PORTS = range(52_000, 52_008)
PAIRS = (("h1", "h3"), ("h2", "h4"))


@pytest.fixture(scope="module")
def collision() -> Iterator[tuple[Lab, ManagerClient, list[Flow]]]:
    """Two queue pairs between two leaves, by ports that lead both over the same one of two spines."""
    name = lab_name("plan")
    lifecycle.up(
        LabSpec(name=name, hosts_per_leaf=2, spines=2, seed=3, rate_bps=RATE_BPS, spine_rate_bps=RATE_BPS)
    )
    try:
        lab = Lab.open(name)
        flows = [_flow(lab, number, *pair) for number, pair in enumerate(PAIRS)]
        roce = RoceConfig(dead_after_ms=100.0)
        with (
            Fleet(
                lab,
                ProbeSettings(pairs_per_s=100.0, degree=3),
                roce=roce,
                pulse_interval_ms=20.0,
                planner=PlannerSettings(),
            ) as fleet,
            Truth(lab) as truth,
        ):
            wait_for_lock(fleet, truth)
            yield lab, ManagerClient(f"unix://{fleet.socket}"), flows
    finally:
        lifecycle.down(name)


def _flow(lab: Lab, number: int, source: str, target: str) -> Flow:
    ends = lab.host(source), lab.host(target)
    spines = spines_by_port(lab, *ends, PORTS)
    sport = min(port for port, spine in spines.items() if spine == "s1")
    return Flow(
        id=number,
        source=Endpoint(source, ends[0].nics[0].ipv4),
        target=Endpoint(target, ends[1].nics[0].ipv4),
        qpn=500 + number,
        remote_qpn=600 + number,
        sport=sport,
        ack_sport=sport,
        mtu=1024,
        window=24,
        message_bytes=32_768,
        retries=1000,
    )


def test_two_that_collide_are_taken_apart(collision: tuple[Lab, ManagerClient, list[Flow]]) -> None:
    lab, client, flows = collision
    with Generator(flows, lab.popen, lab.run_dir, snapshot_s=0.5) as generator:
        generator.start()
        until(lambda: len(_spines(flows, client)) == 2, "one over each spine")
        moved = [e for e in client.get("/v1/events")["events"] if e["kind"] in ("qp_moved", "qp_rerouted")]
        until(
            lambda: client.get("/v1/manager")["planner"]["backed_up"] >= 4, "ways round for data and answers"
        )
        time.sleep(3.0)
        result = generator.stop()
    assert 1 <= len(moved) <= 3
    assert result["total"]["icrc_errors"] == 0
    assert not any(flow["failed"] for flow in result["flows"])
    until(lambda: client.get("/v1/manager")["planner"]["dead_links"] == [], "no dead links")
    status = client.get("/v1/manager")
    assert (status["leads"], status["planner"]["enabled"]) == (True, True)


def _spines(flows: list[Flow], client: ManagerClient) -> set[str]:
    """The spines that the queue pairs' data takes now, by the ports that hosts report."""
    found = set()
    for flow in flows:
        rows = client.get("/v1/qp", {"host": flow.source.host})["queue_pairs"]
        sports = {
            row["sport"] for row in rows if (row["direction"], row["qpn"]) == ("egress", flow.remote_qpn)
        }
        query = {"src": flow.source.host, "dst": flow.target.host}
        for pair in client.get("/v1/path", query)["pairs"]:
            found |= {port["nodes"][1] for port in pair["ports"] if port["sport"] in sports}
    return found
