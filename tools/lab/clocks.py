"""The clocks of a lab's hosts, drawn from its seed; each lies in a file that the host's agent reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cwdp.shared.testclock import STEP_S, TestClock
from tools import clocks
from tools.lab.topology import LabSpec, Topology

STEPS = 1 << 15
"""36 minutes; then a clock begins anew."""

_MAX_OFFSET_NS = 3_000_000_000
_MAX_DRIFT_PPM = 50.0


def draw(spec: LabSpec, base_ns: int) -> Iterator[tuple[str, TestClock]]:
    """Every host and its clock: up to 3 s and 50 ppm off, of the kind that the spec names.

    Args:
        spec: its seed draws them.
        base_ns: the machine's CLOCK_MONOTONIC at their beginning.
    """
    for number, host in enumerate(Topology(spec).hosts):
        rng = np.random.default_rng((spec.seed, number))
        offset_ns = int(rng.integers(-_MAX_OFFSET_NS, _MAX_OFFSET_NS, endpoint=True))
        steps = 1 if spec.clocks == "steady" else STEPS
        drawn = clocks.draw(spec.clocks, steps, STEP_S, rng, drift_ppm=_MAX_DRIFT_PPM)
        yield (
            host,
            TestClock.from_frequencies(
                base_ns, offset_ns, drawn.oscillator, drawn.discipline, drawn.steps_ns
            ),
        )


def file(run_dir: Path, host: str) -> Path:
    """Where a host's clock lies, in the directory of its lab."""
    return run_dir / f"{host}.clock.npz"


def write(spec: LabSpec, base_ns: int, run_dir: Path) -> None:
    """Draw every host's clock, and have it in its file."""
    for host, clock in draw(spec, base_ns):
        clock.save(file(run_dir, host))


def describe(clock: TestClock, mono_ns: int) -> dict[str, Any]:
    """A clock at an instant of the machine's CLOCK_MONOTONIC: how far ahead of that, and how much faster.

    `discipline_ppb` is how much faster CLOCK_MONOTONIC runs than the oscillator, which is CLOCK_MONOTONIC_RAW.
    """
    oscillator, both = (curve.rate(mono_ns - clock.base_ns) for curve in (clock.oscillator, clock.clock))
    return {
        "base_ns": clock.base_ns,
        "offset_ns": clock.mono_ns(mono_ns) - mono_ns,
        "oscillator_ppb": oscillator * 1e9,
        "discipline_ppb": (both - oscillator) * 1e9,
    }
