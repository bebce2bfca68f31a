"""Liveness at scale on real packets: how soon one host of a lab with many watched paths leaves a link that falls silent.

The host steers queue pairs to every host below the other leaves, each by two ports that lead over different spines; some of
them send. Links between its leaf and the spines are cut one after the other, both ways, with their carrier up, and mended.
How long that lasts is told as `tools.experiments.measure.outage_ns` does: too large by up to one interval between packets.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import progress
from cwdp.errors import LabError
from manager.config import ProbeSettings, RoceConfig
from tools.bench.figures import Figure, figure
from tools.experiments.measure import outage_ns
from tools.experiments.runs import IdleShare
from tools.lab import Host, Lab, LabSpec, faults
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import lab_for_run, wait_for_lock
from tools.lab.truth.clocks import Truth
from tools.lab.truth.ecmp import Stream, switches_of
from tools.roce.flows import Endpoint, Flow
from tools.roce.generator import Generator
from tools.waiting import wait_for

NAME = "liveness"
SPEC = LabSpec(name=NAME, leaves=5, spines=8, hosts_per_leaf=4)
PORTS = 64
"""To a destination: of more the manager has none traced."""

ACTIVE = 32
CUTS = 20
CALM_S = 60.0
DARK_S, MENDED_S = 0.25, 0.9
FIRST_PORT, FIRST_QPN = 50_000, 1000
RATE_BPS, PACKET_BYTES = 1_000_000, 256
TRACED_WITHIN_S = 300.0
DEAD_AFTER_MS = 10.0
TARGET_MS = 15.0
PROBES = ProbeSettings(pairs_per_s=25.0, degree=2)
ROCE = RoceConfig(dead_after_ms=DEAD_AFTER_MS, hold_down_ms=300.0, hold_down_max_ms=300.0, sample_every=256)


@dataclass(frozen=True)
class Way:
    """A queue pair of the host: its number at the far end, its ports, and the spine that the first one leads over."""

    target: Host
    qpn: int
    sport: int
    backup_sport: int
    spine: str


@dataclass(frozen=True)
class Cuts:
    """What cuts did to queue pairs that send.

    Attributes:
        lasted_ms: how long each lost packets, of those whose path a cut was on.
        died: those that gave up.
    """

    lasted_ms: list[float]
    died: int


def figures() -> Iterator[Figure]:
    """The host is the lab's first; its watched paths are as many as `SPEC` gives it."""
    with watching(SPEC, PORTS, ACTIVE) as host:
        watched: dict[str, float] = {"watched_paths": host.watched, "sending": ACTIVE}
        idle = IdleShare()
        sent, switches = host.calm(CALM_S)
        watched["idle_share"] = round(idle.read(), 2)
        yield figure("liveness_pulses_per_s", sent / CALM_S, "1/s", watched, 20_000.0)
        yield figure("liveness_false_switches_per_minute", switches * 60 / CALM_S, "1/min", watched, 0.0)
        cuts = host.cut(CUTS, seed=1)
    p50, p99 = np.quantile(cuts.lasted_ms, (0.5, 0.99)).tolist()
    told = {"cuts": CUTS, "hit": len(cuts.lasted_ms), "p50_ms": p50, "max_ms": max(cuts.lasted_ms)}
    yield figure("liveness_cut_to_last_loss_p99", p99, "ms", watched | told | {"died": cuts.died}, TARGET_MS)


class WatchingHost:
    """A host that watches the paths of its queue pairs, in a lab whose fleet is up.

    Args:
        fleet: of the lab.
        ways: its queue pairs.
        active: how many of them send.
    """

    def __init__(self, fleet: Fleet, ways: Sequence[Way], active: int) -> None:
        self._fleet, self._lab = fleet, fleet.lab
        self._host = self._lab.hosts[0]
        self._client = ManagerClient(f"unix://{fleet.socket}")
        by_turns = np.random.default_rng(0).permutation(len(ways))[:active]
        self._sending = [ways[i] for i in by_turns.tolist()]
        self.watched = 2 * len(ways)

    def wait_until_traced(self, paths: int) -> None:
        """Until the agent has traced so many paths twice.

        Raises:
            LabError: that took too long.
        """
        are_traced = self._fleet.checked(lambda: self._counter("trace_rounds") >= 2 * paths)
        if not wait_for(are_traced, TRACED_WITHIN_S, poll_s=0.5):
            raise LabError(
                f"{paths} paths were not traced in {TRACED_WITHIN_S:.0f} s",
                "Give each destination fewer ports.",
            )

    def calm(self, seconds: float) -> tuple[int, int]:
        """Queue pairs send and nothing is cut: how many pulses the host sends, and how many paths it gives up."""
        with self._traffic():
            time.sleep(1.0)
            sent, down = self._counter("pulses_sent"), self._went_down()
            time.sleep(seconds)
            return self._counter("pulses_sent") - sent, self._went_down() - down

    def cut(self, cuts: int, seed: int) -> Cuts:
        """Cut links that carry data."""
        rng = np.random.default_rng(seed)
        leaf = self._host.nics[0].leaf
        for spine in self._lab.topology.spines:
            faults.drop(self._lab.name, f"{leaf}-{spine}", 0.0)
        spines = sorted({way.spine for way in self._sending})
        spans: list[tuple[int, tuple[int, int]]] = []
        with self._traffic() as generator:
            time.sleep(2.0)
            for number in range(cuts):
                place = int(rng.integers(len(spines)))
                spans.append((place, self._cut_once(f"{leaf}-{spines[place]}", rng)))
                if number % 10 == 9:
                    progress(f"{number + 1} of {cuts} cuts")
            result = generator.stop()
        rows = {flow["remote_qpn"]: flow for flow in result["flows"]}
        lasted = [
            outage_ns(rows[way.qpn], *span)
            for place, span in spans
            for way in self._sending
            if way.spine == spines[place]
        ]
        return Cuts([ns / 1e6 for ns in lasted if ns is not None], result["total"]["failed"])

    def _cut_once(self, link: str, rng: np.random.Generator) -> tuple[int, int]:
        start_ns = time.monotonic_ns()
        faults.drop(self._lab.name, link, 1.0)
        time.sleep(DARK_S)
        end_ns = time.monotonic_ns()
        faults.drop(self._lab.name, link, 0.0)
        time.sleep(MENDED_S * rng.uniform(1.0, 1.2))
        return start_ns, end_ns

    @contextmanager
    def _traffic(self) -> Iterator[Generator]:
        flows = [self._flow(number, way) for number, way in enumerate(self._sending)]
        with Generator(flows, self._lab.popen, self._lab.run_dir) as generator:
            generator.start()
            yield generator

    def _flow(self, number: int, way: Way) -> Flow:
        return Flow(
            id=number,
            source=Endpoint(self._host.name, self._host.nics[0].ipv4),
            target=Endpoint(way.target.name, way.target.nics[0].ipv4),
            qpn=way.qpn,
            remote_qpn=way.qpn,
            sport=way.sport,
            ack_sport=way.sport,
            mtu=PACKET_BYTES,
            message_bytes=16 * PACKET_BYTES,
            rate_bps=RATE_BPS,
            window=512,
            retries=1000,
        )

    def _counter(self, name: str) -> int:
        (row,) = self._client.get("/v1/host", {"name": self._host.name})["hosts"]
        return int(row["counters"].get(f"agent.{name}", 0))

    def _went_down(self) -> int:
        with Truth(self._lab) as truth:
            return truth.counters(self._host.name).get("path_went_down", 0)


@contextmanager
def watching(spec: LabSpec, ports: int, active: int) -> Iterator[WatchingHost]:
    """The first host of a lab with so many watched paths to each host below another leaf, once they are known."""
    with lab_for_run(spec.name, spec) as lab:
        ways = _ways(lab, ports)
        with Fleet(lab, PROBES, roce=ROCE) as fleet, Truth(lab) as truth:
            wait_for_lock(fleet, truth)
            host = WatchingHost(fleet, ways, active)
            _steer(lab.hosts[0], ways, ManagerClient(f"unix://{fleet.socket}"))
            progress(f"{host.watched} paths are watched; waiting until they are traced")
            host.wait_until_traced(host.watched)
            yield host
            fleet.check()


def _ways(lab: Lab, ports: int) -> list[Way]:
    source = lab.hosts[0]
    mine = source.nics[0]
    ways: list[Way] = []
    for target in lab.hosts:
        theirs = target.nics[0]
        if theirs.leaf == mine.leaf:
            continue
        streams = [
            Stream(source.name, mine.ipv4, theirs.ipv4, port)
            for port in range(FIRST_PORT, FIRST_PORT + ports)
        ]
        spines = {stream: switches[1] for stream, switches in switches_of(lab, streams).items()}
        by_spine = sorted(streams, key=lambda stream: spines[stream])
        half = len(by_spine) // 2
        ways += [
            Way(target, FIRST_QPN + len(ways) + number, one.sport, other.sport, spines[one])
            for number, (one, other) in enumerate(zip(by_spine[:half], by_spine[half:], strict=False))
            if spines[one] != spines[other]
        ]
    return ways


def _steer(source: Host, ways: Sequence[Way], client: ManagerClient) -> None:
    for way in ways:
        override = {"host": source.name, "nic": source.nics[0].name, "dst": str(way.target.nics[0].ipv4)}
        ports = {"qpn": way.qpn, "sport": way.sport, "backup_sport": way.backup_sport}
        client.put("/v1/steer", override | ports)
