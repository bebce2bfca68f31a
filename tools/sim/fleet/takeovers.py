"""What a fleet's clocks and their bounds are worth while nobody leads, and once another manager does."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tools.clocks import ClockKind
from tools.sim.clocks.manoeuvres import of_kind, with_jump
from tools.sim.fleet.probes import FleetOptions, Floats
from tools.sim.fleet.simulation import FleetResult, FleetSimulation

SETTLED_S, LED_UNTIL_S, WITHIN_S, FOLLOWED_S = 12.0, 20.0, 1.0, 30.0
"""The first manager goes within a second of the second, the other one is followed for the last."""

SINCE_S = (0.0, 1.5, 3.0, 5.0, 10.0, FOLLOWED_S)
JUMP_NS = 1e6
ALL, JUMPS, OTHERS = slice(None), slice(1), slice(1, None)


@dataclass(frozen=True, slots=True)
class TakeoverFigures:
    """Readings of all hosts that have a clock, over many fleets.

    Attributes:
        case: `stood_by`, the other manager has heard the hosts before it leads; `led_before`, it begins to hear them then;
            `jumps`, one host whose clock jumps by 1 ms while nobody leads, `its_peers` all but that one.
        phase: `led`, `silent`, or the seconds since the other manager leads.
        outside: share of readings at which the truth was outside the bound.
    """

    case: str
    phase: str
    hosts: int
    error_p50_ns: float
    error_p99_ns: float
    bound_p50_ns: float
    bound_p90_ns: float
    outside: float


def takeover_figures(
    seeds: range, *, hosts: int, silent_s: float, clocks: ClockKind
) -> Iterator[TakeoverFigures]:
    """Case by case, phase by phase; nobody leads for `silent_s`."""
    for stood_by, jump_ns, whose in (
        (True, 0.0, {"stood_by": ALL}),
        (False, 0.0, {"led_before": ALL}),
        (True, JUMP_NS, {"jumps": JUMPS, "its_peers": OTHERS}),
    ):
        runs = [_run(hosts, silent_s, clocks, seed, stood_by=stood_by, jump_ns=jump_ns) for seed in seeds]
        for case, some in whose.items():
            for phase, begin_s, end_s in _phases(silent_s):
                parts = [_part(result, some, gone_s + begin_s, gone_s + end_s) for result, gone_s in runs]
                yield _figures(case, phase, hosts, *np.concatenate(parts, axis=1))


def _phases(silent_s: float) -> Iterator[tuple[str, float, float]]:
    """Names, and from when to when since the first manager has gone."""
    yield "led", SETTLED_S - LED_UNTIL_S, 0.0
    yield "silent", 0.0, silent_s
    for begin_s, end_s in pairwise(SINCE_S):
        yield f"{begin_s:g} to {end_s:g} s", silent_s + begin_s, silent_s + end_s


def _run(
    hosts: int, silent_s: float, clocks: ClockKind, seed: int, *, stood_by: bool, jump_ns: float
) -> tuple[FleetResult, float]:
    """One fleet, and when its first manager goes."""
    gone_s = LED_UNTIL_S + float(np.random.default_rng((seed, 3)).uniform(0, WITHIN_S))
    comes_s = gone_s + silent_s
    options = FleetOptions(hosts=hosts, peers=min(4, hosts - 1), seconds=comes_s + FOLLOWED_S, seed=seed)
    manoeuvre = with_jump(of_kind(clocks), jump_ns, gone_s + silent_s / 2)
    simulation = FleetSimulation(options, manoeuvre, (comes_s,), silent_s=silent_s, stood_by=stood_by)
    return simulation.run(), gone_s


def _part(result: FleetResult, some: slice, from_s: float, to_s: float) -> Floats:
    """Absolute errors and bounds of some hosts between two times, where they have a clock: (2, readings)."""
    rows = (result.time_s >= from_s) & (result.time_s < to_s)
    error, bound = np.abs(result.error_ns[rows, some]), result.bound_ns[rows, some]
    claimed = ~np.isnan(bound)
    return np.stack((error[claimed], bound[claimed]))


def _figures(case: str, phase: str, hosts: int, error_ns: Floats, bound_ns: Floats) -> TakeoverFigures:
    error_p50, error_p99 = np.quantile(error_ns, (0.5, 0.99))
    bound_p50, bound_p90 = np.quantile(bound_ns, (0.5, 0.9))
    return TakeoverFigures(
        case,
        phase,
        hosts,
        float(error_p50),
        float(error_p99),
        float(bound_p50),
        float(bound_p90),
        float(np.mean(error_ns > bound_ns)),
    )
