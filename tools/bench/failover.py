"""Failover on real packets: how long steered queue pairs lose packets after a link goes silent; false switches.

Queue pairs of the generator run between the leaves of a lab, data and acknowledgements steered over one spine each
and backed up over another, by the manager. A link of some primary path is made silent both ways, and mended. The cut
itself is not stamped: what is counted begins with the last packet that came through before it, so that a figure
is too large by up to one interval between packets. All links that are cut have classifiers that drop nothing before, as
only one classifier in place of another makes a cut at a moment (`tools.lab.network.shaping`).
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import progress
from cwdp.errors import LabError
from manager.config import ProbeSettings, RoceConfig
from tools.bench.figures import Figure, figure
from tools.experiments.measure import outage_ns
from tools.lab import Host, Lab, LabSpec, faults
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import SETTLE_S, Traffic, lab_for_run, wait_for_lock
from tools.lab.truth.clocks import Truth
from tools.lab.truth.spines import spines_by_port
from tools.roce.flows import Endpoint, Flow
from tools.roce.generator import Generator

NAME = "failover"
PAIRS = (("h1", "h5"), ("h2", "h6"), ("h7", "h3"))
FIRST_PORT = 50_000
PORTS = 8
CUTS = 100
DARK_S = 0.25
MENDED_S = 0.9
RATE_BPS = 4_000_000
SLOW_BPS = 500_000
"""Beside the load, which leaves the machine little: enough to ask for a decision every few milliseconds."""

PACKET_BYTES = 256
WINDOW = 512
LOAD = 0.8
WATCH_S = 120.0
LOST = 0.05
ALARMS = ("link_", "switch_", "host_", "nic_")
TARGET_MS = 15.0
DEAD_AFTER_MS = 10.0
PROBES = ProbeSettings(pairs_per_s=200.0)
ROCE = RoceConfig(dead_after_ms=DEAD_AFTER_MS, hold_down_ms=300.0, hold_down_max_ms=300.0, sample_every=16)


@dataclass(frozen=True)
class Way:
    """One direction of a queue pair: its two ports, and the links of its primary path that can be made silent."""

    source: Host
    target: Host
    sport: int
    backup_sport: int
    spine: str

    @property
    def links(self) -> tuple[str, str]:
        """Between the leaves and the spine."""
        return f"{self.source.nics[0].leaf}-{self.spine}", f"{self.target.nics[0].leaf}-{self.spine}"


def figures() -> Iterator[Figure]:
    """All experiments."""
    yield from cut_figures()
    yield false_switch_figure()
    yield random_loss_figure()


def cut_figures(cuts: int = CUTS, seed: int = 1) -> Iterator[Figure]:
    """From the cut of a link to the last lost packet, over many cuts."""
    rng = np.random.default_rng(seed)
    with _steered() as (fleet, flows, ways):
        for link in {link for way in ways for link in way.links}:
            faults.drop(fleet.lab.name, link, 0.0)
        lasted_ms: list[float] = []
        missed = 0
        with Generator(flows, fleet.lab.popen, fleet.lab.run_dir) as generator:
            generator.start()
            time.sleep(1.0)
            spans = []
            for number in range(cuts):
                way = ways[rng.integers(len(ways))]
                spans.append(_cut(fleet.lab.name, way.links[rng.integers(2)], rng))
                if number % 10 == 9:
                    progress(f"{number + 1} of {cuts} cuts")
            result = generator.stop()
        for span in spans:
            found = [outage_ns(flow, *span) for flow in result["flows"]]
            hit = [lasted / 1e6 for lasted in found if lasted is not None]
            lasted_ms += hit
            missed += not hit
        went_down = sum(_went_down(fleet).values())
    if not lasted_ms:
        raise LabError("no cut hit a queue pair", f"read the logs: {fleet.lab.run_dir}/*.log")
    p50, p99 = (float(np.quantile(lasted_ms, q)) for q in (0.5, 0.99))
    reference = {
        "cuts": cuts,
        "queue_pairs_hit": len(lasted_ms),
        "cuts_that_hit_acknowledgements_only": missed,
        "p50_ms": round(p50, 2),
        "max_ms": round(max(lasted_ms), 2),
        "paths_went_down": went_down,
        "dead_after_ms": DEAD_AFTER_MS,
    }
    yield figure("failover_cut_to_last_loss_p99", p99, "ms", reference, TARGET_MS, digits=3)
    yield figure("failover_beyond_dead_after_p99", p99 - DEAD_AFTER_MS, "ms", reference, 5.0, digits=3)


def false_switch_figure(seconds: float = WATCH_S) -> Figure:
    """Paths given up while nothing is wrong, with the fabric at 80 % load."""
    with _steered() as (fleet, flows, _), Traffic(fleet.lab, LOAD, SETTLE_S + seconds) as traffic:
        time.sleep(SETTLE_S)
        switches = _switches_meanwhile(fleet, flows, seconds)
        sent = traffic.result()
    reference = {"seconds": seconds, "measured_load": round(sent["measured_share"], 3) if sent else None}
    return figure("failover_false_switches", float(switches), "switches", reference, 0.0, digits=3)


def random_loss_figure(seconds: float = WATCH_S, lost: float = LOST) -> Figure:
    """Paths given up, and findings, while `lost` of all probes are lost, there and back, whatever way they take."""
    with _steered() as (fleet, flows, _), _losing(fleet.lab, 1 - (1 - lost) ** 0.5):
        time.sleep(SETTLE_S)
        before = len(_alarms(fleet))
        switches = _switches_meanwhile(fleet, flows, seconds)
        alarms = _alarms(fleet)[before:]
    reference = {"seconds": seconds, "lost": lost, "switches": switches, "alarms": alarms}
    return figure("failover_random_loss_false", float(switches + len(alarms)), "events", reference, 0.0)


def _switches_meanwhile(fleet: Fleet, flows: list[Flow], seconds: float) -> int:
    """How many paths are given up while slow queue pairs send."""
    slow = [replace(flow, rate_bps=SLOW_BPS) for flow in flows]
    with Generator(slow, fleet.lab.popen, fleet.lab.run_dir) as generator:
        generator.start()
        before = sum(_went_down(fleet).values())
        time.sleep(seconds)
        switches = sum(_went_down(fleet).values()) - before
        generator.stop()
    return switches


@contextmanager
def _losing(lab: Lab, share: float) -> Iterator[None]:
    """Every host loses so much of what comes to it."""
    with ExitStack() as mended:
        for host in lab.hosts:
            for leaf in {nic.leaf for nic in host.nics}:
                faults.drop(lab.name, f"{host.name}-{leaf}", share, f"{leaf}>{host.name}")
                mended.callback(faults.heal, lab.name, f"{host.name}-{leaf}")
        yield


def _alarms(fleet: Fleet) -> list[str]:
    """What has been found wrong so far, in order."""
    events = ManagerClient(f"unix://{fleet.socket}").get("/v1/events")["events"]
    return [f"{event['kind']}: {event['detail']}" for event in events if event["kind"].startswith(ALARMS)]


@contextmanager
def _steered() -> Iterator[tuple[Fleet, list[Flow], list[Way]]]:
    """A lab whose clocks agree, queue pairs that are steered both ways, and those ways."""
    with lab_for_run(NAME, LabSpec(name=NAME)) as lab:
        ends = [(lab.host(a), lab.host(b)) for a, b in PAIRS]
        ways = [_way(lab, *pair) for a, b in ends for pair in ((a, b), (b, a))]
        flows = [_flow(number, *pair) for number, pair in enumerate(ends)]
        with Fleet(lab, PROBES, roce=ROCE) as fleet, Truth(lab) as truth:
            wait_for_lock(fleet, truth)
            client = ManagerClient(f"unix://{fleet.socket}")
            for flow, there, back in zip(flows, ways[::2], ways[1::2], strict=True):
                _steer(client, there, flow.remote_qpn)
                _steer(client, back, flow.qpn)
            time.sleep(2.0)
            yield fleet, flows, ways
            fleet.check()


def _way(lab: Lab, source: Host, target: Host) -> Way:
    spines = spines_by_port(lab, source, target, range(FIRST_PORT, FIRST_PORT + PORTS))
    sport, spine = min(spines.items())
    backup_sport = min(port for port, other in spines.items() if other != spine)
    return Way(source, target, sport, backup_sport, spine)


def _flow(number: int, source: Host, target: Host) -> Flow:
    return Flow(
        id=number,
        source=Endpoint(source.name, source.nics[0].ipv4),
        target=Endpoint(target.name, target.nics[0].ipv4),
        qpn=1000 + 2 * number,
        remote_qpn=1001 + 2 * number,
        sport=60_000 + number,
        ack_sport=60_100 + number,
        mtu=PACKET_BYTES,
        message_bytes=16 * PACKET_BYTES,
        rate_bps=RATE_BPS,
        window=WINDOW,
        retries=1000,
    )


def _steer(client: ManagerClient, way: Way, qpn: int) -> None:
    client.put(
        "/v1/steer",
        {
            "host": way.source.name,
            "nic": way.source.nics[0].name,
            "dst": str(way.target.nics[0].ipv4),
            "qpn": qpn,
            "sport": way.sport,
            "backup_sport": way.backup_sport,
        },
    )


def _cut(name: str, link: str, rng: np.random.Generator) -> tuple[int, int]:
    """Make a link silent for a while; when that began and ended (CLOCK_MONOTONIC)."""
    start_ns = time.monotonic_ns()
    faults.drop(name, link, 1.0)
    time.sleep(DARK_S)
    end_ns = time.monotonic_ns()
    faults.drop(name, link, 0.0)
    time.sleep(MENDED_S * rng.uniform(1.0, 1.2))
    return start_ns, end_ns


def _went_down(fleet: Fleet) -> dict[str, int]:
    """How often each host gave a path up."""
    with Truth(fleet.lab) as truth:
        return {host.name: truth.counters(host.name).get("path_went_down", 0) for host in fleet.lab.hosts}
