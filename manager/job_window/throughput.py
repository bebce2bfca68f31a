"""What a job sends over time, from its bursts. Pure."""

import numpy as np
from numpy.typing import NDArray

from manager.jobs.flows import FlowBursts, Ints

Floats = NDArray[np.float64]


def throughput_bps(flows: FlowBursts, edges_ns: Ints) -> Floats:
    """The mean rate of IP packets between edges, shape (edges - 1,); NaN after what was told of last.

    A burst counts as sent evenly from its beginning to its end, which is known to a jiffy.

    Args:
        flows: the job's.
        edges_ns: rising, on the timeline, shape (edges,).
    """
    if not flows.flows:
        return np.full(len(edges_ns) - 1, np.nan)
    start_ns = flows.left.bursts.start_ns
    end_ns = np.maximum(flows.left.bursts.end_ns, start_ns + 1)
    origin_ns = edges_ns[0]
    rates = flows.left.bursts.bytes / (end_ns - start_ns)
    at_ns = np.concatenate([start_ns, end_ns]) - origin_ns
    order = np.argsort(at_ns, kind="stable")
    at_ns, steps = at_ns[order], np.concatenate([rates, -rates])[order]
    sent_until = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(at_ns))])
    bps = 8e9 * np.diff(np.interp(edges_ns - origin_ns, at_ns, sent_until)) / np.diff(edges_ns)
    return np.where(edges_ns[1:] <= end_ns.max(), np.maximum(bps, 0.0), np.nan)
