"""Clocks as hosts have them: an oscillator that nobody steers, and the discipline of CLOCK_MONOTONIC on top of it.

Frequencies are drawn on a grid of equal steps, for the lab and for the simulators alike. A random walk ends
where it began, so that the last step leads on to the first: a lab's clocks begin anew when they have come to an end.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

ClockKind = Literal["steady", "wander", "disciplined", "rough"]
KINDS: tuple[ClockKind, ...] = get_args(ClockKind)

PPM = 1e-6
WALK = 2e-9
"""Per sqrt(s)."""

SWING, SWING_PERIOD_S = (0.05 * PPM, 0.2 * PPM), (120.0, 600.0)
UPDATE_S, UPDATE = (8.0, 64.0), 1.0 * PPM
SLEW_EVERY_S, SLEW_S, SLEW = 180.0, (2.0, 10.0), (20 * PPM, 500 * PPM)
KINK_EVERY_S, KINK, KINKED = 90.0, (1 * PPM, 50 * PPM), 50 * PPM
STEP_EVERY_S, STEP_NS = 180.0, 1e6

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """One host's clock, step by step.

    Attributes:
        oscillator: rate less one of what CLOCK_MONOTONIC_RAW shows, float64 [steps].
        discipline: what CLOCK_MONOTONIC's rate has on top of that, float64 [steps]; the kernel tells it.
        steps_ns: by how much both jump at the beginning of a step, float64 [steps].
    """

    oscillator: Floats
    discipline: Floats
    steps_ns: Floats


def draw(
    kind: ClockKind, steps: int, step_s: float, rng: np.random.Generator, *, drift_ppm: float = 50.0
) -> Drawn:
    """A clock that drifts by up to `drift_ppm` either way.

    `steady` does only that. `wander` adds a random walk of frequency and a swing with temperature; `disciplined` what
    chrony does, a new frequency every 8 to 64 s and a slew now and then; `rough` changes of 1 to 50 ppm and steps of up
    to 1 ms that nobody announces.
    """
    oscillator = np.full(steps, rng.uniform(-drift_ppm, drift_ppm) * PPM)
    discipline, steps_ns = np.zeros(steps), np.zeros(steps)
    if kind != "steady":
        oscillator += walk(steps, step_s, rng, WALK) + swing(steps, step_s, rng)
    if kind in ("disciplined", "rough"):
        discipline = updates(steps, step_s, rng) - oscillator.mean() + slews(steps, step_s, rng)
    if kind == "rough":
        oscillator += kinks(steps, step_s, rng)
        when = moments(steps, step_s, rng, STEP_EVERY_S)
        steps_ns[when] = rng.uniform(-STEP_NS, STEP_NS, len(when))
    return Drawn(oscillator, discipline, steps_ns)


def walk(steps: int, step_s: float, rng: np.random.Generator, per_sqrt_s: float) -> Floats:
    """A random walk that ends where it began."""
    free = rng.normal(0, per_sqrt_s * np.sqrt(step_s), steps).cumsum()
    bridged: Floats = free - free[-1] * np.arange(1, steps + 1) / steps
    return bridged


def swing(steps: int, step_s: float, rng: np.random.Generator) -> Floats:
    """A swing with temperature, of a whole number of periods if there is time for one."""
    wanted_s = rng.uniform(*SWING_PERIOD_S)
    turns = (
        max(1, round(steps * step_s / wanted_s)) if steps * step_s >= wanted_s else steps * step_s / wanted_s
    )
    angle = 2 * np.pi * (turns * np.arange(steps) / steps + rng.random())
    return np.asarray(rng.uniform(*SWING) * np.sin(angle))


def updates(
    steps: int,
    step_s: float,
    rng: np.random.Generator,
    every_s: tuple[float, float] = UPDATE_S,
    sigma: float = UPDATE,
) -> Floats:
    """A frequency that is set anew again and again, each time as far from its mean as N(0, sigma)."""
    most = int(steps * step_s / every_s[0]) + 2
    begins_s = np.cumsum(rng.uniform(*every_s, most)) - rng.uniform(0, every_s[0])
    turn = np.searchsorted(begins_s, np.arange(steps) * step_s, side="right")
    return np.asarray(rng.normal(0, sigma, most + 1)[turn])


def slews(steps: int, step_s: float, rng: np.random.Generator) -> Floats:
    """Nothing but now and then tens to hundreds of ppm for seconds, as an offset is worked off."""
    slewed = np.zeros(steps)
    for begin in moments(steps, step_s, rng, SLEW_EVERY_S):
        end = begin + max(1, round(rng.uniform(*SLEW_S) / step_s))
        slewed[begin:end] = rng.choice((-1, 1)) * _log_uniform(rng, SLEW)
    return slewed


def kinks(steps: int, step_s: float, rng: np.random.Generator) -> Floats:
    """Sudden changes of frequency that last, back and forth about the mean."""
    kinked = np.zeros(steps)
    for begin in moments(steps, step_s, rng, KINK_EVERY_S):
        by = rng.choice((-1, 1)) * _log_uniform(rng, KINK)
        kinked[begin:] = kinked[begin] + (by if abs(kinked[begin] + by) <= KINKED else -by)
    return kinked


def moments(steps: int, step_s: float, rng: np.random.Generator, every_s: float) -> NDArray[np.intp]:
    """The steps at which something happens that happens every so often in the mean."""
    return np.flatnonzero(rng.random(steps) < step_s / every_s)


def _log_uniform(rng: np.random.Generator, between: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(between))))
