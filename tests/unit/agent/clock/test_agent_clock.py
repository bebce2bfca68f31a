"""The host's clock: locked once, then only slewed, and never further off than it says."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.agent.clock import hostclock
from cwdp.agent.clock.holdover import RateChanges
from cwdp.agent.clock.hostclock import (
    LEFT_S,
    LEFT_SURCHARGE,
    SILENCE_S,
    STOOD_STILL_NS,
    UNHEARD_NS,
    HostClock,
    LocalClock,
)
from cwdp.agent.clock.hostsync import HostSync
from cwdp.agent.clock.timebase import LOOKED_AFTER_NS
from cwdp.dataplane import abi
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned.maps import Maps
from cwdp.shared.bus.clocks import short_id
from cwdp.shared.bus.messages import ClockLine, ClockState, ClockUpdate
from cwdp.shared.clocksync.slew import MAX_SLEW

S = 1_000_000_000
TICK_NS = S // 4


AGENT = "of this agent"


class FakeTime(LocalClock):
    """A local clock that stands still until it is moved."""

    def __init__(self) -> None:
        super().__init__(Settings())
        self.at_ns, self.kept = 1_000 * S, False

    @property
    def is_kept(self) -> bool:
        return self.kept

    def now_ns(self) -> int:
        return self.at_ns


class FakeMaps(Maps):
    """The real writing of a line, into memory of our own."""

    def __init__(self) -> None:
        self._clock = np.zeros(1, dtype=abi.CLOCK)

    def offset_ns(self, local_ns: int) -> float:
        """What the dataplane's clock.h makes of the line."""
        line = self.read_clock()
        past_ns = local_ns - int(line["ref_local_ns"])
        slewed_ns = min(past_ns, int(line["slew_ns"]))
        rates = past_ns * int(line["drift_q48"]) + slewed_ns * int(line["slew_q48"])
        return int(line["offset_ns"]) + rates / 2**48

    def bound_ns(self, local_ns: int) -> float:
        line = self.read_clock()
        past_ns = abs(local_ns - int(line["ref_local_ns"]))
        return int(line["bound_ns"]) + past_ns * int(line["bound_drift_q48"]) / 2**48

    @property
    def synced(self) -> bool:
        return bool(self.read_clock()["synced"])


class Bench:
    """A host clock, its time, and its maps."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.clock = HostClock(self.time, AGENT)
        self.maps = FakeMaps()
        self.seq = 0

    def tell(
        self,
        offset_ns: float,
        *,
        drift: float = 0.0,
        state: ClockState = "synced",
        timeline: str = "t",
        bound_ns: float = 20.0,
        found_anew: bool = False,
        agent: str | None = None,
    ) -> None:
        """A solution arrives: the offset that holds now."""
        self.seq += 1
        whole = round(offset_ns)
        line = ClockLine(
            ref_local_ns=self.time.at_ns,
            offset_base_ns=whole,
            offset_ns=offset_ns - whole,
            drift=drift,
            bound_ns=bound_ns,
            bound_drift=1e-9,
            state=state,
            found_anew=found_anew,
        )
        update = ClockUpdate(host="h", timeline=timeline, seq=self.seq, line=line, priors=[], agent=agent)
        self.clock.follow(update)

    def tick(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.time.at_ns += TICK_NS
            self.clock.write([cast("Maps", self.maps)])

    @property
    def offset_ns(self) -> float:
        return self.maps.offset_ns(self.time.at_ns)

    def state(self) -> str:
        return self.clock.state

    def synced(self) -> bool:
        return self.maps.synced


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_unsynced_until_there_is_word(bench: Bench) -> None:
    bench.tick()
    assert not bench.synced()
    assert bench.state() == "unsynced"
    assert bench.clock.report() is None
    bench.tell(0.0, state="unsynced")
    bench.tick()
    assert not bench.synced()


def test_the_first_lock_takes_the_line_as_it_is(bench: Bench) -> None:
    bench.tell(-2_500_000_000.25, drift=3e-5)
    bench.tick()
    assert bench.synced()
    assert bench.offset_ns == pytest.approx(-2_500_000_000.25 + 3e-5 * TICK_NS, abs=0.51)
    assert bench.state() == "synced"


def test_a_correction_is_slewed_and_ends_by_itself(bench: Bench) -> None:
    bench.tell(1000.0)
    bench.tick()
    bench.tell(1400.0)
    before = bench.offset_ns
    bench.clock.write([cast("Maps", bench.maps)])
    assert bench.offset_ns == pytest.approx(before, abs=0.6)
    start_ns = bench.time.at_ns
    assert bench.maps.offset_ns(start_ns + S // 4) == pytest.approx(1200, abs=1)
    for later_s in (0.5, 1, 100):  # the agent may die now
        assert bench.maps.offset_ns(start_ns + int(later_s * S)) == pytest.approx(1400, abs=1)


def test_the_bound_has_the_way_to_go_in_it(bench: Bench) -> None:
    bench.tell(0.0)
    bench.tick()
    bench.tell(5000.0)
    bench.clock.write([cast("Maps", bench.maps)])
    assert bench.maps.bound_ns(bench.time.at_ns) == pytest.approx(5020, abs=2)
    bench.tick(8)
    alone_ns, _ = RateChanges().off_ns(8 * TICK_NS)
    assert bench.maps.bound_ns(bench.time.at_ns) == pytest.approx(20 + alone_ns, abs=25)


def test_the_bound_grows_with_silence_and_the_line_goes_on(bench: Bench) -> None:
    bench.tell(100.0, drift=-2e-5)
    bench.tick()
    first = bench.maps.bound_ns(bench.time.at_ns)
    bench.tick(40)
    assert bench.state() == "holdover"
    assert bench.synced()
    alone_ns, _ = RateChanges().off_ns(41 * TICK_NS)
    assert bench.maps.bound_ns(bench.time.at_ns) == pytest.approx(first + 10 + alone_ns, abs=1.6)
    assert bench.offset_ns == pytest.approx(100 - 2e-5 * 41 * TICK_NS, abs=1)
    bench.tell(bench.offset_ns)
    assert bench.state() == "synced"


def test_the_bound_grows_as_much_while_the_manager_tells_of_a_line_that_nobody_measures(bench: Bench) -> None:
    bench.tell(0.0)
    bench.tick()
    for _ in range(40):
        bench.tell(0.0, state="holdover")
        bench.tick()
    assert bench.state() == "holdover"
    alone_ns, _ = RateChanges().off_ns(41 * TICK_NS)
    assert bench.maps.bound_ns(bench.time.at_ns) == pytest.approx(20 + alone_ns, abs=1.6)
    bench.tell(0.0)
    bench.tick()
    assert bench.maps.bound_ns(bench.time.at_ns) == pytest.approx(20, abs=1.6)


def test_after_it_stood_still_an_agent_goes_on_by_its_line_until_solutions_are_of_later_stamps(
    bench: Bench,
) -> None:
    sync = HostSync(bench.clock, bench.time.now_ns)
    bench.tell(0.0)
    bench.tick()
    from_ns = bench.time.at_ns
    bench.time.at_ns += LOOKED_AFTER_NS
    sync.distrust(from_ns, bench.time.at_ns)
    bench.tell(3_000.0)
    bench.tick(40)
    assert bench.offset_ns == pytest.approx(3_000, abs=1)
    bench.time.at_ns += 3 * S
    from_ns, began_ns = bench.time.at_ns - 3 * S, bench.time.at_ns
    sync.distrust(from_ns, bench.time.at_ns)
    while bench.time.at_ns < began_ns + STOOD_STILL_NS:
        bench.tell(9_000.0, state="set_aside" if bench.seq % 2 else "synced")
        bench.clock.write([cast("Maps", bench.maps)])
        assert bench.offset_ns == pytest.approx(3_000, abs=1)
        assert bench.synced()
        bench.time.at_ns += TICK_NS
    assert bench.state() == "holdover"
    bench.tell(3_010.0)
    assert bench.state() == "synced"
    bench.tick(40)
    assert bench.offset_ns == pytest.approx(3_010, abs=1)


def test_holdover_begins_after_two_seconds_of_silence(bench: Bench) -> None:
    bench.tell(0.0)
    bench.tick()
    bench.time.at_ns += int(SILENCE_S * S) - TICK_NS
    assert bench.state() == "synced"
    bench.time.at_ns += 1
    assert bench.state() == "holdover"


def test_a_host_that_is_set_aside_is_cleared_and_says_so(bench: Bench) -> None:
    bench.tell(100.0)
    bench.tick()
    bench.tell(100.0, state="set_aside")
    bench.tick()
    assert not bench.synced()
    assert bench.state() == "set_aside"
    report = bench.clock.report()
    assert report is not None
    assert report.state == "set_aside"
    bench.tell(150.0)
    bench.tick(20)
    assert bench.synced()
    assert bench.offset_ns == pytest.approx(150, abs=1)


def test_a_new_timeline_is_taken_at_once(bench: Bench) -> None:
    bench.tell(100.0, timeline="old")
    bench.tick()
    bench.tell(900_000.0, timeline="new")
    bench.tick()
    assert bench.offset_ns == pytest.approx(900_000, abs=1)


def test_what_no_slew_would_mend_is_a_new_lock(bench: Bench) -> None:
    bench.tell(0.0)
    bench.tick()
    bench.tell(hostclock.STEP_LIMIT_NS + 1.0)
    bench.tick()
    assert bench.offset_ns == pytest.approx(hostclock.STEP_LIMIT_NS, abs=2)


def test_an_agent_that_is_started_again_takes_up_the_line(bench: Bench) -> None:
    bench.tell(1_000.0, drift=4e-5)
    bench.tick()
    bench.tell(3_000.0, drift=4e-5)
    bench.clock.write([cast("Maps", bench.maps)])
    expected = [bench.maps.offset_ns(bench.time.at_ns + n * TICK_NS) for n in range(8)]
    bounds = [bench.maps.bound_ns(bench.time.at_ns + n * TICK_NS) for n in range(8)]
    bench.clock = HostClock(bench.time, AGENT)
    bench.clock.take_up(bench.maps)
    assert bench.state() == "holdover"
    for n in range(8):
        bench.clock.write([cast("Maps", bench.maps)])
        assert bench.offset_ns == pytest.approx(expected[n], abs=0.6)
        assert bench.maps.bound_ns(bench.time.at_ns) == pytest.approx(bounds[n], abs=1)
        report = bench.clock.report()
        assert report is not None
        assert report.offset_base_ns + report.offset_ns == pytest.approx(expected[n], abs=0.6)
        bench.time.at_ns += TICK_NS


def started_again(bench: Bench, *, kept: bool) -> None:
    bench.tell(1_000.0)
    bench.tick()
    bench.time.kept = kept
    bench.clock = HostClock(bench.time, AGENT)
    bench.clock.take_up(bench.maps)


@pytest.mark.parametrize("agent", ["", short_id("another agent")])
def test_an_agent_that_goes_on_as_the_one_before_waits_for_its_word_in_a_solution(
    bench: Bench, agent: str
) -> None:
    started_again(bench, kept=True)
    bench.tell(90_000.0, agent=agent)
    bench.tick(10)
    assert bench.offset_ns == pytest.approx(1_000.0, abs=1)
    assert bench.state() == "holdover"
    bench.tell(1_200.0, agent=short_id(AGENT))
    bench.tick(20)
    assert bench.offset_ns == pytest.approx(1_200.0, abs=1)
    bench.tell(1_300.0, agent=agent)
    bench.tick(20)
    assert bench.offset_ns == pytest.approx(1_300.0, abs=1)


@pytest.mark.parametrize(
    ("kept", "agent", "later_ns"), [(False, "", 0), (True, None, 0), (True, "", UNHEARD_NS)]
)
def test_an_agent_waits_for_nothing_that_will_not_come(
    bench: Bench, kept: bool, agent: str | None, later_ns: int
) -> None:
    started_again(bench, kept=kept)
    bench.time.at_ns += later_ns
    bench.tell(1_500.0, agent=agent)
    bench.tick(20)
    assert bench.offset_ns == pytest.approx(1_500.0, abs=1)


def test_a_map_without_a_line_is_not_taken_up_and_a_second_one_neither(bench: Bench) -> None:
    bench.clock.take_up(FakeMaps())
    assert bench.clock.published is None
    bench.tell(7.0)
    bench.tick()
    kept = bench.clock.published
    bench.clock.take_up(bench.maps)
    assert bench.clock.published is kept


def test_every_nic_gets_the_line(bench: Bench) -> None:
    other = FakeMaps()
    bench.tell(55.0)
    bench.clock.write([bench.maps, other])
    assert bench.maps.read_clock() == other.read_clock()


def test_a_clock_that_has_changed_is_in_holdover_until_it_can_be_found_anew(bench: Bench) -> None:
    bench.tell(0.0)
    bench.tick()
    bench.clock.leave_line(bench.time.at_ns - S // 10, 10e-6)
    for _ in range(3):
        assert bench.state() == "holdover"
        report = bench.clock.report()
        assert report is not None
        assert report.state == "holdover"
        bench.time.at_ns += round(LEFT_S * S / 3)
        bench.tell(0.0)
    bench.time.at_ns += 1
    assert bench.state() == "synced"


def test_the_bound_of_a_clock_that_has_changed_is_wider_by_what_it_leaves_its_line_by(bench: Bench) -> None:
    bench.tell(0.0)
    bench.tick()
    left_ns = bench.time.at_ns - S // 10
    before = bench.maps.bound_ns(bench.time.at_ns)
    bench.clock.leave_line(left_ns, 10e-6)
    bench.clock.write([cast("Maps", bench.maps)])
    for later_ns in (0, S // 10, S // 4):
        at_ns = bench.time.at_ns + later_ns
        expected = before + LEFT_SURCHARGE * 10e-6 * (at_ns - left_ns)
        assert bench.maps.bound_ns(at_ns) == pytest.approx(expected, abs=3)
    bench.time.at_ns += round(LEFT_S * S) + 1
    bench.tell(0.0, found_anew=True)
    bench.clock.write([cast("Maps", bench.maps)])
    assert bench.maps.bound_ns(bench.time.at_ns) == pytest.approx(before, abs=2)


def test_without_word_of_the_manager_a_clock_that_has_changed_does_not_narrow_its_bound(bench: Bench) -> None:
    """Nobody has found it anew: it goes on leaving its line."""
    bench.tell(0.0)
    bench.tick()
    left_ns = bench.time.at_ns
    bench.clock.leave_line(left_ns, 10e-6)
    for _ in range(12):
        bench.tick()
        gone_ns = 10e-6 * (bench.time.at_ns - left_ns)
        assert bench.maps.bound_ns(bench.time.at_ns) >= gone_ns
        assert bench.state() == "holdover"


@pytest.mark.parametrize(("found_anew", "slew_s"), [(True, 0.1), (False, 0.5)])
def test_a_line_that_is_found_anew_is_met_sooner(bench: Bench, found_anew: bool, slew_s: float) -> None:
    bench.tell(0.0)
    bench.tick()
    bench.tell(5_000.0, found_anew=found_anew)
    bench.clock.write([cast("Maps", bench.maps)])
    for share, expected in ((0.0, 0), (0.5, 2_500), (1.0, 5_000), (1.5, 5_000)):
        later_ns = bench.time.at_ns + round(share * slew_s * S)
        assert bench.maps.offset_ns(later_ns) == pytest.approx(expected, abs=2)


def test_times_of_the_timeline_are_told_by_the_own_clock(bench: Bench) -> None:
    assert bench.clock.local_ns(5 * S) is None
    bench.tell(-2_500_000_000.25, drift=5e-5)
    bench.tick()
    for ago_s in (0, 1, 3):
        local_ns = bench.time.at_ns - ago_s * S
        shown_ns = local_ns + bench.maps.offset_ns(local_ns)
        assert bench.clock.local_ns(round(shown_ns)) == pytest.approx(local_ns, abs=10)


corrections = st.lists(st.floats(-4e5, 4e5), min_size=1, max_size=12)


@given(corrections, st.floats(-6e-5, 6e-5), st.integers(1, 3))
def test_once_locked_time_never_steps_nor_runs_off(offsets: list[float], drift: float, ticks: int) -> None:
    bench = Bench()
    bench.tell(0.0, drift=drift)
    bench.tick()
    origin_ns = bench.time.at_ns - TICK_NS
    for offset in offsets:
        drifted = drift * (bench.time.at_ns - origin_ns)
        bench.tell(drifted + offset, drift=drift)
        for _ in range(ticks):
            expected = bench.maps.offset_ns(bench.time.at_ns + TICK_NS)
            rate = (expected - bench.offset_ns) / TICK_NS
            assert abs(rate - drift) <= MAX_SLEW * 1.001
            bench.tick()
            assert bench.offset_ns == pytest.approx(expected, abs=1.1)
            goal = drift * (bench.time.at_ns - origin_ns) + offset
            assert abs(bench.offset_ns - goal) <= bench.maps.bound_ns(bench.time.at_ns) + 1


def test_a_bound_grows_ever_faster_while_there_is_no_word(bench: Bench) -> None:
    bench.tell(5_000.0)
    bounds = []
    for _ in range(60):
        bench.tick(4)
        bounds.append(bench.maps.bound_ns(bench.time.at_ns))
    seconds = np.diff(bounds)
    assert (np.diff(seconds[3:29]) > 0).all()
    assert bounds[9] > 20.0 + 10.0 + 300.0
    bench.tell(5_000.0)
    bench.tick()
    assert bench.maps.bound_ns(bench.time.at_ns) < 50.0
