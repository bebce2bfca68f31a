"""Local time: CLOCK_MONOTONIC_RAW and a constant, whatever disciplines CLOCK_MONOTONIC, also while no agent is there."""

import time

import numpy as np
import pytest
from test_agent_clock import FakeMaps

from cwdp.agent.clock.discipline import Clocks
from cwdp.agent.clock.hostclock import LocalClock
from cwdp.dataplane.loading.loader import Settings
from cwdp.shared.testclock import TestClock

S = 1_000_000_000


class FakeClocks:
    """The kernel's clocks, standing in for `time`: CLOCK_MONOTONIC is ahead of the other one and runs faster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.raw_ns, self.rate = 1_000 * S, 20e-6
        self.begun_ns, self.ahead_ns = self.raw_ns, 5 * S
        self.raw_fails = False
        monkeypatch.setattr("time.clock_gettime_ns", self.read)
        monkeypatch.setattr("time.monotonic_ns", lambda: self.read(time.CLOCK_MONOTONIC))
        monkeypatch.setattr(Clocks, "_nominal", lambda clocks: None if clocks.source == "none" else self.rate)

    @property
    def mono_ns(self) -> int:
        return self.raw_ns + self.ahead_ns + round((self.raw_ns - self.begun_ns) * self.rate)

    def read(self, which: int) -> int:
        if which == time.CLOCK_MONOTONIC:
            return self.mono_ns
        if self.raw_fails:
            raise OSError(22, "Invalid argument")
        return self.raw_ns

    def discipline(self, rate: float) -> None:
        self.ahead_ns, self.begun_ns, self.rate = self.mono_ns - self.raw_ns, self.raw_ns, rate


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeClocks:
    return FakeClocks(monkeypatch)


def dataplane_ns(maps: FakeMaps, mono_ns: int) -> int:
    """What the dataplane's clock.h makes of the base line."""
    line = maps.read_base()
    delta_ns = mono_ns - int(line["ref_mono_ns"])
    return mono_ns + int(line["ahead_ns"]) + (delta_ns * int(line["rate_q40"]) >> 40)


def look_for(clock: LocalClock, kernel: FakeClocks, maps: FakeMaps, looks: int) -> None:
    for _ in range(looks):
        kernel.raw_ns += S // 50
        clock.look()
        if clock.has_moved():
            clock.write([maps])


def test_local_time_begins_as_the_monotonic_clock_and_goes_on_as_the_raw_one(kernel: FakeClocks) -> None:
    clock, maps = LocalClock(Settings()), FakeMaps()
    clock.take_up([maps])
    begun_ns, begun_raw_ns = clock.now_ns(), kernel.raw_ns
    assert begun_ns == kernel.mono_ns
    for rate in (20e-6, -300e-6, 1e-9):
        kernel.discipline(rate)
        look_for(clock, kernel, maps, 100)
        assert clock.now_ns() == begun_ns + kernel.raw_ns - begun_raw_ns
        assert dataplane_ns(maps, kernel.mono_ns) == pytest.approx(clock.now_ns(), abs=3)
    told = clock.discipline()
    assert (told.source, told.changes) == ("adjtimex", 2)
    assert told.frequency_ppb == pytest.approx(1.0, abs=1)
    assert told.changed_s_ago == pytest.approx(2.0, abs=0.05)


def test_what_stamps_were_off_by_is_told(kernel: FakeClocks) -> None:
    clock = LocalClock(Settings())
    clock.take_up([FakeMaps()])
    assert clock.look() is None
    before_ns = clock.now_ns()
    kernel.discipline(70e-6)
    kernel.raw_ns += S // 50
    change = clock.look()
    assert change is not None
    assert change.from_local_ns == before_ns
    assert change.to_local_ns >= clock.now_ns()
    assert change.error_ns == pytest.approx(1_000, abs=20)


def away_while_the_discipline_changes(kernel: FakeClocks, maps: FakeMaps) -> LocalClock:
    """The clock of an agent that then is dead for 10 s."""
    first = LocalClock(Settings())
    first.take_up([maps])
    look_for(first, kernel, maps, 200)
    kernel.discipline(-15e-6)
    kernel.raw_ns += 10 * S
    assert dataplane_ns(maps, kernel.mono_ns) != pytest.approx(first.now_ns(), abs=1_000)
    return first


def test_an_agent_that_is_started_again_goes_on_as_if_it_had_never_been_away(kernel: FakeClocks) -> None:
    maps, other = FakeMaps(), FakeMaps()
    first = away_while_the_discipline_changes(kernel, maps)
    second = LocalClock(Settings())
    second.take_up([other, maps])
    second.write([maps, other])
    assert second.now_ns() == first.now_ns()
    for each in (maps, other):
        assert dataplane_ns(each, kernel.mono_ns) == pytest.approx(first.now_ns(), abs=2)
        assert each.ahead_of_raw_ns == first.ahead_of_raw_ns


def test_an_agent_goes_on_from_the_base_line_where_an_older_one_has_kept_no_more(kernel: FakeClocks) -> None:
    maps, other = FakeMaps(), FakeMaps()
    away_while_the_discipline_changes(kernel, maps)
    maps.ahead_of_raw_ns = 0
    stale_ns = dataplane_ns(maps, kernel.mono_ns)
    second = LocalClock(Settings())
    second.take_up([other, maps])
    second.write([maps, other])
    assert second.now_ns() == pytest.approx(stale_ns, abs=2)
    for each in (maps, other):
        assert dataplane_ns(each, kernel.mono_ns) == pytest.approx(stale_ns, abs=2)


def test_without_a_dataplane_local_time_is_the_raw_clock(kernel: FakeClocks) -> None:
    clock = LocalClock(Settings())
    clock.take_up([])
    assert clock.ahead_of_raw_ns == 0
    assert clock.now_ns() == kernel.raw_ns


def test_without_the_raw_clock_local_time_is_the_monotonic_one(
    kernel: FakeClocks, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.raw_fails = True
    clock, maps = LocalClock(Settings()), FakeMaps()
    clock.take_up([maps])
    for _ in range(3):
        kernel.raw_ns += S
        assert clock.look() is None
        clock.write([maps])
        assert clock.now_ns() == kernel.mono_ns == dataplane_ns(maps, kernel.mono_ns)
    assert clock.ahead_of_raw_ns is None
    assert clock.discipline().source == "none"
    assert [record.getMessage() for record in caplog.records] == [
        "CLOCK_MONOTONIC_RAW is not readable error=Invalid argument"
    ]


def test_in_a_lab_the_labs_oscillator_and_discipline_are_told_apart(kernel: FakeClocks) -> None:
    """The dataplane sees the lab's CLOCK_MONOTONIC; local time is free of the lab's discipline and of the machine's."""
    rng = np.random.default_rng(1)
    oscillator, discipline = rng.uniform(-5e-5, 5e-5, (2, 64))
    lab = TestClock.from_frequencies(kernel.mono_ns, 7 * S, oscillator, discipline, np.zeros(64))
    clock, maps = LocalClock(Settings(test_clock=lab)), FakeMaps()
    clock.take_up([maps])
    begun_ns = clock.now_ns() - lab.raw_ns(kernel.mono_ns, kernel.raw_ns)
    look_for(clock, kernel, maps, 500)
    assert clock.now_ns() == begun_ns + lab.raw_ns(kernel.mono_ns, kernel.raw_ns)
    assert dataplane_ns(maps, lab.mono_ns(kernel.mono_ns)) == pytest.approx(clock.now_ns(), abs=2_100)
    assert clock.discipline().changes > 100


def test_a_line_is_written_when_it_has_moved_and_every_second(kernel: FakeClocks) -> None:
    clock = LocalClock(Settings())
    clock.take_up([FakeMaps()])
    assert clock.has_moved()
    clock.write([])
    written = 0
    for _ in range(500):
        kernel.raw_ns += S // 50
        clock.look()
        if clock.has_moved():
            clock.write([])
            written += 1
    assert 9 <= written <= 20
