"""Many send to one: who, how fast, and what comes of it. No I/O."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.config import CongestionConfig
from cwdp.errors import ConfigError
from tools.clocks import ClockKind
from tools.experiments.measure import NS_PER_S, Deliveries, quantile
from tools.lab.topology import LabSpec, Topology
from tools.roce.flows import Flow
from tools.roce.jobs import pair_flows
from tools.roce.patterns import NIC_WINDOW

BEGINNING_S = 1.0
"""Queue pairs that are new fill the queue before anybody knows of them; told apart from the rest."""

OWD_RATIO, GOODPUT_SHARE, FAIRNESS = 0.25, 0.97, 0.95
"""What is to be reached: p99 of the delay over that without, goodput over the link, Jain's index."""

THRESHOLD_FRAMES = 6
FRAME_BYTES = 4_158
PULSE_BYTES = 122
PULSE_SHARE = 0.007
"""Of the target's link, for the pulses of all senders: links are a thousand times slower than those that cwdp is for."""

MIN_WINDOW = 4


@dataclass(frozen=True)
class Incast:
    """Who sends to whom in a lab."""

    sources: tuple[str, ...]
    target: str
    flows: tuple[Flow, ...]


def lab_spec(name: str, senders: int, rate_bps: int, seed: int, clocks: ClockKind) -> LabSpec:
    """A lab with room for these, on two leaves."""
    per_leaf = max(LabSpec().hosts_per_leaf, -(-(senders + 1) // LabSpec().leaves))
    return LabSpec(
        name=name,
        hosts_per_leaf=per_leaf,
        rate_bps=rate_bps,
        spine_rate_bps=rate_bps,
        seed=seed,
        clocks=clocks,
    )


def draw_incast(topology: Topology, senders: int, message_bytes: int, seed: int) -> Incast:
    """Draw the target and those that send to it, with a queue pair each.

    All their windows together fit the last switch's queue: a lab's links have no flow control.

    Raises:
        ConfigError: there are too few hosts.
    """
    hosts = list(topology.hosts)
    if senders + 1 > len(hosts):
        raise ConfigError(f"{senders} senders and a target are more than {len(hosts)} hosts", "use fewer")
    target, *sources = random.Random(seed).sample(hosts, senders + 1)
    flows = pair_flows(
        topology,
        [(source, target) for source in sources],
        seed,
        window=max(MIN_WINDOW, NIC_WINDOW // senders),
        message_bytes=message_bytes,
    )
    return Incast(tuple(sources), target, tuple(flows))


def congestion(rate_bps: int) -> CongestionConfig:
    """The threshold for links of a rate: some frames."""
    return CongestionConfig(threshold_us=THRESHOLD_FRAMES * FRAME_BYTES * 8e6 / rate_bps)


def pulse_interval_ms(senders: int, rate_bps: int) -> float:
    """So rarely that the pulses of all senders take no more than their share of the target's link."""
    return max(2.0, senders * PULSE_BYTES * 8e3 / (PULSE_SHARE * rate_bps))


def jain(rates: NDArray[np.float64]) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one has everything."""
    square = float((rates**2).sum())
    return float(rates.sum()) ** 2 / (len(rates) * square) if square else 0.0


def summarise(
    result: Mapping[str, Any], since_start_ns: NDArray[np.float64], owd_ns: NDArray[np.int64], rate_bps: int
) -> dict[str, Any]:
    """One run in numbers.

    Args:
        result: the generator's.
        since_start_ns: when packets left, after the start; shape (packets,).
        owd_ns: their delays on the wire, shape (packets,).
        rate_bps: of the target's link.
    """
    deliveries = Deliveries(result)
    beginning = since_start_ns < BEGINNING_S * NS_PER_S
    rates = deliveries.mean_bps(BEGINNING_S * NS_PER_S, deliveries.end_ns)
    return {
        "owd_p50_ns": quantile(owd_ns[~beginning], 0.5),
        "owd_p99_ns": quantile(owd_ns[~beginning], 0.99),
        "owd_beginning_p99_ns": quantile(owd_ns[beginning], 0.99),
        "owd_packets": int(np.count_nonzero(~beginning)),
        "owd_from_process_p99_ns": result["total"]["owd"]["p99_ns"],
        "goodput_bps": float(rates.sum()),
        "goodput_share": float(rates.sum()) / rate_bps,
        "jain": jain(rates),
        "least_bps": float(rates.min()),
        "most_bps": float(rates.max()),
        "completion_p50_ns": result["total"]["completion"]["p50_ns"],
        "completion_p99_ns": result["total"]["completion"]["p99_ns"],
        "retransmitted_packets": result["total"]["retransmitted_packets"],
        "queue_pairs_died": result["total"]["failed"],
        "idle_share": result["idle_share"],
    }


def compare(without: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    """What congestion control has brought, and whether that is what is to be reached."""
    ratio = held["owd_p99_ns"] / without["owd_p99_ns"] if without["owd_p99_ns"] else None
    return {
        "owd_p99_ratio": ratio,
        "met": {
            "owd": ratio is not None and ratio <= OWD_RATIO,
            "goodput": held["goodput_share"] >= GOODPUT_SHARE,
            "fairness": held["jain"] >= FAIRNESS,
        },
    }
