"""Reads both clocks of the kernel, and what disciplines one of them; nothing is changed."""

import ctypes
import logging
import os
import time

from cwdp.agent.clock.timebase import Reading
from cwdp.shared.bus.clocks import DisciplineSource
from cwdp.shared.testclock import FREQUENCY_UNIT, TestClock

TRIES = 9
WIDE_FACTOR, WIDE_NS = 2, 50
WIDER = 1.05
TICK_US = 10_000

_log = logging.getLogger("cwdp.agent")


class _Timex(ctypes.Structure):
    """`struct timex` (adjtimex(2)), as far as it is read here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("rest", ctypes.c_byte * 128),
    )


class Clocks:
    """Both clocks of this host.

    Attributes:
        source: what can be read of them.

    Args:
        test: a clock of its own, in a lab: it stands on the machine's, whose discipline is there too.
    """

    def __init__(self, test: TestClock | None = None) -> None:
        self.source: DisciplineSource = "adjtimex"
        self._test = test
        self._timex = _Timex()
        self._pointer = ctypes.byref(self._timex)
        self._adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
        self._narrowest_ns = float("inf")

    def read(self) -> Reading | None:
        """One look at both; None where they cannot be read, or not at one instant because others had the processor."""
        if self.source == "none":
            return None
        nominal = self._nominal()
        try:
            width_ns, mono_ns, raw_ns = best_of_tries()
        except OSError as error:
            _log.warning("CLOCK_MONOTONIC_RAW is not readable error=%s", error.strerror)
            self.source = "none"
            return None
        if self._is_wide(width_ns):
            return None
        if self._test is None:
            return Reading(mono_ns, raw_ns, nominal)
        return Reading(
            self._test.mono_ns(mono_ns),
            self._test.raw_ns(mono_ns, raw_ns),
            None if nominal is None else self._test.nominal(mono_ns, nominal),
        )

    def mono_ns(self) -> int:
        """CLOCK_MONOTONIC."""
        mono_ns = time.monotonic_ns()
        return mono_ns if self._test is None else self._test.mono_ns(mono_ns)

    def raw_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW."""
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        return raw_ns if self._test is None else self._test.raw_ns(time.monotonic_ns(), raw_ns)

    def _is_wide(self, width_ns: int) -> bool:
        """Whether a reading took longer than most; what is always so in the end is not."""
        if width_ns <= self._narrowest_ns * WIDE_FACTOR + WIDE_NS:
            self._narrowest_ns = min(self._narrowest_ns, max(width_ns, 1))
            return False
        self._narrowest_ns *= WIDER
        return True

    def _nominal(self) -> float | None:
        """The rate of CLOCK_MONOTONIC over CLOCK_MONOTONIC_RAW less one, by the kernel's word."""
        if self.source != "adjtimex":
            return None
        if self._adjtimex(self._pointer) < 0:
            _log.warning("adjtimex is not to be had error=%s", os.strerror(ctypes.get_errno()))
            self.source = "raw"
            return None
        frequency, tick_us = int(self._timex.freq), int(self._timex.tick)
        return frequency * FREQUENCY_UNIT + (tick_us - TICK_US) / TICK_US


def best_of_tries() -> tuple[int, int, int]:
    """The narrowest reading of several: how long it took, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW; all ns."""
    read, mono, raw = time.clock_gettime_ns, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW
    best = (1 << 62, 0, 0)
    for _ in range(TRIES):
        before_ns, raw_ns, after_ns = read(mono), read(raw), read(mono)
        if after_ns - before_ns < best[0]:
            best = (after_ns - before_ns, (before_ns + after_ns) // 2, raw_ns)
    return best
