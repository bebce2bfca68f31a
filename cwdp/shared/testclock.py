"""The clock of its own that a host of the lab has: an oscillator, and what disciplines CLOCK_MONOTONIC on top of it.

Both are curves of frequency in steps of 2^26 ns (67 ms) of the machine's CLOCK_MONOTONIC, a power of two of them, which
come again and again: a pure function of the machine's clock. The dataplane computes the same, in the same integers
(`bpf/clock.h`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cwdp.errors import ConfigError

STEP_BITS = 26
STEP_NS = 1 << STEP_BITS
STEP_S = STEP_NS * 1e-9
RATE_BITS, PHASE_BITS = 40, 16
RATE_ONE, PHASE_ONE = 1 << RATE_BITS, 1 << PHASE_BITS
STEP_PHASE = 1 << STEP_BITS + PHASE_BITS - RATE_BITS
"""By how much a rate of 2^-40 moves the phase in a step, in 2^-16 ns."""

MOST_RATE = 0.1
FREQUENCY_UNIT = 1e-6 / 65_536
"""In which a kernel keeps the frequency of CLOCK_MONOTONIC (adjtimex(2))."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Curve:
    """How far a clock is ahead of the machine's, and how much faster it is.

    Attributes:
        rate_q40: rate less one in each step, in 2^-40, int64 [steps].
        phase_q16: how far ahead at the beginning of each step, in 2^-16 ns, int64 [steps].
        cycle_q16: what the phase grows by in all steps.

    Args:
        rate_q40: as above; the number of steps is a power of two.
        jumps_q16: by how much the phase jumps at the beginning of each step, int64 [steps].
    """

    def __init__(self, rate_q40: Ints, jumps_q16: Ints) -> None:
        steps = len(rate_q40)
        if not steps or steps & (steps - 1) or rate_q40.shape != jumps_q16.shape:
            raise ValueError("a curve has a power of two of steps, and a jump for each")
        if np.abs(rate_q40).max() > MOST_RATE * RATE_ONE:
            raise ValueError(f"no clock is off by a rate of more than {MOST_RATE}")
        self.rate_q40, self._jumps_q16 = rate_q40, jumps_q16
        ends_q16 = (rate_q40 * STEP_PHASE + jumps_q16).cumsum()
        self.phase_q16: Ints = ends_q16 - rate_q40 * STEP_PHASE
        self.cycle_q16 = int(ends_q16[-1])
        self.steps_log2 = steps.bit_length() - 1

    @property
    def jumps_q16(self) -> Ints:
        """As given."""
        return self._jumps_q16

    def ahead_ns(self, since_ns: int) -> int:
        """How far it is ahead, so long after the curve's beginning; rounded down."""
        number = since_ns >> STEP_BITS
        index, past_ns = number & (len(self.rate_q40) - 1), since_ns & (STEP_NS - 1)
        phase_q16 = int(self.phase_q16[index]) + (number >> self.steps_log2) * self.cycle_q16
        phase_q16 += (past_ns * int(self.rate_q40[index])) >> (RATE_BITS - PHASE_BITS)
        return phase_q16 >> PHASE_BITS

    def rate(self, since_ns: int) -> float:
        """Its rate less one."""
        return int(self.rate_q40[(since_ns >> STEP_BITS) & (len(self.rate_q40) - 1)]) / RATE_ONE


@dataclass(frozen=True, eq=False)
class TestClock:
    """A host's clocks; "the machine's" are the real ones of the machine that the lab runs on.

    Attributes:
        base_ns: the machine's CLOCK_MONOTONIC at the curves' beginning.
        offset_ns: how far ahead of that both clocks were.
        oscillator: what CLOCK_MONOTONIC_RAW shows.
        clock: what CLOCK_MONOTONIC shows, which the oscillator drives.
    """

    base_ns: int
    offset_ns: int
    oscillator: Curve
    clock: Curve

    __test__ = False

    def __post_init__(self) -> None:
        if self.base_ns <= 0:
            raise ValueError("base_ns must be positive")

    @classmethod
    def from_frequencies(
        cls, base_ns: int, offset_ns: int, oscillator: Floats, discipline: Floats, steps_ns: Floats
    ) -> Self:
        """A clock from frequencies on the grid.

        Args:
            base_ns: as the attribute.
            offset_ns: as the attribute.
            oscillator: its rate less one in each step, shape [steps].
            discipline: what CLOCK_MONOTONIC's rate has on top, shape [steps].
            steps_ns: by how much the oscillator jumps at each step's beginning, shape [steps].
        """
        jumps_q16 = np.rint(steps_ns * PHASE_ONE).astype(np.int64)
        raw_q40, on_top_q40 = (np.rint(rate * RATE_ONE).astype(np.int64) for rate in (oscillator, discipline))
        return cls(base_ns, offset_ns, Curve(raw_q40, jumps_q16), Curve(raw_q40 + on_top_q40, jumps_q16))

    @classmethod
    def constant(cls, base_ns: int, offset_ns: int, drift_ppb: float) -> Self:
        """A clock that only drifts."""
        nothing = np.zeros(1)
        return cls.from_frequencies(base_ns, offset_ns, np.array([drift_ppb * 1e-9]), nothing, nothing)

    def mono_ns(self, mono_ns: int) -> int:
        """What CLOCK_MONOTONIC shows here, the machine's showing `mono_ns`."""
        return mono_ns + self.offset_ns + self.clock.ahead_ns(mono_ns - self.base_ns)

    def raw_ns(self, mono_ns: int, raw_ns: int) -> int:
        """What CLOCK_MONOTONIC_RAW shows here, the machine's clocks showing `mono_ns` and `raw_ns`."""
        return raw_ns + self.offset_ns + self.oscillator.ahead_ns(mono_ns - self.base_ns)

    def nominal(self, mono_ns: int, nominal: float) -> float:
        """The rate of CLOCK_MONOTONIC over CLOCK_MONOTONIC_RAW less one that a kernel here would tell, in its units.

        Args:
            mono_ns: the machine's.
            nominal: what the machine's kernel tells.
        """
        since_ns = mono_ns - self.base_ns
        mono = (1 + nominal) * (1 + self.clock.rate(since_ns))
        exact = mono / (1 + (1 + nominal) * self.oscillator.rate(since_ns)) - 1
        return round(exact / FREQUENCY_UNIT) * FREQUENCY_UNIT

    def save(self, path: Path) -> None:
        """Write it to a file that `load` reads."""
        with path.open("wb") as file:
            np.savez(
                file,
                ahead=np.array([self.base_ns, self.offset_ns]),
                oscillator_q40=self.oscillator.rate_q40,
                clock_q40=self.clock.rate_q40,
                jumps_q16=self.clock.jumps_q16,
            )


def load(path: Path) -> TestClock:
    """Read the clock that was saved in a file.

    Raises:
        ConfigError: there is no such file, or it is of something else.
    """
    try:
        with np.load(path, allow_pickle=False) as found:
            base_ns, offset_ns = found["ahead"].tolist()
            jumps_q16 = found["jumps_q16"]
            oscillator, clock = (Curve(found[f"{name}_q40"], jumps_q16) for name in ("oscillator", "clock"))
            return TestClock(base_ns, offset_ns, oscillator, clock)
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{path} is not the clock of a host of a lab: {error}", "take the lab down and raise it again"
        ) from error
