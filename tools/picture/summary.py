"""What is kept of a run: goodput in bins and one-way delays around the cut. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.experiments import measure
from tools.picture.document import Arm

NS_PER_S = measure.NS_PER_S


@dataclass(frozen=True)
class Span:
    """What is kept: from so long before the cut to so long after it, in bins; all in seconds."""

    first_s: float
    last_s: float
    bin_s: float


@dataclass(frozen=True)
class Moments:
    """When a link was cut and mended, CLOCK_MONOTONIC: each takes a while to be done."""

    cutting_ns: int
    cut_ns: int
    mending_ns: int
    mended_ns: int


@dataclass(frozen=True)
class Delays:
    """Packets that were stamped at both ends: when each left, CLOCK_MONOTONIC, and its one-way delay; shape (n,)."""

    left_ns: NDArray[np.int64]
    owd_ns: NDArray[np.int64]


def first_lost_ns(result: measure.Result, moments: Moments) -> int:
    """When the first packet was sent that the cut took: the cut itself, to the interval between two packets."""
    lost = [flow["first_lost_ns"] for flow in result["flows"] if flow["first_lost_ns"]]
    return min(
        (at_ns for at_ns in lost if moments.cutting_ns <= at_ns < moments.mending_ns), default=moments.cut_ns
    )


def summarise(
    result: measure.Result,
    delays: Delays,
    moments: Moments,
    span: Span,
    *,
    hit: Collection[int],
    idle_share: float,
) -> Arm:
    """What one run made of the cut.

    Args:
        result: of the generator.
        delays: of packets around the cut.
        moments: when it was.
        span: what is kept.
        hit: queue pairs that took the link, by flow.
        idle_share: of the machine's processors.
    """
    cut_ns = first_lost_ns(result, moments)
    edges_ns = (
        np.arange(span.first_s, span.last_s + span.bin_s / 2, span.bin_s) * NS_PER_S
        + cut_ns
        - result["start_ns"]
    )
    goodput_bps = measure.Deliveries(result).rates_bps(edges_ns).sum(axis=0)
    sent_s = (delays.left_ns - cut_ns) / NS_PER_S
    kept = np.flatnonzero((sent_s >= span.first_s) & (sent_s < span.last_s))
    kept = kept[np.argsort(sent_s[kept], kind="stable")]
    flows: list[dict[str, Any]] = [flow for flow in result["flows"] if flow["id"] in hit]
    stalls_ns = [measure.stall_ns(flow, cut_ns, moments.mending_ns) for flow in flows]
    return Arm(
        queue_pairs_hit=len(flows),
        queue_pairs_died=result["total"]["failed"],
        stall_max_ms=round(max(stalls_ns, default=0) / 1e6, 1),
        mended_s=round((moments.mended_ns - cut_ns) / NS_PER_S, 3),
        idle_share=round(idle_share, 3),
        goodput_bps=[round(rate) for rate in goodput_bps.tolist()],
        sent_s=np.round(sent_s[kept], 3).tolist(),
        owd_us=np.round(delays.owd_ns[kept] / 1e3, 1).tolist(),
    )
