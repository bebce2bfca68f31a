"""The queue pairs of a soak: two jobs, and one queue pair that an operator steers; whether each of them goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tools.lab import Lab
from tools.lab.truth.spines import spines_by_port
from tools.roce.flows import Endpoint, Flow
from tools.roce.job_keeper import RETRIES, TIMEOUT_NS, job_flows
from tools.roce.jobs import interleaved
from tools.soak.troubles import Trouble

LOAD = 0.25
PORTS = range(50_000, 50_008)
STEERED_QPN, STEERED_REMOTE_QPN = 1000, 1001
STILL_S = 5.0
"""So long no queue pair may deliver nothing whose hosts' own links are well."""

NS_PER_S = 1e9
ENDS_AT_FAULT = (
    "cut",
    "silent",
    "silent_one_way",
    "flap",
    "loss",
    "slow_sender",
    "slow_receiver",
    "host_revoked",
)

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Steered:
    """A queue pair that an operator leads over one path, with another as its backup."""

    flow: Flow
    sport: int
    backup_sport: int

    @property
    def wish(self) -> dict[str, object]:
        """As the manager's API takes it."""
        flow = self.flow
        target = {
            "host": flow.source.host,
            "nic": "nic0",
            "dst": str(flow.target.address),
            "qpn": flow.remote_qpn,
        }
        return target | {"sport": self.sport, "backup_sport": self.backup_sport}

    @property
    def sports(self) -> set[int]:
        """Both."""
        return {self.sport, self.backup_sport}


def steered(lab: Lab) -> Steered:
    """One from the first host to the last, which are below different leaves."""
    source, target = lab.hosts[0], lab.hosts[-1]
    spines = spines_by_port(lab, source, target, PORTS)
    sport, spine = min(spines.items())
    flow = Flow(
        id=0,
        source=Endpoint(source.name, source.nics[0].ipv4),
        target=Endpoint(target.name, target.nics[0].ipv4),
        qpn=STEERED_QPN,
        remote_qpn=STEERED_REMOTE_QPN,
        sport=60_000,
        ack_sport=60_001,
        mtu=1024,
        message_bytes=4096,
        rate_bps=500_000,
        timeout_ns=TIMEOUT_NS,
        retries=RETRIES,
    )
    return Steered(flow, sport, min(port for port, other in spines.items() if other != spine))


def flows(lab: Lab, first: Flow) -> list[Flow]:
    """That one, and those of two jobs."""
    jobs = interleaved([host.name for host in lab.hosts])
    others = [flow for job in jobs for flow in job_flows(lab, job, LOAD)]
    return [first, *(replace(flow, id=number) for number, flow in enumerate(others, 1))]


@dataclass(frozen=True)
class Traffic:
    """What became of the queue pairs.

    Attributes:
        failed: that gave up.
        still: that delivered nothing for too long, and when.
        longest_still_s: of those whose hosts' links were well.
        unacknowledged: whose acknowledged bytes had not all been delivered.
        strayed: source ports of the steered one that nobody asked for.
        icrc_errors: packets with a wrong ICRC.
        delivered_bytes, retransmitted_packets: of all.
    """

    failed: tuple[str, ...]
    still: tuple[str, ...]
    longest_still_s: float
    unacknowledged: tuple[str, ...]
    strayed: tuple[int, ...]
    icrc_errors: int
    delivered_bytes: int
    retransmitted_packets: int


def judge(result: Result, steered_by: Steered, done: Sequence[Trouble], start_s: float) -> Traffic:
    """What a generator's result says.

    Args:
        result: of the generator, with snapshots.
        steered_by: the queue pair 0.
        done: troubles as they were done.
        start_s: of the soak, CLOCK_MONOTONIC.
    """
    rows = result["flows"]
    progress = _progress(result, start_s)
    stills = {row["id"]: longest(progress[row["id"]], _excused(row, done)) for row in rows}
    total = result["total"]
    return Traffic(
        failed=tuple(_name(row) for row in rows if row["failed"]),
        still=tuple(
            f"{_name(row)} at {at_s:.0f} s for {lasted_s:.1f} s"
            for row in rows
            for lasted_s, at_s in [stills[row["id"]]]
            if lasted_s > STILL_S
        ),
        longest_still_s=max((lasted_s for lasted_s, _ in stills.values()), default=0.0),
        unacknowledged=tuple(_name(row) for row in rows if row["acked_bytes"] > row["delivered_bytes"]),
        strayed=tuple(
            sorted(
                {port["port"] for row in rows if row["id"] == 0 for port in row["sports"]} - steered_by.sports
            )
        ),
        icrc_errors=total["icrc_errors"],
        delivered_bytes=total["delivered_bytes"],
        retransmitted_packets=total["retransmitted_packets"],
    )


def longest(
    progress: Sequence[tuple[float, int]], excused: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """The longest time without a delivery outside of spans in which there need be none, and when it began.

    Args:
        progress: times in s and bytes delivered by then, in order.
        excused: from when to when.
    """
    worst, since_s = (0.0, 0.0), None
    for (at_s, count), (next_s, later) in pairwise(progress):
        is_excused = any(begin_s <= next_s and at_s <= end_s for begin_s, end_s in excused)
        if later > count or is_excused:
            since_s = None
            continue
        since_s = at_s if since_s is None else since_s
        worst = max(worst, (next_s - since_s, since_s))
    return worst


def _progress(result: Result, start_s: float) -> dict[int, list[tuple[float, int]]]:
    found: dict[int, list[tuple[float, int]]] = {row["id"]: [] for row in result["flows"]}
    for snapshot in result.get("timeline", ()):
        at_s = snapshot["at_ns"] / NS_PER_S - start_s
        for flow, delivered in snapshot["delivered_bytes"].items():
            found[flow].append((at_s, delivered))
    return found


def _excused(row: Result, done: Sequence[Trouble]) -> list[tuple[float, float]]:
    """While a link of either of its hosts was at fault, and as long after as any queue pair may stand still.

    And while one of them was revoked: nobody answers its probes any more, so that no path of it is known to be dead.
    """
    return [
        (each.begin_s, each.end_s + STILL_S)
        for each in done
        if each.kind in ENDS_AT_FAULT and each.target.partition("-")[0] in (row["source"], row["target"])
    ]


def _name(row: Result) -> str:
    return f"{row['source']} > {row['target']} QPN {row['qpn']}"
