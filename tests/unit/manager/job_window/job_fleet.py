"""A manager that has heard of a job: a ring whose bursts, stamps and probes are worked out, over two leaves and a spine."""

import time
from itertools import pairwise
from typing import Any

import numpy as np
from fabric_fakes import hear_windows
from fakes import showing

from cwdp.shared.bus.messages import Nic
from cwdp.shared.bus.records import (
    BURST_ROW,
    EGRESS,
    INGRESS,
    QP_ROW,
    SAMPLE_ROW,
    WINDOW_NS,
    WINDOW_ROW,
    packed_address,
)
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.jobs.inference import infer
from manager.jobs.steps import finish
from manager.queue_pairs.bursts import KEPT
from manager.queue_pairs.counters import NicReport
from manager.state import FleetState
from tools.sim.fleet.speaking import hello_of
from tools.sim.jobs.judging import NOW_NS
from tools.sim.jobs.world import World, ends_of, job, named, play

NAMES = [f"h{i}/nic0" for i in range(1, 5)]
ENDS = ends_of([named(nic) for nic in NAMES])
OWD_NS, PROBED_NS, QUEUED_NS = 20_001, 15_000.0, 40_000.0
SPORT = 50_000
PROBED_WINDOWS = 30


def ring(seed: int = 1) -> World:
    """Of four NICs, told of until a second before `NOW_NS`."""
    return play([job(ENDS, "ring", NAMES, 300, jitter=0.03, seed=seed)], ENDS, 29.5)


class JobFleet:
    """A manager's state after it has heard of a ring, and when that was, by its monotonic clock."""

    def __init__(self, world: World | None = None) -> None:
        self.world = ring() if world is None else world
        self.now_s = time.monotonic()
        self.state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
        for name in NAMES:
            host, ifname = named(name)
            nic = Nic(
                ifname=ifname,
                mac="02:00:00:00:00:01",
                ipv4=str(ENDS[name].address),
                ipv6=None,
                carrier=True,
                mode="native",
            )
            self.state.hear_hello(hello_of(host, [nic], desired_version=0), self.now_s)
        self.state.traffic.hear_clock(showing(NOW_NS), self.now_s)
        for nic_name, rows in self.world.rings.items():
            self.state.traffic.bursts.hear([nic_name], rows, [len(rows)], NOW_NS)
        self.state.jobs.take(finish(infer(self.world.rings, self.world.owners, {}, NOW_NS)))

    @property
    def name(self) -> str:
        """What its job is called."""
        return "h1"

    def stamp(self, every_ns: int = 50_000_000, count: int = 100) -> None:
        """Have packets of each queue pair be stamped at both ends, until two seconds ago, `OWD_NS` apart."""
        left_ns = NOW_NS - 2 * 10**9 - every_ns * np.arange(count)
        delays = self.state.traffic.delays
        delays.know(self.state.members.hosts.values())
        for src, dst, qpn in sorted(self.world.jobs[0]):
            ends = ((src, dst, EGRESS, 0), (dst, src, INGRESS, OWD_NS))
            for nic, far, direction, late_ns in ends:
                rows = np.zeros(count, SAMPLE_ROW)
                rows["time_ns"], rows["psn"] = left_ns + late_ns, np.arange(count)
                rows["addr"] = np.frombuffer(packed_address(str(ENDS[far].address)), np.uint8)
                rows["qpn"], rows["direction"], rows["bound_ns"] = qpn, direction, 40
                delays.hear(named(nic), rows, NOW_NS - 10**9)
        delays.join(NOW_NS)

    def probe(self) -> None:
        """Have probes between neighbours be told of, and routes known; in the last windows all of them were queued."""
        watch, flows = self.state.watch, sorted(self.world.jobs[0])
        self.state.fabric.routes = routes = self._routes()
        end = NOW_NS // WINDOW_NS
        for src, dst, _ in flows:
            rows = np.zeros(PROBED_WINDOWS, WINDOW_ROW)
            rows["window"] = np.arange(end - PROBED_WINDOWS, end)
            rows["dst_addr"] = np.frombuffer(packed_address(str(ENDS[dst].address)), np.uint8)
            rows["sport"], rows["reply_sport"], rows["sent"] = SPORT, SPORT, 20
            queued = np.where(np.arange(PROBED_WINDOWS) < PROBED_WINDOWS // 2, 0.0, QUEUED_NS)
            rows["fwd_min_ns"] = rows["rev_min_ns"] = rows["rev_mean_ns"] = PROBED_NS
            rows["fwd_mean_ns"] = PROBED_NS + queued
            hear_windows(watch.windows, [src], rows, end)
            self._send(src, dst)
        due = watch.due(routes)
        assert due is not None
        watch.take(due.make(), self.now_s)
        for step in range(PROBED_WINDOWS + 12):
            tables = self.state.traffic.queue_pairs.loading.items()
            watch.step(self.now_s, (end - PROBED_WINDOWS + step) * WINDOW_NS, tables)

    def fill(self, nic: str, until_ns: int) -> None:
        """Have a NIC tell of so many bursts of somebody else's that not all of them are kept."""
        rows = np.zeros(KEPT, BURST_ROW)
        rows["start_ns"] = rows["end_ns"] = until_ns
        rows["addr"] = 9
        self.state.traffic.bursts.hear([named(nic)], rows, [len(rows)], NOW_NS)

    def _send(self, src: str, dst: str) -> None:
        qpn = next(number for a, b, number in self.world.jobs[0] if (a, b) == (src, dst))
        rows = np.zeros(1, QP_ROW)
        rows["addr"] = np.frombuffer(packed_address(str(ENDS[dst].address)), np.uint8)
        rows["qpn"], rows["sport"], rows["direction"] = qpn, SPORT, EGRESS
        told = NicReport(named(src), rows, 0, 10**11)
        self.state.traffic.queue_pairs.hear([told], local_ns=1, now_s=self.now_s)

    def _routes(self) -> Routes:
        leaf = {name: f"10.254.1.{1 + i // 2}" for i, name in enumerate(NAMES)}
        links: dict[DirectedLink, int] = {}
        paths: dict[PathName, tuple[int, ...]] = {}
        for src, dst, _ in sorted(self.world.jobs[0]):
            for a, b in ((src, dst), (dst, src)):
                nodes: list[Any] = [a, leaf[a], "10.254.2.1", leaf[b], b]
                if leaf[a] == leaf[b]:
                    nodes = [a, leaf[a], b]
                hops = [DirectedLink(*each) for each in pairwise(nodes)]
                numbers = tuple(links.setdefault(link, len(links)) for link in hops)
                paths[PathName(a, str(ENDS[b].address), SPORT)] = numbers
        return Routes(1, tuple(links), paths)
