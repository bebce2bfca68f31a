"""Transfers over a lab whose queue pairs are moved, and whose dataplane and agent are changed, meanwhile."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import lab_name
from waiting import until

from cwdp.dataplane.abi import Direction
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.steering import QpKey, Steer, Steering
from manager.config import RoceConfig
from tools.lab import Lab, LabSpec, lifecycle, netns_enter
from tools.lab.fleet.processes import Fleet
from tools.roce.flows import Endpoint, Flow, verbs_flow
from tools.roce.generator import Generator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

QPN, REMOTE_QPN = 0x31, 0x32
RATE_BPS = 20_000_000
MOVES = 200
PORTS = (50_000, 65_535)
TIMEOUT_S = 60.0
DEAD_AFTER_MS = 100.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two leaves, four spines, a host on each leaf, its NIC with the dataplane."""
    name = lab_name("steer")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=1))
    made = Lab.open(name)
    try:
        for host in made.hosts:
            with netns_enter(host.netns):
                loader.load(host.nics[0].name)
        yield made
    finally:
        lifecycle.down(name)


def flow_of(lab: Lab, *, ipv6: bool = False, **settings: Any) -> Flow:
    """A queue pair from the first host to the second."""
    source, target = (
        Endpoint(host.name, host.nics[0].ipv6 if ipv6 else host.nics[0].ipv4) for host in lab.hosts
    )
    return verbs_flow(1, source, target, QPN, REMOTE_QPN, rate_bps=RATE_BPS, **settings)


@contextmanager
def maps_of(lab: Lab, host: int) -> Iterator[Maps]:
    """The maps of a host's NIC; this thread is in its namespace."""
    with netns_enter(lab.hosts[host].netns), Maps(tree.here(lab.hosts[host].nics[0].name)) as maps:
        yield maps


def counted(lab: Lab, host: int, direction: Direction, qpn: int) -> Any:
    """The record of a queue pair."""
    with maps_of(lab, host) as maps:
        table = maps.qps[direction]
        return table[(table["tag"] > 1) & (table["key"]["qpn"] == qpn)][0].copy()


def steer(lab: Lab, dst: Any, sport: int | None) -> None:
    """Have the first host's queue pair leave from a source port, or from its own."""
    with maps_of(lab, 0) as maps, tree.locked():
        steering, key = Steering(maps), QpKey(dst, REMOTE_QPN)
        if sport is None:
            steering.unset(key)
        else:
            steering.set(key, Steer(sport))


def assert_nothing_was_lost(flow: dict[str, Any], result: dict[str, Any]) -> None:
    assert not flow["failed"]
    assert flow["delivered_bytes"] == flow["acked_bytes"] > 0
    assert flow["gaps"] == flow["gaps_overtaken"]
    for host in result["hosts"]:
        assert (host["icrc_errors"], host["checksum_errors"], host["malformed"]) == (0, 0, 0)


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("checksum", [False, True], ids=["no checksum", "checksum"])
def test_moves_in_the_middle_of_a_transfer(lab: Lab, ipv6: bool, checksum: bool) -> None:
    """Hundreds of moves: each packet's ICRC is right, and the far end sees the ports that were asked for."""
    flow = flow_of(lab, ipv6=ipv6, udp_checksum=checksum)
    ports = np.random.default_rng(3).integers(*PORTS, MOVES).tolist()
    with Generator([flow], lab.popen, lab.run_dir) as generator:
        generator.start()
        time.sleep(0.2)
        for port in ports:
            steer(lab, flow.target.address, port)
            time.sleep(0.005)
        steer(lab, flow.target.address, None)
        generator.finish()
        result = generator.result(TIMEOUT_S)
    found = result["flows"][0]
    assert_nothing_was_lost(found, result)
    seen = {count["port"] for count in found["sports"]}
    assert seen <= {*ports, flow.sport}
    assert len(seen) > MOVES / 2


def test_an_upgrade_in_the_middle_of_a_transfer(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, the queue pair stays on its path, and its counters go on."""
    flow = flow_of(lab)
    builds = [loader.OBJECT, tmp_path / "other.bpf.o"]
    builds[1].write_bytes(builds[0].read_bytes() + b"\0")
    before = packets_out(lab)
    with Generator([flow], lab.popen, lab.run_dir) as generator:
        steer(lab, flow.target.address, PORTS[0])
        generator.start()
        for number in range(1, 11):
            monkeypatch.setattr(loader, "OBJECT", builds[number % 2])
            for host in lab.hosts:
                with netns_enter(host.netns):
                    assert loader.upgrade(host.nics[0].name).changed
            time.sleep(0.05)
        generator.finish()
        result = generator.result(TIMEOUT_S)
    steer(lab, flow.target.address, None)
    found = result["flows"][0]
    assert_nothing_was_lost(found, result)
    assert [count["port"] for count in found["sports"]] == [PORTS[0]]
    assert packets_out(lab) - before == found["sent_packets"]


def packets_out(lab: Lab) -> int:
    """What the first host's dataplane has counted of the queue pair's data."""
    with maps_of(lab, 0) as maps:
        table = maps.qps[Direction.EGRESS]
        return int(table["packets"][(table["tag"] > 1) & (table["key"]["qpn"] == REMOTE_QPN)].sum())


def test_an_agent_killed_in_the_middle_of_a_transfer(lab: Lab) -> None:
    """Nothing is lost, the steered queue pair with its backup stays where it is, and the counters go on."""
    flow = flow_of(lab)
    dst = flow.target.address
    unload(lab)
    with Fleet(lab, roce=RoceConfig(dead_after_ms=DEAD_AFTER_MS, sample_every=16)) as fleet:
        wait_for_dataplane(lab)
        with maps_of(lab, 0) as maps, tree.locked():
            Steering(maps).set(QpKey(dst, REMOTE_QPN), Steer(PORTS[0], PORTS[1]))
        with maps_of(lab, 0) as maps:
            wait_for_answers(maps)
        with Generator([flow], lab.popen, lab.run_dir) as generator:
            generator.start()
            time.sleep(0.3)
            os.kill(fleet.process(lab.hosts[0].name).pid, signal.SIGKILL)
            time.sleep(1.5)
            generator.finish()
            result = generator.result(TIMEOUT_S)
    found = result["flows"][0]
    assert_nothing_was_lost(found, result)
    assert [count["port"] for count in found["sports"]] == [PORTS[0]]
    assert packets_out(lab) == found["sent_packets"]
    assert counted(lab, 1, Direction.INGRESS, REMOTE_QPN)["psn_gaps"] == found["gaps"]


def unload(lab: Lab) -> None:
    """Leave the NICs to agents, who load the dataplane with the lab's clocks."""
    for host in lab.hosts:
        with netns_enter(host.netns):
            loader.unload(host.nics[0].name)


def wait_for_dataplane(lab: Lab) -> None:
    """Until the first host's agent has loaded it."""
    nic = lab.hosts[0].nics[0].name

    def is_loaded() -> bool:
        with netns_enter(lab.hosts[0].netns):
            return tree.here(nic).path.exists()

    until(is_loaded, "a dataplane loaded by an agent")


def wait_for_answers(maps: Maps) -> None:
    """Until the agent goes by the manager's settings and its pulses over both paths have been answered."""

    def are_answered() -> bool:
        watched = maps.paths[maps.paths["users"] > 0]
        is_told = maps.control["dead_after_ns"][0] == DEAD_AFTER_MS * 1e6
        return bool(is_told and len(watched) == 2 and (watched["last_answer_ns"] > 0).all())

    until(are_answered, "answers to pulses")
