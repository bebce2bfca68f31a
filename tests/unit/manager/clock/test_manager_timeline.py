"""A timeline that is taken up keeps its place and its rate."""

import numpy as np
import pytest

from cwdp.shared.bus.messages import ClockLine
from cwdp.shared.clocksync import EdgeFits
from cwdp.shared.clocksync.graph.solve import GraphEdges
from manager.clock.timeline import ContinuedTracks

LOCAL_NS = 10**12
DRIFTS = np.array([-31e-6, -25e-6])
OFFSETS_NS = np.array([2_000_000_000, -1_000_000_000])


def _line(host: int) -> ClockLine:
    return ClockLine(
        ref_local_ns=LOCAL_NS - int(OFFSETS_NS[host]),
        offset_base_ns=int(OFFSETS_NS[host]),
        offset_ns=0.0,
        drift=float(DRIFTS[host]),
        bound_ns=50.0,
        bound_drift=1e-8,
        state="synced",
    )


def _fits() -> EdgeFits:
    """Both hosts' fits of the other at the moment that both lines call LOCAL_NS."""
    there = np.array([0, 1])
    back = 1 - there
    sigma = np.full(2, 3.0)
    return EdgeFits(
        ref_ns=LOCAL_NS - OFFSETS_NS[there],
        offset_ns=OFFSETS_NS[there] - OFFSETS_NS[back],
        offset_frac_ns=np.zeros(2),
        slope=(1 + DRIFTS[there]) / (1 + DRIFTS[back]) - 1,
        margin_ns=np.full(2, 3000.0),
        sigma_offset_ns=sigma,
        sigma_out_ns=sigma,
        sigma_back_ns=sigma,
        sigma_slope=np.full(2, 2e-9),
        points=np.full(2, 10.0),
        pure_share=np.ones(2),
        reason=np.zeros(2, np.uint8),
    )


def test_the_rate_goes_on_though_no_drift_is_settled() -> None:
    tracks = ContinuedTracks(2)
    tracks.adopt({host: (LOCAL_NS - int(OFFSETS_NS[host]), _line(host)) for host in range(2)})
    for _ in range(3):
        tracks.step(GraphEdges.settled(np.array([0, 1]), np.array([1, 0]), np.zeros(2, np.int64), _fits()))
    clocks = tracks.clocks()
    assert clocks is not None
    assert clocks.drift == pytest.approx(DRIFTS, abs=1e-9)
    since_ns = clocks.ref_local_ns - (LOCAL_NS - OFFSETS_NS)
    then_ns = clocks.offset_ns + (clocks.offset_frac_ns - clocks.drift * since_ns)
    assert then_ns == pytest.approx(OFFSETS_NS, abs=1.0)
