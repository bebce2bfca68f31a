"""The experiment `failover`: links die under load, and what the queue pairs lose by it. What is measured, and how.

Every host writes to the one in its place below the next leaf over some queue pairs, at a share of its link. The links
between switches have the rate at which the fabric is not oversubscribed, unless given. One of them that carries data dies, in one of several ways, and is mended. All links that are to go silent have classifiers that drop nothing
before, as only one classifier in place of another makes a cut at a moment (`tools.lab.network.shaping`).
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from msgspec.structs import replace

from tools.experiments import measure
from tools.experiments.optimum import Pair, link_capacities, placed_optimum_bps, total_optimum_bps
from tools.lab import LabSpec, faults
from tools.lab.topology import Topology
from tools.roce.flows import Flow
from tools.roce.jobs import pair_flows

QPS = 2
"""A pair of hosts."""

MTU = 4096
MESSAGE_BYTES = 64 * 1024
WINDOW = 8
STEERED_S = 4.0
"""Until the cut, from the first packet: the manager sees new queue pairs and gives them backups."""

DARK_S = 2.0
MENDED_S = 3.5
BEFORE_S, GRACE_S, HEALED_S = 1.0, 1.0, 2.0


Optimum = Callable[[Topology, Sequence[Pair], float, Mapping[str, float]], float]


class Kind(StrEnum):
    """How a link dies.

    SILENT: both ways, with its carrier up. ONE_WAY: in one direction only. CARRIER: visibly; the switches route
    round it. SPINE: all links of its spine, silently.
    """

    SILENT = "silent"
    ONE_WAY = "one-way"
    CARRIER = "carrier"
    SPINE = "spine"


@dataclass(frozen=True)
class Setting:
    """What is the same for all cuts.

    Attributes:
        spec: of the lab.
        load: what each host offers, of its link.
        pairs: source and target of each queue pair.
        flow_bps: what each queue pair offers, as links count it.
    """

    spec: LabSpec
    load: float
    pairs: tuple[Pair, ...]
    flow_bps: float

    def flows(self, seed: int) -> list[Flow]:
        """The queue pairs; their QPNs, and so their source ports, are drawn by the seed."""
        return pair_flows(
            Topology(self.spec),
            self.pairs,
            seed,
            mtu=MTU,
            rate_bps=round(self.flow_bps),
            window=WINDOW,
            message_bytes=MESSAGE_BYTES,
        )

    def survivors_bps(self, dead: Sequence[str], best: Optimum = total_optimum_bps) -> float:
        """Payload that the queue pairs can have in all while some links are dead."""
        topology = Topology(self.spec)
        capacities = link_capacities(topology, dead=dead)
        total_bps = best(topology, self.pairs, self.flow_bps, capacities)
        return total_bps * measure.payload_share(MESSAGE_BYTES, MTU)


@dataclass(frozen=True)
class Cut:
    """What is done to the fabric once.

    Attributes:
        kind: how.
        links: names of those that die.
        direction: the one that dies, or both.
    """

    kind: Kind
    links: tuple[str, ...]
    direction: str = faults.BOTH

    @property
    def shown(self) -> str:
        """For people."""
        return self.direction if self.kind is Kind.ONE_WAY else ", ".join(self.links)

    def hits(self, taken: frozenset[str]) -> bool:
        """Whether one of some directed links dies."""
        if self.kind is Kind.ONE_WAY:
            return self.direction in taken
        return any({f"{a}>{b}", f"{b}>{a}"} & taken for a, b in (link.split("-") for link in self.links))

    def make(self, lab: str) -> None:
        """Do it."""
        for link in self.links:
            if self.kind is Kind.CARRIER:
                faults.cut(lab, link)
            else:
                faults.drop(lab, link, 1.0, self.direction)

    def mend(self, lab: str) -> None:
        """Undo it."""
        for link in self.links:
            if self.kind is Kind.CARRIER:
                faults.heal(lab, link)
            else:
                faults.drop(lab, link, 0.0)


def make_setting(spec: LabSpec, load: float, spine_rate_bps: int | None) -> Setting:
    """Work out pairs and rates.

    Args:
        spec: of the lab; the rate of the links between its switches is not looked at.
        load: what each host offers of its link.
        spine_rate_bps: of these links, None for a fabric that is not oversubscribed.
    """
    if spine_rate_bps is None:
        below_bps = spec.hosts_per_leaf * spec.rate_bps
        of_core_bps = -(-spec.leaves * below_bps // (spec.spines * spec.cores)) if spec.cores else 0
        spine_rate_bps = max(-(-below_bps // spec.spines), of_core_bps)
    spec = replace(spec, spine_rate_bps=spine_rate_bps)
    hosts = Topology(spec).hosts
    pairs = [(host, hosts[(n + spec.hosts_per_leaf) % len(hosts)]) for n, host in enumerate(hosts)]
    return Setting(spec, load, tuple(pair for pair in pairs for _ in range(QPS)), load * spec.rate_bps / QPS)


def draw_cut(kind: Kind, used: Sequence[str], topology: Topology, rng: random.Random) -> Cut:
    """Draw a cut among the directed links (`l1>s2`) that carry data."""
    direction = rng.choice(sorted(used))
    a, b = direction.split(">")
    if kind is Kind.SPINE:
        spine = a if a in topology.spines else b
        return Cut(kind, tuple(link.name for link in topology.links_of(spine)))
    link = topology.link(f"{a}-{b}").name
    return Cut(kind, (link,), direction if kind is Kind.ONE_WAY else faults.BOTH)


def summarise_cut(
    setting: Setting,
    cut: Cut,
    taken: Mapping[int, frozenset[str]],
    result: measure.Result,
    span_ns: tuple[int, int],
) -> dict[str, Any]:
    """What one cut did.

    Args:
        setting: of the experiment.
        cut: what was done.
        taken: directed links that each queue pair took just before, by flow.
        result: of the run.
        span_ns: just before it was done, and just before it was mended, CLOCK_MONOTONIC.
    """
    cut_ns, mended_ns = span_ns
    deliveries = measure.Deliveries(result)
    second = float(measure.NS_PER_S)
    cut_at, mended_at = (float(at_ns - result["start_ns"]) for at_ns in (cut_ns, mended_ns))
    before_bps = float(deliveries.mean_bps(cut_at - BEFORE_S * second, cut_at).sum())
    dark_bps = float(deliveries.mean_bps(cut_at + GRACE_S * second, mended_at).sum())
    healed_bps = float(deliveries.mean_bps(mended_at + HEALED_S * second, deliveries.end_ns).sum())
    survivors_bps = setting.survivors_bps(cut.links)
    placed_bps = setting.survivors_bps(cut.links, placed_optimum_bps)
    died = [flow for flow in result["flows"] if cut.hits(taken[flow["id"]])]
    outages = [measure.outage_ns(flow, cut_ns, mended_ns) for flow in result["flows"]]
    edges = np.arange(cut_at - BEFORE_S * second, deliveries.end_ns, measure.BIN_S * second)
    return {
        "load": setting.load,
        "kind": str(cut.kind),
        "cut": cut.shown,
        "outages_ns": [outage for outage in outages if outage is not None],
        "stalls_ns": [measure.stall_ns(flow, cut_ns, mended_ns) for flow in died],
        "queue_pairs_died": result["total"]["failed"],
        "before_bps": before_bps,
        "survivors_bps": survivors_bps,
        "dark_bps": dark_bps,
        "placed_bps": placed_bps,
        "dark_share": dark_bps / survivors_bps,
        "placed_share": dark_bps / placed_bps,
        "healed_share": healed_bps / before_bps if before_bps else 0.0,
        "mended_after_s": (mended_ns - cut_ns) / measure.NS_PER_S,
        "timeline": {
            "at_s": [round(at, 3) for at in ((edges[:-1] - cut_at) / second).tolist()],
            "goodput_bps": [round(rate) for rate in deliveries.rates_bps(edges).sum(axis=0).tolist()],
        },
        "retransmitted_packets": result["total"]["retransmitted_packets"],
        "moves": measure.moves(result["flows"]),
        "owd_p99_ns": result["total"]["owd"]["p99_ns"],
        "idle_share": result["idle_share"],
    }
