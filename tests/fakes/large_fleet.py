"""What a manager of a large rail-optimised fabric would know, made by arithmetic: hosts, links, findings."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from bus_fakes import manager_bus

from cwdp.shared.bus.messages import Hello, Nic
from cwdp.shared.bus.records import EGRESS, QP_ROW, packed_address
from manager.api.metrics import FleetCollector, Sources
from manager.bus.lease import Claim, Lease
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.routes import DirectedLink, Routes
from manager.faults.finding import Finding, Kind, Subject, cable
from manager.links.loads import LinkLoads
from manager.queue_pairs.counters import NicReport
from manager.state import FleetState


@dataclass(frozen=True)
class LargeFleet:
    """Hosts with one NIC in each rail; a leaf takes in one NIC of each of `hosts_per_leaf` hosts.

    The leaves of `leaves_per_pod` neighbours hang from the same pod switches, `uplinks` of them, and those from spines.
    """

    hosts: int
    rails: int = 8
    hosts_per_leaf: int = 32
    leaves_per_pod: int = 32
    uplinks: int = 4
    seed: int = 1

    @property
    def blocks(self) -> int:
        return -(-self.hosts // self.hosts_per_leaf)

    def leaf(self, host: int, rail: int) -> str:
        return f"10.254.1.{host // self.hosts_per_leaf * self.rails + rail}"

    @property
    def leaves(self) -> int:
        return self.blocks * self.rails

    def links(self) -> list[DirectedLink]:
        cables = [
            (f"h{host}/nic{rail}", self.leaf(host, rail))
            for host in range(self.hosts)
            for rail in range(self.rails)
        ]
        pods = -(-self.leaves // self.leaves_per_pod)
        for leaf in range(self.leaves):
            pod = leaf // self.leaves_per_pod
            cables += [
                (f"10.254.1.{leaf}", f"10.254.2.{pod * self.uplinks + i}") for i in range(self.uplinks)
            ]
        for switch in range(pods * self.uplinks):
            cables += [(f"10.254.2.{switch}", f"10.254.3.{i}") for i in range(self.uplinks)]
        return [DirectedLink(*ends) for a, b in cables for ends in ((a, b), (b, a))]

    def hello(self, host: int) -> Hello:
        nics = [
            Nic(
                ifname=f"nic{rail}",
                mac="02:00:00:00:00:01",
                ipv4=f"10.{rail}.{host // 250}.{host % 250 + 1}",
                ipv6=None,
                carrier=True,
                mode="native",
            )
            for rail in range(self.rails)
        ]
        return Hello(
            host=f"h{host}",
            boot_id="b",
            version="1",
            dataplane_tag="t",
            nics=nics,
            desired_version=1,
            key_ids=[1],
        )

    def loads(self) -> LinkLoads:
        links = tuple(self.links())
        draw = np.random.default_rng(self.seed)
        queue_ns = draw.exponential(5_000.0, len(links))
        return LinkLoads(
            routes=Routes(1, links),
            queue_ns=queue_ns,
            queue_p50_ns=queue_ns,
            queue_p99_ns=4 * queue_ns,
            load_bps=draw.uniform(0, 4e11, len(links)),
            is_sure=np.ones(len(links), bool),
            capacity_bps=np.full(len(links), 4e11),
            likely_capacity_bps=np.full(len(links), 4e11),
            stands=draw.random(len(links)) < 0.01,
            loss=np.zeros(len(links)),
        )

    def state(self, findings: int = 0) -> FleetState:
        """The manager's state; every kind of finding in turn, each about another NIC's link."""
        state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
        for host in range(self.hosts):
            state.members.hear(self.hello(host), time.monotonic())
        state.watch.loads = self.loads()
        kinds: tuple[Kind, ...] = ("dead", "silent", "lossy", "slow", "flapping", "slow_sender", "clock")
        links = state.links.routes.links
        for i in range(findings):
            add_finding(state, kinds[i % len(kinds)], cable(links[2 * i]))
        return state


def add_finding(state: FleetState, kind: Kind, subject: Subject, start_s: float = 1e9) -> Finding:
    finding = Finding(number=0, kind=kind, subject=subject, confidence=1.0, evidence=["e"], start_s=start_s)
    return state.faults.open(finding)


def collector_of(state: FleetState) -> FleetCollector:
    """The metrics of a manager that has no bus."""
    bus = manager_bus("nats://127.0.0.1:1")
    lease = Lease([bus], Claim(manager="1", name="m"), lambda _leads: None)
    return FleetCollector(Sources(state=state, bus=bus, server=None, lease=lease))


def send(fleet: LargeFleet, state: FleetState, pairs: Iterable[tuple[int, int]]) -> None:
    """One queue pair from each of some hosts to another one, in each rail."""
    now_s = time.monotonic()
    for src, dst in pairs:
        for rail, nic in enumerate(fleet.hello(dst).nics):
            row = np.zeros(1, QP_ROW)
            row["direction"], row["sport"], row["qpn"] = EGRESS, 50_000, 7
            row["packets"], row["bytes"] = 10, 10_000
            row["addr"] = np.frombuffer(packed_address(nic.ipv4 or ""), np.uint8)
            state.traffic.queue_pairs.hear(
                [NicReport((f"h{src}", f"nic{rail}"), row)], local_ns=1, now_s=now_s
            )
