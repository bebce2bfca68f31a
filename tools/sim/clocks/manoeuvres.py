"""What happens to the frequencies of a fleet's clocks while it runs: steps that nobody announces, discipline that the kernel tells."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools import clocks
from tools.clocks import PPM, ClockKind

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frequencies:
    """What is added to the clocks' rates, by host and step of the grid.

    Attributes:
        oscillator: of CLOCK_MONOTONIC_RAW, and so of all, float64 [hosts, steps].
        discipline: of CLOCK_MONOTONIC alone, told by the kernel, float64 [hosts, steps].
        steps_ns: jumps of both at the beginning of a step, float64 [hosts, steps].
    """

    oscillator: Floats
    discipline: Floats
    steps_ns: Floats

    @classmethod
    def nothing(cls, hosts: int, steps: int) -> "Frequencies":
        """Clocks that go on as they are."""
        return cls(*(np.zeros((hosts, steps)) for _ in range(3)))


Manoeuvre = Callable[[int, int, float, np.random.Generator], Frequencies]
"""(hosts, steps, seconds a step, source of randomness) to what happens."""


def of_kind(kind: ClockKind) -> Manoeuvre:
    """As in a lab; the constant drift is left to the simulation."""

    def draw(hosts: int, steps: int, step_s: float, rng: np.random.Generator) -> Frequencies:
        drawn = [clocks.draw(kind, steps, step_s, rng, drift_ppm=0.0) for _ in range(hosts)]
        return Frequencies(
            np.stack([d.oscillator for d in drawn]),
            np.stack([d.discipline for d in drawn]),
            np.stack([d.steps_ns for d in drawn]),
        )

    return draw


def kinks(ppm: float, at_s: tuple[float, ...], share: float = 0.0) -> Manoeuvre:
    """Steps of frequency, up, down, up, at host 0 or at a share of all hosts at once; those by amounts of their own."""

    def draw(hosts: int, steps: int, step_s: float, rng: np.random.Generator) -> Frequencies:
        happens = Frequencies.nothing(hosts, steps)
        many = max(1, round(share * hosts))
        for number, moment_s in enumerate(at_s):
            by = ppm * PPM * (-1) ** number * (rng.normal(0, 1, many) if share else np.ones(1))
            happens.oscillator[:many, round(moment_s / step_s) :] += by[:, None]
        return happens

    return draw


def everyone(sigma_ppm: float, every_s: float) -> Manoeuvre:
    """Every host's frequency is another one every so often, N(0, sigma) from its mean, and nobody says so."""

    def draw(hosts: int, steps: int, step_s: float, rng: np.random.Generator) -> Frequencies:
        happens = Frequencies.nothing(hosts, steps)
        for host in range(hosts):
            turn = (np.arange(steps) * step_s + rng.uniform(0, every_s)) // every_s
            happens.oscillator[host] = rng.normal(0, sigma_ppm * PPM, int(turn[-1]) + 1)[turn.astype(np.intp)]
        return happens

    return draw


def disciplined(sigma_ppm: float, slew_ppm: float, slew_at_s: float, slew_s: float = 5.0) -> Manoeuvre:
    """As chrony does it: a new frequency every 8 to 64 s at every host, and one slew at host 0."""

    def draw(hosts: int, steps: int, step_s: float, rng: np.random.Generator) -> Frequencies:
        happens = Frequencies.nothing(hosts, steps)
        for host in range(hosts):
            happens.discipline[host] = clocks.updates(steps, step_s, rng, sigma=sigma_ppm * PPM)
        begin, end = round(slew_at_s / step_s), round((slew_at_s + slew_s) / step_s)
        happens.discipline[0, begin:end] += slew_ppm * PPM
        return happens

    return draw


def temperature(walk: float, swing_ppm: float, period_s: float) -> Manoeuvre:
    """A random walk of every host's frequency, and a swing with temperature that is `swing_ppm` from least to most."""

    def draw(hosts: int, steps: int, step_s: float, rng: np.random.Generator) -> Frequencies:
        happens = Frequencies.nothing(hosts, steps)
        for host in range(hosts):
            angle = 2 * np.pi * (np.arange(steps) * step_s / period_s + rng.random())
            happens.oscillator[host] = swing_ppm / 2 * PPM * np.sin(angle)
            happens.oscillator[host] += rng.normal(0, walk * np.sqrt(step_s), steps).cumsum()
        return happens

    return draw


def with_jump(manoeuvre: Manoeuvre, jump_ns: float, at_s: float) -> Manoeuvre:
    """The same, and host 0's clock jumps once."""

    def draw(hosts: int, steps: int, step_s: float, rng: np.random.Generator) -> Frequencies:
        happens = manoeuvre(hosts, steps, step_s, rng)
        happens.steps_ns[0, round(at_s / step_s)] += jump_ns
        return happens

    return draw
