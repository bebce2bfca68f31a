"""Clocks that change, announced and not, in simulation: errors, bounds and how soon they are found anew."""

from collections.abc import Iterator

from tools.bench.figures import Figure, figure
from tools.sim.fleet.rough_clocks import ManoeuvreFigures, kink_figures, manoeuvre_figures

HOSTS, SEEDS = 8, range(20, 25)
PEAKS_US = {1.0: 1.0, 10.0: 7.0, 50.0: 35.0}
MOST_P99_NS = {
    "announced_1ppm_and_slew": 100.0,
    "everyone_1ppm_every_16s": 700.0,
    "walk_1e-8_swing_2ppm_2min": 100.0,
}
MOST_OUTSIDE = {"rough": 0.005}


def figures() -> Iterator[Figure]:
    """Run every manoeuvre; about three minutes."""
    for ppm, peak_us in PEAKS_US.items():
        found = kink_figures(ppm, HOSTS, SEEDS)
        name = f"clock_kink_{ppm:g}ppm"
        steps = {"steps": found.steps, "p50": found.peak_us_p50}
        yield figure(f"{name}_peak_max", found.peak_us_max, "us", steps, peak_us)
        outside = {"p50": found.outside_s_p50, "target_p50": 0.5}
        yield figure(f"{name}_outside_while_synced_max", found.outside_s_max, "s", outside, 0.8)
        yield figure(f"{name}_p99_after_3s", found.after_3_s_ns, "ns", None, 200.0)
        steady = {"steady_p99_ns": found.steady_p99_ns}
        yield figure(f"{name}_p99_after_8s", found.after_8_s_ns, "ns", steady, 2 * found.steady_p99_ns)
        yield figure(f"{name}_others_p99_ratio", found.others_ratio, "ratio", steady, 1.2)
    for one in manoeuvre_figures(HOSTS, range(SEEDS.start, SEEDS.start + 1)):
        yield from _of(one)


def _of(found: ManoeuvreFigures) -> Iterator[Figure]:
    name = f"clock_{found.name}"
    beside = {"p50_ns": found.p50_ns, "steady_p99_ns": found.steady_p99_ns}
    yield figure(f"{name}_p99", found.p99_ns, "ns", beside, MOST_P99_NS.get(found.name))
    claim = {"bound_p50_ns": found.bound_p50_ns, "synced": found.synced}
    yield figure(f"{name}_outside", found.outside, "share", claim, MOST_OUTSIDE.get(found.name, 0.001))
