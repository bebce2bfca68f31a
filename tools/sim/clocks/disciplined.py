"""Clocks whose discipline the kernel tells, as agents see them: CLOCK_MONOTONIC_RAW, but for what they notice late."""

from dataclasses import dataclass

import numpy as np

from cwdp.agent.clock.timebase import Reading, TimeBase
from cwdp.agent.clock.window import stamped_outside
from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, Bool
from tools.sim.clocks.manoeuvres import Manoeuvre
from tools.sim.clocks.oscillators import GRID_S, Oscillators, between_grid

LOOK_S = 0.02
READING_NOISE_NS = 3.0


@dataclass(frozen=True, slots=True)
class Disciplined(Oscillators):
    """What hosts stamp with: the oscillators, with what their time bases leave of the discipline.

    Attributes:
        discipline_ns: float64 [hosts, grid + 1], CLOCK_MONOTONIC less CLOCK_MONOTONIC_RAW by each grid point.
        first_s: float64 [hosts], when each host looks at its clocks first.
        ref_ns, ahead_ns, rate: float64 [hosts, looks], the line that each look left: how much it takes off a
            CLOCK_MONOTONIC, at ref, and per ns.
        changes: per host, what its looks found: (true time in s, the stretch of local time that may be off).
    """

    discipline_ns: F64
    first_s: F64
    ref_ns: F64
    ahead_ns: F64
    rate: F64
    changes: tuple[tuple[tuple[float, tuple[int, int]], ...], ...]

    def local(self, host: I64, true_ns: F64) -> tuple[I64, F64]:
        """As for oscillators."""
        # Not by super(): a dataclass with slots is another class than the one that this is defined in.
        whole, rest = Oscillators.local(self, host, true_ns)
        look = (true_ns / NS_PER_S - self.first_s[host]) / LOOK_S
        look = np.clip(look.astype(np.int64), 0, self.ref_ns.shape[1] - 1)
        discipline = between_grid(self.discipline_ns, host, true_ns)
        mono = (whole - self.offset_ns[host]) + rest + discipline
        left = (
            discipline + self.ahead_ns[host, look] + self.rate[host, look] * (mono - self.ref_ns[host, look])
        )
        return whole, rest + left

    def right(self, host: I64, stamps_ns: I64, now_s: float) -> Bool:
        """As for oscillators."""
        right = np.ones(stamps_ns.shape[1:], bool)
        for i, whose in enumerate(host.tolist()):
            for found_s, stretch_ns in self.changes[whose]:
                if found_s <= now_s:
                    right[i] &= stamped_outside(stamps_ns[:, i], *stretch_ns)
        return right


def as_stamped(
    clocks: Oscillators, manoeuvre: Manoeuvre | None, seed: int, rng: np.random.Generator
) -> Oscillators:
    """What hosts stamp with when that happens to their clocks, which `seed` draws; None for nothing."""
    if manoeuvre is None:
        return clocks
    hosts, steps = clocks.phase_ns.shape[0], clocks.phase_ns.shape[1] - 1
    happens = manoeuvre(hosts, steps, GRID_S, np.random.default_rng((seed, 1)))
    moved = clocks.with_frequencies(happens.oscillator, happens.steps_ns)
    return disciplined(moved, happens.discipline, rng) if happens.discipline.any() else moved


def disciplined(clocks: Oscillators, frequency: F64, rng: np.random.Generator) -> Disciplined:
    """Have clocks be disciplined by float64 [hosts, grid], which the kernel tells, and looked at every 20 ms."""
    phase = np.zeros_like(clocks.phase_ns)
    np.cumsum(frequency * GRID_S * NS_PER_S, axis=1, out=phase[:, 1:])
    hosts, looks = len(frequency), int(frequency.shape[1] * GRID_S / LOOK_S) - 1
    first_s = rng.uniform(0, LOOK_S, hosts)
    ref_ns, ahead_ns, rate = np.zeros((3, hosts, looks))
    changes = []
    for host in range(hosts):
        found, offset_ns = [], int(clocks.offset_ns[host])
        times_s = first_s[host] + np.arange(looks) * LOOK_S
        whose = np.full(looks, host)
        whole, rest = clocks.local(whose, times_s * NS_PER_S)
        raw = (whole - clocks.offset_ns[host]) + rest
        mono = raw + between_grid(phase, whose, times_s * NS_PER_S) + rng.normal(0, READING_NOISE_NS, looks)
        nominal = frequency[host, np.minimum((times_s / GRID_S).astype(np.int64), frequency.shape[1] - 1)]
        base, constant = TimeBase(), None
        for look in range(looks):
            change = base.observe(Reading(round(mono[look]), round(raw[look]), float(nominal[look])))
            if change is not None:
                stretch = (change.from_local_ns + offset_ns, change.to_local_ns + offset_ns)
                found.append((float(times_s[look]), stretch))
            line = base.line
            constant = base.ahead_of_raw_ns if constant is None else constant
            ref_ns[host, look], rate[host, look] = line.ref_mono_ns, line.rate
            ahead_ns[host, look] = line.ahead_ns - (constant or 0)
        changes.append(tuple(found))
    return Disciplined(
        clocks.offset_ns,
        clocks.phase_ns,
        clocks.jumped_ns,
        discipline_ns=phase,
        first_s=first_s,
        ref_ns=ref_ns,
        ahead_ns=ahead_ns,
        rate=rate,
        changes=tuple(changes),
    )
