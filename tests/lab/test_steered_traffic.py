"""Steered queue pairs on real packets: failover, what is told of it, telemetry, and delays of data packets."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from conftest import lab_name
from steered_pair import QPN, REMOTE_QPN, SOURCE, TARGET, SteeredPair
from waiting import until

from cwdp.cli.client import ManagerClient
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.bursts import gap_jiffies, jiffy_ns
from cwdp.errors import ManagerError
from manager.config import ProbeSettings, RoceConfig
from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.truth.clocks import Truth
from tools.roce.generator import Generator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

TIMEOUT_S = 30.0
RATE_BPS = 2_000_000
"""What the lab can do beside all else."""

DEAD_AFTER_MS = 50.0
GAP_MS = 200.0
PATIENT_NS = 1_000_000_000
"""A pause of the machine is no loss: packets are sent again only where they are long overdue."""


class Running(SteeredPair):
    """A lab with its services, and a steered queue pair."""

    def __init__(self, lab: Lab, fleet: Fleet, truth: Truth) -> None:
        super().__init__(lab, truth)
        self.lab, self.fleet = lab, fleet
        self.client = ManagerClient(f"unix://{fleet.socket}")
        (self.sport, self.backup_sport, self.spine), self.back = self.ways

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What h1 has told of a kind, oldest first."""
        events = self.client.get("/v1/events", {"host": SOURCE})["events"]
        return [event for event in events if event["kind"] == kind]

    def row(self, host: str, direction: str, qpn: int) -> dict[str, Any]:
        rows = self.client.get("/v1/qp", {"host": host})["queue_pairs"]
        return next((row for row in rows if (row["direction"], row["qpn"]) == (direction, qpn)), {})

    def knows(self, host: str, direction: str, packets: int) -> bool:
        """Whether the manager has heard of so many packets."""
        return self.row(host, direction, REMOTE_QPN).get("packets") == packets

    def counted(self, host: str, direction: Direction) -> int:
        """Packets of the queue pair in the dataplane's own table."""
        maps = self.truth._open(self.lab.host(host))
        assert maps is not None
        table = maps.qps[direction]
        return int(table["packets"][table["key"]["qpn"] == REMOTE_QPN].sum())

    @contextmanager
    def longer_gap(self) -> Iterator[None]:
        """Have bursts of both ends end after a longer gap meanwhile."""
        controls = [maps.control for end in self.ends if (maps := self.truth._open(end)) is not None]
        before = [int(control["burst_gap_jiffies"][0]) for control in controls]
        for control in controls:
            control["burst_gap_jiffies"] = gap_jiffies(GAP_MS, jiffy_ns())
        try:
            yield
        finally:
            for control, jiffies in zip(controls, before, strict=True):
                control["burst_gap_jiffies"] = jiffies


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    name = lab_name("steered")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=2, spines=2, seed=5))
    roce = RoceConfig(dead_after_ms=DEAD_AFTER_MS, hold_down_ms=200.0, hold_down_max_ms=200.0, sample_every=4)
    try:
        lab = Lab.open(name)
        with Fleet(lab, ProbeSettings(pairs_per_s=200.0, degree=3), roce=roce) as fleet, Truth(lab) as truth:
            wait_for_lock(fleet, truth)
            made = Running(lab, fleet, truth)
            made.steer(made.client)
            yield made
    finally:
        lifecycle.down(name)


def _ports_used(flow: dict[str, Any]) -> set[int]:
    return {port["port"] for port in flow["sports"]}


def test_packets_take_the_path_that_the_manager_was_told(running: Running) -> None:
    patient = running.flow(RATE_BPS, total_bytes=100_000, timeout_ns=PATIENT_NS)
    with Generator([patient], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        (flow,) = generator.result(TIMEOUT_S)["flows"]
    assert _ports_used(flow) == {running.sport}
    assert {port["port"] for port in flow["ack_sports"]} == {running.back[0]}
    assert (flow["retransmitted_packets"], flow["failed"]) == (0, False)


def test_a_silent_link_is_left_and_used_again_and_both_are_told(running: Running) -> None:
    link = f"l1-{running.spine}"
    downs, ups = len(running.events("path_down")), len(running.events("path_up"))
    with Generator([running.flow(RATE_BPS)], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        time.sleep(1.0)
        faults.drop(running.lab.name, link, 1.0)
        try:
            until(lambda: len(running.events("path_down")) > downs, "the path given up")
            time.sleep(0.5)
        finally:
            faults.heal(running.lab.name, link)
        until(lambda: len(running.events("path_up")) > ups, "the path used again")
        time.sleep(0.5)
        result = generator.stop()
    (flow,) = result["flows"]
    assert _ports_used(flow) == {running.sport, running.backup_sport}
    first, last = flow["sports"][0], max(flow["sports"], key=lambda port: port["last_ns"])
    assert first["port"] == last["port"] == running.sport
    assert not flow["failed"]
    assert result["total"]["icrc_errors"] == 0
    event = running.events("path_down")[downs]
    assert event["nic"] == "nic0"
    assert event["path"]["sport"] in {running.sport, running.backup_sport}
    assert event["path"]["dst_addr"] == str(running.ends[1].nics[0].ipv4)
    assert event["path"]["lasted_ns"] > DEAD_AFTER_MS * 1e6
    assert event["path"]["unanswered"] >= 4
    assert event["path"]["queue_pairs"] == 1
    assert event["path"]["bound_ns"] is not None


def test_pulses_stop_with_the_agent_and_nothing_else_does(running: Running) -> None:
    before, orphans = running.truth.counters(SOURCE), _orphans()
    agent, starts = running.fleet.process(SOURCE), len(running.events("agent_started"))
    patient = running.flow(RATE_BPS, timeout_ns=PATIENT_NS)
    with Generator([patient], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        time.sleep(0.5)
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        until(lambda: len(running.events("agent_started")) > starts, "another agent")
        time.sleep(2.0)
        result = generator.stop()
    (flow,) = result["flows"]
    assert _ports_used(flow) == {running.sport}
    assert flow["retransmitted_packets"] == 0
    after = running.truth.counters(SOURCE)
    assert after["path_went_down"] == before["path_went_down"]
    assert after["steer_rewritten"] > before["steer_rewritten"]
    assert _orphans() <= orphans


def test_acknowledgements_leave_a_silent_link_while_the_agent_of_their_host_is_stopped(
    running: Running,
) -> None:
    """Nobody there pulses: that the sender says again what was acknowledged tells of the dead way."""
    _, _, spine = running.back
    before = running.truth.counters(TARGET)["path_doubted"]
    group = running.fleet.process(TARGET).pid
    with Generator([running.flow(RATE_BPS)], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        time.sleep(1.0)
        os.killpg(group, signal.SIGSTOP)
        try:
            time.sleep(30 * DEAD_AFTER_MS / 1e3)
            faults.drop(running.lab.name, f"l2-{spine}", 1.0)
            time.sleep(5.0)
            result = generator.stop()
        finally:
            faults.heal(running.lab.name, f"l2-{spine}")
            os.killpg(group, signal.SIGCONT)
    (flow,) = result["flows"]
    assert running.truth.counters(TARGET)["path_doubted"] > before
    first, *others = flow["ack_sports"]
    assert first["port"] == running.back[0]
    assert {port["port"] for port in others} == {running.back[1]}
    assert max(port["last_ns"] for port in others) - first["last_ns"] > 3e9
    assert not flow["failed"]


def _orphans() -> set[int]:
    """Processes that send pulses for nobody."""
    found = set()
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are enough
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as line, open(f"/proc/{entry}/stat") as stat:  # noqa: PTH123
                is_pulse = b"cwdp.agent.liveness.process\0" in line.read()
                if is_pulse and stat.read().rpartition(")")[2].split()[1] == "1":
                    found.add(int(entry))
        except (OSError, ValueError):
            continue
    return found


def test_queue_pairs_are_counted_alike_at_both_ends(running: Running) -> None:
    ends = [(SOURCE, Direction.EGRESS), (TARGET, Direction.INGRESS)]
    before = [running.counted(*end) for end in ends]
    with Generator(
        [running.flow(RATE_BPS, total_bytes=200_000)], running.lab.popen, running.lab.run_dir
    ) as generator:
        generator.start()
        (flow,) = generator.result(TIMEOUT_S)["flows"]
    after = [running.counted(*end) for end in ends]
    assert [now - then for now, then in zip(after, before, strict=True)] == [flow["sent_packets"]] * 2
    for (host, direction), packets in zip(ends, after, strict=True):
        name = direction.name.lower()
        knows = partial(running.knows, host, name, packets)
        until(knows, "the manager to know")
        assert running.row(host, name, REMOTE_QPN)["sport"] == running.sport
    assert running.row(SOURCE, "egress", REMOTE_QPN)["peer"] == f"{TARGET}/nic0"
    assert running.row(SOURCE, "ingress", QPN)["acks"] > 0


def test_data_packets_have_delays(running: Running) -> None:
    with Generator([running.flow(RATE_BPS)], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        until(
            lambda: (running.row(SOURCE, "egress", REMOTE_QPN).get("owd") or {}).get("samples", 0) > 50,
            "delays",
        )
        generator.stop()
    delay = running.row(SOURCE, "egress", REMOTE_QPN)["owd"]
    assert -delay["bound_ns"] <= delay["min_ns"] <= delay["p50_ns"] <= delay["p99_ns"] <= delay["max_ns"]
    assert 1_000 < delay["p50_ns"] < 100_000_000


def test_bursts_are_told_alike_by_both_ends(running: Running) -> None:
    """Of the same times but for the way of a packet and a jiffy. The gap is one that pauses of the machine do not come to."""
    rate_bps, count = 5 * RATE_BPS, 6
    flow = running.flow(rate_bps, total_bytes=250_000, timeout_ns=PATIENT_NS)
    begun_s = []
    with running.longer_gap():
        for _ in range(count):
            with Generator([flow], running.lab.popen, running.lab.run_dir) as generator:
                begun_s.append(time.monotonic())
                generator.start()
                generator.result(TIMEOUT_S)
            time.sleep(0.5)
    ends = [(SOURCE, "egress"), (TARGET, "ingress")]

    def found() -> list[dict[str, Any]]:
        return [running.row(*end, REMOTE_QPN).get("bursts") or {} for end in ends]

    def are_alike() -> bool:
        sent, came = found()
        is_all = min(one.get("count", 0) for one in (sent, came)) >= count
        return is_all and abs(sent["last_end_ns"] - came["last_end_ns"]) < 20e6

    until(are_alike, "all bursts, and the last one's end at one time")
    period_ns = 1e9 * median(later - earlier for earlier, later in pairwise(begun_s))
    sent, came = found()
    for told in (sent, came):
        assert told["period_ns"] == pytest.approx(period_ns, rel=0.2)
        assert told["rate_bps"] < 1.3 * rate_bps
        assert told["naks"] == 0
    assert sent["length_ns"] == pytest.approx(came["length_ns"], rel=0.5)
    assert 0.15e9 < sent["length_ns"] < period_ns


def test_wishes_that_cannot_be_are_refused_or_told(running: Running) -> None:
    wish = {"host": SOURCE, "nic": "nic0", "dst": "10.2.0.2", "qpn": 7, "sport": 50_000}
    for wrong in ({"sport": 80}, {"qpn": 1 << 24}, {"host": "h9"}, {"nic": "nic7"}, {"dst": "h3"}):
        with pytest.raises(ManagerError, match="refused"):
            running.client.put("/v1/steer", wish | wrong)
    elsewhere = str(running.ends[0].nics[0].ipv4)
    running.client.put("/v1/steer", wish | {"dst": elsewhere})
    until(lambda: running.events("steer_refused"), "the host's refusal")
    detail = running.events("steer_refused")[-1]["detail"]
    assert detail.startswith(f"what goes to {elsewhere} does not leave by nic0")
    running.client.delete("/v1/steer", {"host": SOURCE, "nic": "nic0", "dst": elsewhere, "qpn": 7})


def test_slices_that_the_manager_wants_are_held_or_refused_with_the_reason(running: Running) -> None:
    """Below the token bucket of the lab's links, which has 100 Mbit/s."""
    bulk = {"name": "bulk", "guaranteed": "30mbit", "match": [{"dscp": 8}]}
    where = {"host": SOURCE, "nic": "nic0"}

    def guaranteed() -> list[int]:
        maps = running.truth._open(running.ends[0])
        assert maps is not None
        return [int(one["guaranteed_bps"]) for one in maps.slices if one["name"] == b"bulk"]

    running.client.put("/v1/slice", where | {"wanted": {"slice": [bulk]}})
    until(lambda: guaranteed() == [30_000_000], "the slice in the maps")
    running.client.put("/v1/slice", where | {"wanted": {"slice": [bulk | {"guaranteed": "101mbit"}]}})
    until(lambda: running.events("slice_refused"), "the host's refusal")
    assert "the link has 100mbit" in running.events("slice_refused")[-1]["detail"]
    assert guaranteed() == [30_000_000]
    running.client.delete("/v1/slice", where)
    until(lambda: guaranteed() == [], "the end of the slice")
