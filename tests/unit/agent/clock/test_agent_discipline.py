"""Reading the kernel's clocks: as they are, late, and where the kernel refuses."""

import time

import pytest

from cwdp.agent.clock.discipline import Clocks
from cwdp.shared.testclock import TestClock


def test_the_kernels_clocks_are_read_at_one_instant() -> None:
    clocks = Clocks()
    before_ns = time.monotonic_ns()
    reading = clocks.read()
    assert reading is not None
    assert before_ns <= reading.mono_ns <= time.monotonic_ns()
    assert abs(reading.raw_ns - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)) < 10**9
    if reading.nominal is not None:
        assert clocks.source == "adjtimex"
        assert abs(reading.nominal) < 0.11


def test_where_adjtimex_is_refused_the_clocks_are_read_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clocks = Clocks()
    monkeypatch.setattr(clocks, "_adjtimex", lambda _timex: -1)
    for _ in range(3):
        reading = clocks.read()
        assert reading is not None
        assert reading.nominal is None
    assert clocks.source == "raw"
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("freq", "tick", "nominal"), [(0, 10_000, 0.0), (65_536, 10_000, 1e-6), (0, 9_000, -0.1)]
)
def test_the_kernels_word_of_its_frequency(
    monkeypatch: pytest.MonkeyPatch, freq: int, tick: int, nominal: float
) -> None:
    clocks = Clocks()
    monkeypatch.setattr(clocks, "_adjtimex", lambda _timex: 0)
    clocks._timex.freq, clocks._timex.tick = freq, tick
    reading = clocks.read()
    assert reading is not None
    assert reading.nominal == pytest.approx(nominal, abs=1e-15)


class SlowKernel:
    """Each reading of a clock takes so long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.takes_ns = 10**12, 25
        monkeypatch.setattr("time.clock_gettime_ns", self.read)

    def read(self, _which: int) -> int:
        self.now_ns += self.takes_ns
        return self.now_ns


def test_a_reading_that_took_long_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, clocks = SlowKernel(monkeypatch), Clocks()
    assert clocks.read() is not None
    kernel.takes_ns = 5_000
    assert clocks.read() is None
    kernel.takes_ns = 30
    assert clocks.read() is not None


def test_a_machine_that_has_become_slow_is_read_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, clocks = SlowKernel(monkeypatch), Clocks()
    clocks.read()
    kernel.takes_ns = 1_000
    assert any(clocks.read() is not None for _ in range(100))
    assert clocks.read() is not None


def test_in_a_lab_both_clocks_are_the_labs() -> None:
    now_ns = time.monotonic_ns()
    lab = Clocks(TestClock.constant(now_ns, 10**15, 0.0))
    reading = lab.read()
    assert reading is not None
    for shown_ns in (reading.mono_ns, reading.raw_ns, lab.mono_ns(), lab.raw_ns()):
        assert 10**15 - 10**12 < shown_ns - now_ns < 10**15 + 10**12
