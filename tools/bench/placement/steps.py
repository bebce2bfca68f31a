"""Steps of a planner of 100,000 queue pairs while little changes: what one costs a core."""

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import Nic, SteerReport
from cwdp.shared.bus.records import EGRESS, QP_ROW, packed_address
from manager.config import PlannerSettings
from manager.fabric.routes import DirectedLink, PackedPaths, Pair, Routes
from manager.hosts.members import Members
from manager.links.loads import LinkLoads
from manager.planner.planner import Planner
from manager.probing.schedule import FIRST_PORT
from manager.queue_pairs.counters import NicReport, QueuePairStore
from tools.bench.figures import Figure, figure
from tools.sim.fleet.speaking import hello_of

LEAVES, HOSTS, SPINES = 64, 32, 16
FAR_ENDS, TO_ONE_END = 7, 7
"""NICs that each sends to, and queue pairs to each of them: 100,352 in all."""

NIC_BPS, SPINE_BPS = 400e9, 3.2e12
PACKET_BYTES = 4096
STEP_S, SETTLE_STEPS, STEPS = 0.25, 72, 10
"""It settles for longer than it takes until a queue pair counts as idle."""

NOISE = 0.03
COME_AND_GO = 40
TARGET_S = 0.25

IFNAME = "eth0"
Indices = NDArray[np.intp]


def figures() -> Iterator[Figure]:
    """The median step and the worst, counters of all queue pairs having moved on before each."""
    fleet = _Fleet(np.random.default_rng(1))
    for _ in range(SETTLE_STEPS):
        fleet.step()
    took_s = [fleet.step() for _ in range(STEPS)]
    standing = fleet.planner.standing
    reference = {"queue_pairs": standing.flows, "steered": standing.steered, "nics": LEAVES * HOSTS}
    for name, value in (("median", float(np.median(took_s))), ("worst", max(took_s))):
        yield figure(f"planner, little changes: step, {name}", value, "s", reference, TARGET_S)


class _Fleet:
    """Hosts with a NIC each under leaves; every NIC sends to some others, and little of that changes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._now_s = rng, 100.0
        nics = LEAVES * HOSTS
        far = np.concatenate([_others(nics, rng) for _ in range(FAR_ENDS)])
        self._pairs = np.stack([np.tile(np.arange(nics), FAR_ENDS), far])
        self._routes = _routes(self._pairs)
        self._loads = _calm(self._routes)
        self._src, self._rows = self._queue_pairs()
        self._sent = np.zeros(len(self._rows))
        self._rate_bps = NIC_BPS / (FAR_ENDS * TO_ONE_END)
        self._store, members = QueuePairStore(), Members()
        self.planner = Planner(members, self._store, PlannerSettings(), _tell_nobody)
        for nic in range(nics):
            members.hear(hello_of(_host(nic), [_nic(nic)], desired_version=0), self._now_s)
            self.planner.hear_steering(SteerReport(host=_host(nic), managed=[], by_hand=[]), self._now_s)

    def step(self) -> float:
        """Hosts report, and some queue pairs are others than before; the seconds of a core that the planner then takes."""
        self._now_s += STEP_S
        self._replace_some()
        self._report()
        started = time.process_time()
        self.planner.plan(self._now_s, routes=self._routes, loads=self._loads, localised=(), overrides={})
        return time.process_time() - started

    def _queue_pairs(self) -> tuple[Indices, NDArray[np.void]]:
        """The NIC that each is of, in order, and its row."""
        src, dst = np.repeat(self._pairs, TO_ONE_END, axis=1)
        order = np.argsort(src, kind="stable")
        rows = np.zeros(len(src), QP_ROW)
        packed = [np.frombuffer(packed_address(_address(nic)), np.uint8) for nic in range(LEAVES * HOSTS)]
        rows["addr"] = np.stack(packed)[dst[order]]
        rows["qpn"] = 16 + np.arange(len(rows))
        rows["direction"] = EGRESS
        rows["sport"] = FIRST_PORT + self._rng.integers(0, SPINES, len(rows))
        return src[order], rows

    def _replace_some(self) -> None:
        """Some end, and as many others begin between the same ends."""
        chosen = self._rng.choice(len(self._rows), COME_AND_GO, replace=False)
        self._rows["qpn"][chosen] = self._rows["qpn"].max() + 1 + np.arange(COME_AND_GO)
        self._sent[chosen] = 0.0

    def _report(self) -> None:
        noise = 1 + NOISE * self._rng.normal(size=len(self._rows))
        self._sent += self._rate_bps / 8 * STEP_S * noise
        self._rows["bytes"] = self._sent
        self._rows["packets"] = self._sent / PACKET_BYTES
        starts = np.searchsorted(self._src, np.arange(LEAVES * HOSTS + 1))
        for nic in range(LEAVES * HOSTS):
            report = NicReport((_host(nic), IFNAME), self._rows[starts[nic] : starts[nic + 1]])
            self._store.hear([report], local_ns=round(self._now_s * 1e9), now_s=self._now_s)


def _others(nics: int, rng: np.random.Generator) -> Indices:
    """Another NIC for each, and each for one other."""
    ring = rng.permutation(nics)
    other = np.empty(nics, np.intp)
    other[ring] = np.roll(ring, 1)
    return other


def _routes(pairs: Indices) -> Routes:
    """A path over each spine from one end of every pair to the other."""
    nics = [f"{_host(nic)}/{IFNAME}" for nic in range(LEAVES * HOSTS)]
    leaf_of = [f"leaf{nic // HOSTS}" for nic in range(LEAVES * HOSTS)]
    spines = [f"spine{spine}" for spine in range(SPINES)]
    links = [DirectedLink(a, b) for a, b in zip(nics, leaf_of, strict=True)]
    links += [DirectedLink(f"leaf{leaf}", spine) for leaf in range(LEAVES) for spine in spines]
    links += [DirectedLink(b, a) for a, b in links]
    first, back = LEAVES * HOSTS, len(links) // 2
    src, dst = (np.repeat(end, SPINES) for end in pairs)
    spine = np.tile(np.arange(SPINES), pairs.shape[1])
    up = first + src // HOSTS * SPINES + spine
    down = back + first + dst // HOSTS * SPINES + spine
    crossed = np.stack([src, up, down, back + dst], axis=1).astype(np.int32)
    near = src // HOSTS == dst // HOSTS
    crossed[near, 1], crossed[near, 2:] = crossed[near, 3], -1
    rows: dict[Pair, dict[int, int]] = {}
    for i, (a, b) in enumerate(pairs.T.tolist()):
        ports = {FIRST_PORT + k: i * SPINES + k for k in range(SPINES)}
        rows[nics[a], _address(b)] = ports
    return Routes(1, tuple(links), PackedPaths(rows, crossed))


def _calm(routes: Routes) -> LinkLoads:
    """Links without queues, all of whose capacities are known."""
    count = len(routes.links)
    of_nic = np.array(["/" in a + b for a, b in routes.links])
    capacity_bps = np.where(of_nic, NIC_BPS, SPINE_BPS)
    return LinkLoads(
        routes=routes,
        queue_ns=np.zeros(count),
        queue_p50_ns=np.zeros(count),
        queue_p99_ns=np.zeros(count),
        load_bps=np.zeros(count),
        is_sure=np.ones(count, bool),
        capacity_bps=capacity_bps,
        likely_capacity_bps=capacity_bps,
        stands=np.zeros(count, bool),
        loss=np.zeros(count),
    )


def _tell_nobody(*_said: object, **_more: object) -> None:
    """Nobody listens."""


def _host(nic: int) -> str:
    return f"h{nic}"


def _address(nic: int) -> str:
    return f"10.0.{nic // 250}.{nic % 250 + 1}"


def _nic(nic: int) -> Nic:
    return Nic(ifname=IFNAME, mac="", ipv4=_address(nic), ipv6=None, carrier=True, mode="native")
