"""The experiment `tcp-failover`: links go silent under `iperf3`, and what its connections lose by it. No lab.

Every host sends to the one in its place below the next leaf by one connection, at a share of its link; the links between
switches have the rate at which the fabric is not oversubscribed. One of them that carries data is cut silently and mended.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from cwdp.errors import LabError
from cwdp.shared.addresses import Address
from tools.experiments import measure
from tools.experiments.optimum import Pair
from tools.experiments.tcp.arms import Arm
from tools.experiments.tcp.watching import Ends, Received
from tools.lab import LabSpec
from tools.lab.topology import Topology
from tools.lab.truth.passing import Between

SETTLE_S, DARK_S, MENDED_S = 6.0, 2.0, 4.0
"""From the first byte to the cut, until it is mended, until the end."""

STEADY_S = 1.0
"""Before the cut, for what a connection waits by itself."""

FIRST_PORT = 5201
BLOCK_BYTES = 8_192
RATE_BPS = 60_000_000
LOAD = 0.4
"""One connection fits a link between switches of the usual lab, which has half of a host's rate, with room for pulses."""


@dataclass(frozen=True)
class Setting:
    """What is the same for all cuts: the lab, what each host sends of its link, and who sends to whom."""

    spec: LabSpec
    load: float
    pairs: tuple[Pair, ...]

    @property
    def ports(self) -> tuple[int, int]:
        """Where the receivers listen, the first and the last of them."""
        return FIRST_PORT, FIRST_PORT + len(self.pairs) - 1

    def server(self, number: int) -> list[str]:
        """How a pair's receiver is called."""
        return ["iperf3", "--server", "--one-off", "--port", str(FIRST_PORT + number)]

    def client(self, number: int, target: Address, seconds: float) -> list[str]:
        """How a pair's sender is called."""
        told = {
            "client": str(target),
            "port": FIRST_PORT + number,
            "time": round(seconds),
            "length": BLOCK_BYTES,
            "bitrate": round(self.load * self.spec.rate_bps),
        }
        return [
            "iperf3",
            "--json",
            *(word for name, value in told.items() for word in (f"--{name}", str(value))),
        ]


def make_setting(spec: LabSpec, load: float) -> Setting:
    """Work out pairs and rates; the rate of the links between the lab's switches is not looked at."""
    spec = replace(spec, spine_rate_bps=-(-spec.hosts_per_leaf * spec.rate_bps // spec.spines))
    hosts = Topology(spec).hosts
    count = len(hosts)
    return Setting(
        spec, load, tuple((h, hosts[(n + spec.hosts_per_leaf) % count]) for n, h in enumerate(hosts))
    )


def links_taken(topology: Topology, crossed: Mapping[Between, str]) -> dict[Between, frozenset[str]]:
    """The directed links between switches that segments take from one address to another, and those that acknowledge them."""
    leaf = {
        address: nic.leaf
        for nics in topology.nics.values()
        for nic in nics
        for address in (nic.ipv4, nic.ipv6)
    }
    one_way = {
        (src, dst): {f"{leaf[src]}>{spine}", f"{spine}>{leaf[dst]}"}
        for (src, dst), spine in crossed.items()
        if src in leaf and dst in leaf
    }
    return {pair: frozenset(links | one_way.get(pair[::-1], set())) for pair, links in one_way.items()}


def summarise_cut(
    link: str,
    taken: Mapping[Between, frozenset[str]],
    received: Mapping[Ends, Received],
    span_ns: tuple[int, int],
    end_ns: int,
) -> dict[str, Any]:
    """What one cut did to the connections that took the link, either way.

    Args:
        link: its name.
        taken: the links of each pair of addresses just before.
        received: of each connection with data.
        span_ns: when it was cut and when it was mended, CLOCK_MONOTONIC.
        end_ns: when senders were about to end.
    """
    cut_ns, mended_ns = span_ns
    a, b = link.split("-")
    dead = {f"{a}>{b}", f"{b}>{a}"}
    hit = [
        one
        for ends, one in received.items()
        if dead & taken.get((ends.far_address, ends.address), frozenset())
    ]
    steady_ns = [one.stall_ns(cut_ns - round(STEADY_S * 1e9), cut_ns) for one in received.values()]
    return {
        "cut": link,
        "connections": len(received),
        "stalls_ns": [one.stall_ns(cut_ns, end_ns) for one in hit],
        "others_stalls_ns": [one.stall_ns(cut_ns, end_ns) for one in received.values() if one not in hit],
        "steady_ns": max(steady_ns, default=None),
        "dark_bps": sum(one.mean_bps(cut_ns, mended_ns) for one in received.values()),
        "before_bps": sum(one.mean_bps(cut_ns - round(STEADY_S * 1e9), cut_ns) for one in received.values()),
    }


def summarise_arm(arm: Arm, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An arm over all its cuts."""
    stalls = [stall for run in runs for stall in run["stalls_ns"]]
    return {
        "arm": str(arm),
        "cuts": len(runs),
        "connections_hit": len(stalls),
        **{f"stall_p{round(q * 100)}_ns": measure.quantile(stalls, q) for q in (0.5, 0.99)},
        "stall_max_ns": max(stalls, default=None),
        "others_max_ns": max((stall for run in runs for stall in run["others_stalls_ns"]), default=None),
        "steady_max_ns": max((run["steady_ns"] or 0 for run in runs), default=None),
        "dark_share": float(np.median([run["dark_bps"] / run["before_bps"] for run in runs])),
        **{name: sum(run[name] for run in runs) for name in ("resets", "failed", "retransmits")},
        "idle_share": float(np.median([run["idle_share"] for run in runs])),
    }


def retransmits(told: str) -> int:
    """Segments that a sender has sent again, by what `iperf3` tells.

    Raises:
        LabError: it failed.
    """
    try:
        result = json.loads(told)
        if "error" in result:
            raise LabError(f"iperf3: {result['error']}", "is the lab whole?")
        return int(result["end"]["sum_sent"]["retransmits"])
    except (ValueError, KeyError) as error:
        raise LabError(f"iperf3 told {told[-200:]!r}", "its own words are above") from error
