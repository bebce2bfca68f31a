"""The experiment `nic-failover`: NICs of hosts with several die under load. What is measured, and how.

Every host has a NIC below each of two leaves, or of its rails, and writes from each of them to two NICs of the host in
its place below the next leaf: to the one of the same number (the same rail), and to that one's partner. A NIC that carries data dies in one
of several ways, and is mended. With cwdp every queue pair is given a path and a backup by hand, so that detours are what
is measured, not how soon a planner knows of a queue pair. All links have classifiers that drop nothing before, as only one classifier in
place of another makes a cut at a moment (`tools.lab.network.shaping`).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tools.experiments import measure
from tools.lab import LabSpec, faults
from tools.lab.topology import Nic, Topology
from tools.roce.flows import MAX_QPN, Endpoint, Flow, verbs_flow

MTU = 1024
MESSAGE_BYTES = 16 * 1024
WINDOW = 256
FIRST_QPN, PSNS = 2, 2**24
BACKUP_BITS = 0x0155
"""By which the source port of a backup differs: it leads over another path, or over the same one."""

NICS = 2
"""Of a host, where it has no rails."""

QPS = 2
"""That each NIC sends by."""

STEERED_S = 5.0
"""Until a NIC dies, from the first packet: queue pairs are seen, given backups, and all their detours watched."""

DARK_S = 1.5
MENDED_S = 3.0
BEFORE_S, GRACE_S, HEALED_S = 1.0, 0.5, 2.0


class Kind(StrEnum):
    """How a NIC dies.

    SILENT: its link drops all, with the carrier up. CARRIER: visibly. LEAF: the uplinks of its leaf drop all, so that
    it still reaches what is below the same leaf.
    """

    SILENT = "silent"
    CARRIER = "carrier"
    LEAF = "leaf"


@dataclass(frozen=True)
class Death:
    """One NIC's death.

    Attributes:
        host, nic: whose, by name.
        links: names of those that die.
        addresses: of all NICs that are hit.
    """

    kind: Kind
    host: str
    nic: str
    links: tuple[str, ...]
    addresses: frozenset[str]

    def make(self, lab: str) -> None:
        """Do it."""
        for link in self.links:
            if self.kind is Kind.CARRIER:
                faults.cut(lab, link)
            else:
                faults.drop(lab, link, 1.0)

    def mend(self, lab: str) -> None:
        """Undo it."""
        for link in self.links:
            if self.kind is Kind.CARRIER:
                faults.heal(lab, link)
            faults.drop(lab, link, 0.0)


def make_flows(spec: LabSpec, load: float, seed: int, *, ipv6: bool = False) -> list[Flow]:
    """The queue pairs: from every NIC of every host to that of the same number of one other, and to its partner.

    Args:
        spec: of the lab.
        load: what each NIC offers of its link.
        seed: draws QPNs, and by them source ports, and first PSNs.
        ipv6: send IPv6.
    """
    topology = Topology(spec)
    away = spec.hosts_per_leaf if spec.hosts_per_leaf < spec.host_count else 1
    ends = [
        (
            _endpoint(source, topology.nics[source][near], ipv6),
            _endpoint(target, topology.nics[target][far], ipv6),
        )
        for number, source in enumerate(topology.hosts)
        for target in [topology.hosts[(number + away) % spec.host_count]]
        for near in range(spec.nics_per_host)
        for far in sorted({near, min(near ^ 1, spec.nics_per_host - 1)})
    ]
    rng = random.Random(seed)
    qpns = rng.sample(range(FIRST_QPN, MAX_QPN + 1), 2 * len(ends))
    return [
        verbs_flow(
            number,
            *pair,
            *qpns[2 * number : 2 * number + 2],
            first_psn=rng.randrange(PSNS),
            mtu=MTU,
            message_bytes=MESSAGE_BYTES,
            window=WINDOW,
            rate_bps=round(load * spec.rate_bps / QPS),
        )
        for number, pair in enumerate(ends)
    ]


def overrides(topology: Topology, flow: Flow) -> list[dict[str, Any]]:
    """What makes the manager steer a queue pair's data and its acknowledgements, each with a backup."""
    there = (flow.source, flow.target, flow.remote_qpn, flow.sport)
    back = (flow.target, flow.source, flow.qpn, flow.ack_sport)
    return [
        {
            "host": near.host,
            "nic": next(n.name for n in topology.nics[near.host] if near.address in (n.ipv4, n.ipv6)),
            "dst": str(far.address),
            "qpn": qpn,
            "sport": sport,
            "backup_sport": sport ^ BACKUP_BITS,
        }
        for near, far, qpn, sport in (there, back)
    ]


def draw_death(kind: Kind, spec: LabSpec, rng: random.Random) -> Death:
    """Draw a NIC, and what makes it die."""
    topology = Topology(spec)
    host = rng.choice(topology.hosts)
    nic = rng.choice(topology.nics[host])
    if kind is not Kind.LEAF:
        hit = frozenset({str(nic.ipv4), str(nic.ipv6)})
        return Death(kind, host, nic.name, (f"{host}-{nic.leaf}",), hit)
    uplinks = tuple(link.name for link in topology.links_of(nic.leaf) if link.b.node in topology.spines)
    below = [other for nics in topology.nics.values() for other in nics if other.leaf == nic.leaf]
    addresses = frozenset(str(a) for other in below for a in (other.ipv4, other.ipv6))
    return Death(kind, host, nic.name, uplinks, addresses)


def hit_flows(death: Death, result: measure.Result) -> list[measure.Result]:
    """The queue pairs that have no path of their own left."""
    ends = [
        (flow, [flow["source_address"] in death.addresses, flow["target_address"] in death.addresses])
        for flow in result["flows"]
    ]
    if death.kind is Kind.LEAF:  # what both ends below the leaf say to each other crosses no uplink
        return [flow for flow, (near, far) in ends if near != far]
    return [flow for flow, hit in ends if any(hit)]


def summarise_death(
    death: Death, result: measure.Result, dead_ns: int, mended_ns: int, events: Sequence[str]
) -> dict[str, Any]:
    """What one death did.

    Args:
        death: what was done.
        result: of the run.
        dead_ns: just before it was done, CLOCK_MONOTONIC.
        mended_ns: just before it was mended.
        events: the kinds of what cwdp told of NICs.
    """
    second = float(measure.NS_PER_S)
    deliveries = measure.Deliveries(result)
    hit = hit_flows(death, result)
    rows = [deliveries.flows.index(flow["id"]) for flow in hit]
    dead_at, mended_at = (float(at_ns - result["start_ns"]) for at_ns in (dead_ns, mended_ns))
    before, dark, healed = (
        float(deliveries.mean_bps(start, end)[rows].sum())
        for start, end in (
            (dead_at - BEFORE_S * second, dead_at),
            (dead_at + GRACE_S * second, mended_at),
            (mended_at + HEALED_S * second, deliveries.end_ns),
        )
    )
    return {
        "kind": str(death.kind),
        "host": death.host,
        "nic": death.nic,
        "queue_pairs_hit": len(hit),
        "stalls_ns": [measure.stall_ns(flow, dead_ns, mended_ns) for flow in hit],
        "returns_ns": [
            measure.stall_ns(flow, mended_ns, result["start_ns"] + deliveries.end_ns) for flow in hit
        ],
        "queue_pairs_died": sum(flow["failed"] for flow in result["flows"]),
        "before_bps": before,
        "dark_share": dark / before if before else 0.0,
        "healed_share": healed / before if before else 0.0,
        "icrc_errors": result["total"]["icrc_errors"],
        "retransmitted_packets": result["total"]["retransmitted_packets"],
        "events": list(events),
        "idle_share": result["idle_share"],
    }


def summarise_arm(arm: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An arm over all deaths."""
    stalls = [stall for run in runs for stall in run["stalls_ns"]]
    return {
        "arm": arm,
        "deaths": len(runs),
        "queue_pairs_hit": sum(run["queue_pairs_hit"] for run in runs),
        "outage_p50_ns": measure.quantile(stalls, 0.5),
        "outage_p99_ns": measure.quantile(stalls, 0.99),
        "outage_max_ns": max(stalls, default=None),
        "return_max_ns": max((stall for run in runs for stall in run["returns_ns"]), default=None),
        "queue_pairs_died": sum(run["queue_pairs_died"] for run in runs),
        "dark_share": float(np.median([run["dark_share"] for run in runs])),
        "healed_share": float(np.median([run["healed_share"] for run in runs])),
        "icrc_errors": sum(run["icrc_errors"] for run in runs),
        "retransmitted_packets": sum(run["retransmitted_packets"] for run in runs),
        "idle_share": float(np.median([run["idle_share"] for run in runs])),
    }


def _endpoint(host: str, nic: Nic, ipv6: bool) -> Endpoint:
    return Endpoint(host, nic.ipv6 if ipv6 else nic.ipv4)
