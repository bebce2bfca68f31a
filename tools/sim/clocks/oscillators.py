"""True clocks: what each host's clock shows at a true time, in steps of a grid."""

from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, Bool

GRID_S = 0.05
_TEMPERATURE_PERIOD_S = (60.0, 600.0)


@dataclass(frozen=True, slots=True)
class Oscillators:
    """Clocks with an offset, a drift, a random walk of frequency and a slow swing with temperature.

    Attributes:
        offset_ns: int64 [hosts], local - true at time 0.
        phase_ns: float64 [hosts, grid + 1], what drift has added by each grid point.
        jumped_ns: float64 [hosts, grid + 1], what jumps have added from each grid point on.
    """

    offset_ns: I64
    phase_ns: F64
    jumped_ns: F64

    @classmethod
    def random(
        cls,
        n_hosts: int,
        seconds: float,
        rng: np.random.Generator,
        *,
        drift_ppm: float = 50.0,
        wander: float = 1e-9,
        temperature: float = 0.0,
    ) -> "Oscillators":
        """Clocks up to 3 s apart.

        Args:
            n_hosts: how many.
            seconds: how long they must last.
            rng: source of randomness.
            drift_ppm: drifts are uniform within plus or minus this.
            wander: random walk of frequency, per sqrt(s).
            temperature: amplitude of the swing of frequency, with periods of one to ten minutes.
        """
        steps = int(np.ceil(seconds / GRID_S)) + 2
        time_s = np.arange(steps) * GRID_S
        frequency = rng.normal(0, wander * np.sqrt(GRID_S), (n_hosts, steps)).cumsum(axis=1)
        period = rng.uniform(*_TEMPERATURE_PERIOD_S, (n_hosts, 1))
        angle = 2 * np.pi * (time_s / period + rng.random((n_hosts, 1)))
        frequency += temperature * np.sin(angle) + rng.uniform(-drift_ppm, drift_ppm, (n_hosts, 1)) * 1e-6
        return cls.of_frequencies(rng.integers(-3 * 10**9, 3 * 10**9, n_hosts), frequency)

    @classmethod
    def of_frequencies(cls, offset_ns: I64, frequency: F64, steps_ns: F64 | None = None) -> "Oscillators":
        """Clocks of given frequencies less one, float64 [hosts, grid], that jump by float64 [hosts, grid] ns at grid points."""
        phase = np.zeros((len(frequency), frequency.shape[1] + 1))
        np.cumsum(frequency * GRID_S * NS_PER_S, axis=1, out=phase[:, 1:])
        jumped = np.zeros_like(phase)
        if steps_ns is not None:
            jumped[:, :-1] = np.cumsum(steps_ns, axis=1)
            jumped[:, -1] = jumped[:, -2]
        return cls(offset_ns, phase, jumped)

    def with_frequencies(self, frequency: F64, steps_ns: F64) -> "Oscillators":
        """These clocks with more on top, as in `of_frequencies`."""
        more = Oscillators.of_frequencies(self.offset_ns, frequency, steps_ns)
        return Oscillators(self.offset_ns, self.phase_ns + more.phase_ns, self.jumped_ns + more.jumped_ns)

    def local(self, host: I64, true_ns: F64) -> tuple[I64, F64]:
        """Local time of hosts at true times (float64 ns, hosts broadcast): whole and remainder ns."""
        jumped = self.jumped_ns[host, (true_ns / (GRID_S * NS_PER_S)).astype(np.int64)]
        phase = between_grid(self.phase_ns, host, true_ns) + jumped
        whole = np.rint(true_ns)
        return whole.astype(np.int64) + self.offset_ns[host], (true_ns - whole) + phase

    def stamp(self, host: I64, true_ns: F64) -> I64:
        """Local time rounded to whole ns."""
        whole, rest = self.local(host, true_ns)
        return whole + np.rint(rest).astype(np.int64)

    def right(self, host: I64, stamps_ns: I64, now_s: float) -> Bool:
        """Which probes their initiators do not know at `now_s` to have been stamped while their own clocks were off.

        Args:
            host: int64 [edges], initiators.
            stamps_ns: int64 [4, edges, probes].
            now_s: true time.

        Returns:
            Shape [edges, probes].
        """
        del host, now_s
        return np.ones(stamps_ns.shape[1:], bool)


def between_grid(values_ns: F64, host: I64, true_ns: F64) -> F64:
    """Values of hosts that are given on the grid, float64 [hosts, grid + 1], at true times (hosts broadcast)."""
    step = true_ns / (GRID_S * NS_PER_S)
    index = step.astype(np.int64)
    before = values_ns[host, index]
    return np.asarray(before + (step - index) * (values_ns[host, index + 1] - before))
