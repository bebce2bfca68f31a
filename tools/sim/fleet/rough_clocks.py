"""What a fleet makes of clocks that change: the figures of each manoeuvre, beside what steady clocks give in the same run."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tools.sim.clocks.manoeuvres import Manoeuvre, disciplined, everyone, kinks, of_kind, temperature
from tools.sim.fleet.probes import FleetOptions, Floats
from tools.sim.fleet.simulation import SAMPLE_S, FleetResult, FleetSimulation

SETTLED_S = 15.0
KINKS_S = (20.0, 36.0, 52.0)
KINK_SECONDS = 66.0
LONG_S, AFTER_FIRST_MINUTE_S = 130.0, 60.0


@dataclass(frozen=True, slots=True)
class KinkFigures:
    """Steps of frequency at one host, unannounced; the median and the worst of all steps.

    Attributes:
        steps: how many.
        peak_us_p50, peak_us_max: largest error.
        outside_s_p50, outside_s_max: how long the truth was outside the bound while the host claimed to be synced.
        after_3_s_ns: largest 99th percentile of 3 to 5 s after a step.
        after_8_s_ns: median of the 99th percentiles of 8 to 12 s after a step.
        steady_p99_ns: all hosts, before the first step.
        others_ratio: the other hosts' p99 from then on, over that.
    """

    ppm: float
    steps: int
    peak_us_p50: float
    peak_us_max: float
    outside_s_p50: float
    outside_s_max: float
    after_3_s_ns: float
    after_8_s_ns: float
    steady_p99_ns: float
    others_ratio: float


@dataclass(frozen=True, slots=True)
class ManoeuvreFigures:
    """All hosts, over the time in which they claim to be synced.

    Attributes:
        steady_p99_ns: with steady clocks, in the same fleet at the same times.
        outside: share of claims that the truth was outside of.
        synced: share of hosts and moments with a claim.
    """

    name: str
    hosts: int
    seed: int
    p50_ns: float
    p99_ns: float
    steady_p99_ns: float
    bound_p50_ns: float
    outside: float
    synced: float


def kink_figures(ppm: float, hosts: int, seeds: range) -> KinkFigures:
    """Three steps of so many ppm at one host, for each seed at other moments of the ticks."""
    rows, steady, others = [], [], []
    for seed in seeds:
        at_s = tuple(KINKS_S + np.random.default_rng((seed, 2)).uniform(0, 0.5, len(KINKS_S)).round(2))
        options = FleetOptions(hosts=hosts, seconds=KINK_SECONDS, seed=seed)
        result = FleetSimulation(options, kinks(ppm, at_s)).run()
        before = (result.time_s > SETTLED_S) & (result.time_s < KINKS_S[0])
        steady.append(_p99(result.error_ns[before]))
        others.append(_p99(result.error_ns[result.time_s >= KINKS_S[0], 1:]))
        rows += [_after_kink(result, moment_s) for moment_s in at_s]
    peak, outside, after_3_s, after_8_s = np.array(rows).T
    return KinkFigures(
        ppm,
        len(rows),
        float(np.median(peak)) / 1e3,
        float(peak.max()) / 1e3,
        float(np.median(outside)),
        float(outside.max()),
        float(after_3_s.max()),
        float(np.median(after_8_s)),
        float(np.median(steady)),
        float(np.median(others) / np.median(steady)),
    )


def manoeuvre_figures(hosts: int, seeds: range) -> Iterator[ManoeuvreFigures]:
    """Each manoeuvre in turn."""
    power_s = AFTER_FIRST_MINUTE_S + 0.5
    manoeuvres: dict[str, Manoeuvre] = {
        "announced_1ppm_and_slew": disciplined(1.0, 500.0, 80.0),
        "everyone_1ppm_every_16s": everyone(1.0, 16.0),
        "walk_1e-8_swing_2ppm_2min": temperature(1e-8, 2.0, 120.0),
        "some_at_once": kinks(1.0, (power_s,), share=0.05),
        "all_but_one_at_once": kinks(1.0, (power_s,), share=1 - 1 / hosts),
        "rough": of_kind("rough"),
    }
    for seed in seeds:
        options = FleetOptions(hosts=hosts, seconds=LONG_S, seed=seed)
        steady = FleetSimulation(options).run().between(AFTER_FIRST_MINUTE_S, LONG_S)
        for name, manoeuvre in manoeuvres.items():
            found = FleetSimulation(options, manoeuvre).run().between(AFTER_FIRST_MINUTE_S, LONG_S)
            yield ManoeuvreFigures(
                name,
                hosts,
                seed,
                found.p50_ns,
                found.p99_ns,
                steady.p99_ns,
                found.bound_p50_ns,
                found.outside,
                found.synced,
            )


def _after_kink(result: FleetResult, at_s: float) -> tuple[float, float, float, float]:
    """Peak, seconds outside the bound while synced, and the p99 3 to 5 and 8 to 12 s after: of host 0."""
    rows = (result.time_s >= at_s) & (result.time_s < at_s + 12)
    since_s, error = result.time_s[rows] - at_s, np.abs(result.error_ns[rows, 0])
    outside = (error > result.bound_ns[rows, 0]) & result.synced[rows, 0]
    return (
        float(error.max()),
        float(np.count_nonzero(outside) * SAMPLE_S),
        _p99(error[(since_s >= 3) & (since_s < 5)]),
        _p99(error[since_s >= 8]),
    )


def _p99(error_ns: Floats) -> float:
    return float(np.nanquantile(np.abs(error_ns), 0.99))
