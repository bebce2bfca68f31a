"""What experiments share: a lab that is up for a while, traffic on it, and the truth sampled."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cwdp.cli.output import progress
from cwdp.errors import LabError
from tools.lab import lifecycle, state
from tools.lab.fleet.processes import Fleet
from tools.lab.lab import Lab
from tools.lab.topology import LabSpec
from tools.lab.truth.clocks import Reading, Truth
from tools.waiting import wait_for

SAMPLE_INTERVAL_S = 0.05
LOCKED_NS = 1_000.0
START_TIMEOUT_S = 60.0
SETTLE_S = 10.0


@contextmanager
def lab_for_run(name: str, spec: LabSpec | None) -> Iterator[Lab]:
    """A lab that is up already under `name`, or one raised from `spec` and taken away at the end.

    Raises:
        LabError: it cannot be raised, or `spec` is None and there is none.
    """
    if state.load(name) is not None or spec is None:
        yield Lab.open(name)
        return
    progress(f"raising the lab {name!r}: {spec.describe()}")
    lifecycle.up(spec)
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)
        progress(f"took the lab {name!r} away")


class Traffic:
    """The load generator in a process of its own, with these arguments; as a context, stopped on exit."""

    def __init__(self, lab: Lab, share: float, seconds: float, *arguments: str) -> None:
        self._share = share
        self._rate_bps = lab.spec.rate_bps * len(lab.hosts) * lab.spec.nics_per_host
        argv = [sys.executable, "-m", "tools.lab.traffic.load", "--name", lab.name]
        argv += ["--load", str(share), "--seconds", str(seconds), *arguments]
        root = Path(__file__).resolve().parents[3]
        self._process = (
            subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=root)
            if share
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def result(self) -> dict[str, Any] | None:
        """Wait for the end; what was sent, with the share of the hosts' links that it filled.

        Raises:
            LabError: the generator failed.
        """
        if self._process is None:
            return None
        out, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise LabError("the load generator failed", "its own words are above")
        sent: dict[str, Any] = json.loads(out)
        return sent | {"measured_share": sent["sent_bytes"] * 8 / sent["seconds"] / self._rate_bps}


@dataclass(frozen=True)
class ColdStart:
    """How the fleet came up, in seconds.

    Attributes:
        first_probe_s: from starting the processes to the first probe.
        locked_s: from the first probe until every host was within a microsecond.
        offsets_ns: how far apart the clocks were, the largest minus the smallest.
    """

    first_probe_s: float
    locked_s: float
    offsets_ns: int


def wait_for_lock(fleet: Fleet, truth: Truth) -> ColdStart:
    """Watch a fleet that has just been started.

    Raises:
        LabError: it did not lock in a minute.
    """
    started = time.monotonic()
    _until(lambda: truth.probes_sent() > 0, fleet, "the first probe")
    probing = time.monotonic()
    _until(
        lambda: _all_within(truth.read(time.monotonic_ns()), LOCKED_NS),
        fleet,
        "all clocks within a microsecond",
    )
    locked = time.monotonic()
    now_ns = time.monotonic_ns()
    offsets = [host.clock.mono_ns(now_ns) for host in fleet.lab.hosts]
    return ColdStart(probing - started, locked - probing, max(offsets) - min(offsets))


def sample(
    truth: Truth, seconds: float, fleet: Fleet, each: Callable[[Reading], None] = lambda _: None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read all clocks again and again, at random moments.

    Returns:
        Errors and claimed bounds in ns, shape (samples, hosts); NaN where a host was not synced.
    """
    rng = np.random.default_rng()
    readings: list[Reading] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(SAMPLE_INTERVAL_S * rng.uniform(0.5, 1.5))
        reading = truth.read(time.monotonic_ns())
        readings.append(reading)
        each(reading)
    fleet.check()
    return np.array([r.error_ns for r in readings]), np.array([r.bound_ns for r in readings])


def _until(condition: Callable[[], bool], fleet: Fleet, what: str) -> None:
    if not wait_for(fleet.checked(condition), START_TIMEOUT_S, poll_s=0.02):
        raise LabError(
            f"waited {START_TIMEOUT_S:.0f} s for {what}", f"read the logs: {fleet.lab.run_dir}/*.log"
        )


def _all_within(reading: Reading, limit_ns: float) -> bool:
    return bool(np.abs(reading.error_ns).max() <= limit_ns)
