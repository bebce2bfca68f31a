"""What the result of a run says about goodput over time, outages and what else a table shows. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NS_PER_S = 1_000_000_000
BIN_S = 0.1
"""Of goodput over time."""

ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES, BTH_BYTES, RETH_BYTES, ICRC_BYTES = 14, 20, 8, 12, 16, 4
HEADERS_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + BTH_BYTES + ICRC_BYTES

Result = Mapping[str, Any]


def payload_share(message_bytes: int, mtu: int) -> float:
    """What of the bytes of a WRITE's frames, as a lab's link counts them, is payload; over IPv4."""
    packets = -(-message_bytes // mtu)
    return message_bytes / (message_bytes + packets * HEADERS_BYTES + RETH_BYTES)


class Deliveries:
    """What each queue pair of a run had delivered by when, from its snapshots."""

    def __init__(self, result: Result) -> None:
        self._start_ns: int = result["start_ns"]
        seen: dict[int, tuple[list[int], list[int]]] = {flow["id"]: ([0], [0]) for flow in result["flows"]}
        for row in result.get("timeline", ()):
            for flow, delivered in row["delivered_bytes"].items():
                times, counts = seen[flow]
                times.append(row["at_ns"] - self._start_ns)
                counts.append(delivered)
        self.flows = list(seen)
        self._seen = [(np.array(times), np.array(counts)) for times, counts in seen.values()]

    @property
    def end_ns(self) -> int:
        """The last snapshot that there is of every queue pair, since the start."""
        return min(int(times[-1]) for times, _ in self._seen)

    def at(self, time_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bytes delivered, between snapshots in proportion.

        Args:
            time_ns: since the start, shape (n,).

        Returns:
            Shape (flows, n).
        """
        return np.array([np.interp(time_ns, times, counts) for times, counts in self._seen])

    def rates_bps(self, edges_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Goodput of each queue pair in each bin between two edges; shape (flows, edges - 1)."""
        rates: NDArray[np.float64] = np.diff(self.at(edges_ns), axis=1) * 8 * NS_PER_S / np.diff(edges_ns)
        return rates

    def mean_bps(self, start_ns: float, end_ns: float) -> NDArray[np.float64]:
        """Goodput of each queue pair over one span; shape (flows,)."""
        return self.rates_bps(np.array([start_ns, end_ns]))[:, 0]


def totals(result: Result) -> dict[str, Any]:
    """What is the same for every experiment: losses, completions, delays, moves, and queue pairs that died."""
    total = result["total"]
    return {
        "completion_p50_ns": total["completion"]["p50_ns"],
        "completion_p99_ns": total["completion"]["p99_ns"],
        "owd_p50_ns": total["owd"]["p50_ns"],
        "owd_p99_ns": total["owd"]["p99_ns"],
        "outage_ns": total["outage_ns"],
        "retransmitted_packets": total["retransmitted_packets"],
        "queue_pairs_died": total["failed"],
        "icrc_errors": total["icrc_errors"],
        "moves": moves(result["flows"]),
    }


def moves(flows: Sequence[Result]) -> int:
    """How often queue pairs changed their source port, as their targets saw it; a return to a port not counted."""
    return sum(max(0, len(flow["sports"]) - 1) for flow in flows)


def outage_ns(flow: Result, start_ns: int, end_ns: int) -> int | None:
    """For how long packets were lost on the way: from the last that came before each gap to the last lost in it.

    It is too large by up to one interval between packets. Gaps of packets that others overtook are none.

    Args:
        flow: of a result.
        start_ns: just before a link died, CLOCK_MONOTONIC.
        end_ns: just before it was mended.

    Returns:
        The sum over all gaps; None where nothing was lost.
    """
    gaps = [gap for gap in flow["gap_events"] if start_ns <= gap["last_arrival_ns"] <= end_ns]
    lost = [gap for gap in gaps if not gap["overtaken"] and gap["last_lost_sent_ns"]]
    lasted_ns = sum(max(0, int(gap["last_lost_sent_ns"]) - int(gap["last_arrival_ns"])) for gap in lost)
    return lasted_ns or None


def stall_ns(flow: Result, start_ns: int, end_ns: int) -> int:
    """The longest time without a delivery that began within a span or just before it, retransmission included.

    A queue pair that died within the span delivered nothing from then on. Only the longest pauses of a run are known:
    where none of those began in the span, the shortest of them is told, as it was that long at most.
    """
    slack_ns = NS_PER_S // 10
    if flow["failed"]:
        return end_ns - start_ns
    within = [
        int(pause["lasted_ns"])
        for pause in flow["pauses"]
        if start_ns - slack_ns <= pause["start_ns"] < end_ns
    ]
    return max(within) if within else min((int(pause["lasted_ns"]) for pause in flow["pauses"]), default=0)


def quantile(values: Sequence[float] | NDArray[np.int64], share: float) -> float | None:
    """The value that a share of them do not exceed; None where there are none."""
    return float(np.quantile(values, share)) if len(values) else None


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
