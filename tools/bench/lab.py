"""Figures of the default lab on real packets: clock error, bound, cold start."""

from collections.abc import Iterator

from tools.bench.figures import Figure, figure
from tools.experiments.sync import run_sync

LOADS = ((0.0, "idle", 50.0), (0.8, "loaded", 100.0))
SECONDS = 60.0
WIDEST_BOUND = 5.0
MOST_OUTSIDE = 0.001
COLD_START_S = 3.0


def figures() -> Iterator[Figure]:
    """Run `cwdp lab run sync` idle and at 80 % load."""
    for share, label, target_ns in LOADS:
        result = run_sync(share, SECONDS)
        sent, every = result["load"]["sent"], result["all"]
        load = sent["measured_share"] if sent else 0.0
        reference = {"p50_ns": every["p50_ns"], "measured_load": round(load, 3), "samples": every["samples"]}
        yield figure(f"lab_clock_error_p99_{label}", every["p99_ns"], "ns", reference, target_ns)
        ratio = every["bound_p50_ns"] / every["p99_ns"]
        bound = {"bound_p50_ns": every["bound_p50_ns"], "p99_ns": every["p99_ns"]}
        yield figure(f"lab_clock_bound_over_p99_{label}", ratio, "ratio", bound, WIDEST_BOUND)
        yield figure(f"lab_clock_outside_bound_{label}", every["outside_share"], "share", bound, MOST_OUTSIDE)
        start = result["cold_start"]
        apart = {"clocks_apart_ns": start["offsets_ns"]}
        yield figure(f"lab_cold_start_to_1us_{label}", start["locked_s"], "s", apart, COLD_START_S)
