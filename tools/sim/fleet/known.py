"""A manager's state as if it had heard a whole leaf-spine fleet: for the page, its tests and its benchmark."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import pairwise, product

import numpy as np

from cwdp.shared.bus.edges import PathStat, path_rows
from cwdp.shared.bus.messages import Hello, Nic, nic_id
from cwdp.shared.bus.records import QP_ROW, packed_address
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import DirectedLink, PackedPaths, Routes
from manager.faults.finding import Finding, Kind, cable
from manager.links.loads import LinkLoads
from manager.queue_pairs.counters import NicReport
from manager.state import FleetState

BOOT = "boot"
IFNAME = "nic0"
FIRST_PORT = 50_000
LINE_BPS = 400e9
MOST_QUEUE_NS = 40_000.0


@dataclass(frozen=True, kw_only=True)
class KnownFleet:
    """How large it is, and what is in it.

    Attributes:
        leaves: switches with hosts, `l1` on; with several pods those of each, `p1l1` on.
        spines: switches above them, `s1` on; with several pods those of each, `p1s1` on.
        pods, cores: `c1` on have links to all spines of all pods; one pod needs none.
        hosts_per_leaf: with a NIC each, `h1` on.
        peers: NICs that each probes.
        paths: source ports for each of them.
        queue_pairs: that each NIC sends by, within its job.
        job_hosts: hosts in each job, one after another.
        seed: draws delays, queues and loads.
    """

    leaves: int = 8
    spines: int = 4
    pods: int = 1
    cores: int = 0
    hosts_per_leaf: int = 4
    peers: int = 6
    paths: int = 2
    queue_pairs: int = 2
    job_hosts: int = 8
    seed: int = 1

    @property
    def hosts(self) -> int:
        """All of them."""
        return self.pods * self.leaves * self.hosts_per_leaf

    @property
    def switches(self) -> int:
        """All of them."""
        return self.pods * (self.leaves + self.spines) + self.cores

    def host(self, i: int) -> str:
        """The name of a host by its place."""
        return f"h{i + 1}"

    def nic(self, i: int) -> str:
        """The name of its NIC."""
        return nic_id(self.host(i), IFNAME)

    def leaf(self, i: int) -> str:
        """The leaf of a host."""
        return self.switch("l", *divmod(i // self.hosts_per_leaf, self.leaves))

    def switch(self, kind: str, pod: int, place: int) -> str:
        """The name of a leaf (`l`) or a spine (`s`) by its places."""
        return f"p{pod + 1}{kind}{place + 1}" if self.pods > 1 else f"{kind}{place + 1}"

    def address(self, i: int) -> str:
        """The address of a host's NIC."""
        return str(IPv4Address("10.0.0.1") + i)


def known_state(fleet: KnownFleet) -> FleetState:
    """All of it heard just now."""
    state = FleetState(Identity(timeline="sim", starts=1), ProbeSettings(), continued=False)
    now_s, rng = time.monotonic(), np.random.default_rng(fleet.seed)
    for i in range(fleet.hosts):
        state.hear_hello(_hello(fleet, i), now_s)
    routes = _routes(fleet)
    state.discovery.fabric.routes = routes
    state.discovery.path_counts = PathCounts(routes)
    state.watch.loads = _loads(routes, rng, now_s)
    measure(state, fleet, rng, now_s, range(fleet.hosts))
    for turn in (1.0, 0.0):
        send(state, fleet, rng, now_s - turn, range(fleet.hosts))
    return state


def measure(
    state: FleetState, fleet: KnownFleet, rng: np.random.Generator, now_s: float, hosts: Iterable[int]
) -> None:
    """Have some hosts tell of their paths."""
    for i in hosts:
        extra_ns = rng.exponential(2_000.0, (fleet.peers, 2)).astype(int).tolist()
        paths = [
            _path(fleet, i, peer, k, extra_ns[p])
            for p, peer in enumerate(peers_of(fleet, i))
            for k in range(fleet.paths)
        ]
        state.owd.add(fleet.host(i), path_rows(paths), now_s)


def send(
    state: FleetState, fleet: KnownFleet, rng: np.random.Generator, now_s: float, hosts: Iterable[int]
) -> None:
    """Have some hosts tell of their queue pairs."""
    for i in hosts:
        rows = np.zeros(fleet.queue_pairs, QP_ROW)
        for q in range(fleet.queue_pairs):
            peer = _partner(fleet, i, q)
            rows[q]["addr"] = np.frombuffer(packed_address(fleet.address(peer)), np.uint8)
        rows["qpn"] = 1_000 + np.arange(fleet.queue_pairs)
        rows["sport"] = FIRST_PORT
        rows["bytes"] = int(1e9 * now_s) + rng.integers(0, 1 << 27, fleet.queue_pairs)
        rows["packets"] = rows["bytes"] // 4_096
        report = NicReport((fleet.host(i), IFNAME), rows)
        state.traffic.queue_pairs.hear([report], local_ns=int(now_s * 1e9), now_s=now_s)


def break_link(state: FleetState, a: str, b: str, kind: Kind = "silent", loss: float = 1.0) -> Finding:
    """Have a link be found wrong."""
    finding = Finding(
        number=0,
        kind=kind,
        subject=cable(DirectedLink(a, b)),
        confidence=0.98,
        evidence=["as simulated"],
        start_s=time.time(),
        loss=loss,
    )
    return state.faults.open(finding)


def peers_of(fleet: KnownFleet, i: int) -> list[int]:
    """The hosts that a host probes."""
    return [(i + 1 + 7 * k * fleet.hosts_per_leaf + k) % fleet.hosts for k in range(fleet.peers)]


def _partner(fleet: KnownFleet, i: int, q: int) -> int:
    """The host that a queue pair of a host goes to: one of its job."""
    first = i - i % fleet.job_hosts
    size = min(fleet.job_hosts, fleet.hosts - first)
    return first + (i - first + 1 + q) % size


def _hello(fleet: KnownFleet, i: int) -> Hello:
    mac = i.to_bytes(5, "big").hex(":")
    nic = Nic(ifname=IFNAME, mac=f"02:{mac}", ipv4=fleet.address(i), ipv6=None, carrier=True, mode="native")
    return Hello(
        host=fleet.host(i),
        boot_id=BOOT,
        version="sim",
        dataplane_tag="sim",
        nics=[nic],
        desired_version=0,
        key_ids=[1],
    )


def _routes(fleet: KnownFleet) -> Routes:
    links = [(fleet.nic(i), fleet.leaf(i)) for i in range(fleet.hosts)]
    for pod in range(fleet.pods):
        leaves, spines = (
            [fleet.switch(kind, pod, place) for place in range(count)]
            for kind, count in (("l", fleet.leaves), ("s", fleet.spines))
        )
        links += [*product(leaves, spines), *product(spines, [f"c{core + 1}" for core in range(fleet.cores)])]
    both = [DirectedLink(*ends) for a, b in links for ends in ((a, b), (b, a))]
    number = {link: i for i, link in enumerate(both)}
    pairs: dict[tuple[str, str], dict[int, int]] = {}
    crossed: list[list[int]] = []
    for i in range(fleet.hosts):
        partners = {_partner(fleet, i, q) for q in range(fleet.queue_pairs)} | set(peers_of(fleet, i))
        for peer in sorted(partners - {i}):
            ports = pairs.setdefault((fleet.nic(i), fleet.address(peer)), {})
            for k in range(fleet.paths):
                ports[FIRST_PORT + k] = len(crossed)
                crossed.append(_crossed(fleet, i, peer, i + peer + k, number))
    return Routes(1, tuple(both), PackedPaths(pairs, np.array(crossed, np.int32)))


def _crossed(fleet: KnownFleet, i: int, peer: int, way: int, number: dict[DirectedLink, int]) -> list[int]:
    here, there = fleet.leaf(i), fleet.leaf(peer)
    pods = [host // (fleet.leaves * fleet.hosts_per_leaf) for host in (i, peer)]
    above = [fleet.switch("s", pod, way % fleet.spines) for pod in pods]
    nodes = [fleet.nic(i), here, fleet.nic(peer)]
    if pods[0] != pods[1]:
        nodes[2:2] = [above[0], f"c{way % fleet.cores + 1}", above[1], there]
    elif here != there:
        nodes[2:2] = [above[0], there]
    found = [number[DirectedLink(a, b)] for a, b in pairwise(nodes)]
    return found + [-1] * (6 - len(found))


def _loads(routes: Routes, rng: np.random.Generator, now_s: float) -> LinkLoads:
    count = len(routes.links)
    queue_ns = rng.exponential(MOST_QUEUE_NS / 8, count)
    unknown = np.full(count, np.nan)
    return LinkLoads(
        routes=routes,
        time_s=now_s,
        queue_ns=queue_ns,
        queue_p50_ns=queue_ns,
        queue_p99_ns=4 * queue_ns,
        load_bps=rng.uniform(0, LINE_BPS, count),
        is_sure=np.ones(count, bool),
        capacity_bps=unknown,
        likely_capacity_bps=np.full(count, LINE_BPS),
        stands=np.zeros(count, bool),
        loss=np.zeros(count),
    )


def _path(fleet: KnownFleet, i: int, peer: int, k: int, extra_ns: list[int]) -> PathStat:
    least_ns = 2_000 if fleet.leaf(i) == fleet.leaf(peer) else 6_000
    there_ns, back_ns = extra_ns
    return PathStat(
        src=fleet.nic(i),
        dst=fleet.nic(peer),
        sport=FIRST_PORT + k,
        reply_sport=FIRST_PORT + k,
        sent=100,
        lost=0,
        queued=3,
        rtt_min_ns=2 * least_ns,
        fwd_min_ns=least_ns,
        fwd_p50_ns=least_ns + there_ns // 4,
        fwd_p99_ns=least_ns + there_ns,
        rev_min_ns=least_ns,
        rev_p50_ns=least_ns + back_ns // 4,
        rev_p99_ns=least_ns + back_ns,
        bound_ns=40,
    )
