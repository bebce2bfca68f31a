"""Clock sync over arrays: no input or output, all times int64 nanoseconds.

Importing this package loads numpy only. The parts that need scipy are imported by their modules.

On each host (one probing edge = one peer, or one path to a peer):

    order, starts = group_by_edge(edge, n_edges)              # interleaved probes to edge-major order
    purity = pair_purity(tx_spacing_ns, rx_spacing_ns)        # .weight per pair, .queued_share
    exchanges = Exchanges(t1_ns, t2_ns, t3_ns, t4_ns, starts, weight_out, weight_back)   # last ~2 s
    memory = EdgeMemory(n_edges)                              # kept by the agent; .forget(mask)
    fits = fit_edges(exchanges, memory.prior(now_local_ns))   # EdgeFits, arrays [n_edges]
    memory.update(fits)
    line = slew(published_line, target_line, now_local_ns)    # ClockLine to publish

    EdgeFits: "when A's clock shows a, B's shows a + offset + slope * (a - ref)": ref_ns int64,
    offset_ns int64 + offset_frac_ns float64, slope, margin_ns, sigma_offset_ns, sigma_slope, points,
    pure_share float64, reason uint8 (FitReason); .valid bool.

In the manager (`cwdp.shared.clocksync.graph.solve`, `.timeline.track`):

    tracks = Tracks(n_hosts)                                  # slots; .resize(n), .clear(slots)
    solution = tracks.step(GraphEdges(src, dst, path, fits))  # newest valid-or-not fits of all agents
    clocks = tracks.clocks()                                  # HostClocks, arrays [n_hosts]

    Solution: .liar bool [hosts], .rejected bool and .residual_ns float64 [fits], .inflation.
    HostClocks: ref_local_ns, offset_ns int64 + offset_frac_ns, drift, bound_ns, bound_growth (ns per
    second out of touch), settled bool (its drift may serve agents as a prior), state uint8 (HostState);
    per host "global = local + offset + drift * (local - ref_local)", which is
    `ClockLine(ref_local_ns, offset_ns, offset_frac_ns, drift)`.
"""

from cwdp.shared.clocksync._types import LONG_AGO, NOTICED_WITHIN_NS
from cwdp.shared.clocksync.edge.coded import Purity, pair_purity
from cwdp.shared.clocksync.edge.fit import EdgeFits, EdgePrior, FitReason, fit_edges
from cwdp.shared.clocksync.edge.kinks import (
    BEFORE_FLOOR_NS,
    Lines,
    against_before,
    any_early,
    find_bent,
    young_lines,
)
from cwdp.shared.clocksync.edge.memory import EdgeMemory
from cwdp.shared.clocksync.edge.samples import Exchanges, group_by_edge
from cwdp.shared.clocksync.edge.thin import nearest_to_floor
from cwdp.shared.clocksync.slew import ClockLine, slew

__all__ = [
    "BEFORE_FLOOR_NS",
    "LONG_AGO",
    "NOTICED_WITHIN_NS",
    "ClockLine",
    "EdgeFits",
    "EdgeMemory",
    "EdgePrior",
    "Exchanges",
    "FitReason",
    "Lines",
    "Purity",
    "against_before",
    "any_early",
    "find_bent",
    "fit_edges",
    "group_by_edge",
    "nearest_to_floor",
    "pair_purity",
    "slew",
    "young_lines",
]
