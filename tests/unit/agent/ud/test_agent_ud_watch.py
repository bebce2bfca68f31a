"""Which paths of queue pairs are taken to be down: those that are silent while others to the same peer are not."""

import random
from collections.abc import Callable

import msgspec
import pytest

from cwdp.agent.ud.orders import UdWatched, WatchPace
from cwdp.agent.ud.watch import (
    DEAD_AFTER_NS,
    DEAD_AFTER_TURNS,
    KEPT_NS,
    MOST_PER_S,
    REPLY_PORTS,
    TURN_NS,
    PathWatch,
)
from cwdp.rdma.udprobe import Exchange, UdPath, UdSample
from cwdp.rdma.udwire import UNSYNCED
from cwdp.shared.bus.messages import UdAddress

PEER, OTHER = UdAddress("::ffff:10.0.1.1", 0x11), UdAddress("::ffff:10.0.2.1", 0x22)
MS = 1_000_000
RTT_NS = 200_000
HOLD_NS = 500 * MS
PACE = WatchPace(interval_ns=2 * MS, dead_after_ns=10 * MS, hold_down_ns=HOLD_NS)
SPINES = 4


def path(sport: int, peer: UdAddress = PEER, *, in_use: bool = True) -> UdWatched:
    return UdWatched(peer, peer.gid.removeprefix("::ffff:"), sport, in_use)


class Fabric:
    """Answers pulses unless they cross a spine that is dead there or back; ports select spines in turn."""

    def __init__(self, paths: list[UdWatched], seed: int = 1) -> None:
        self.watch = PathWatch(random.Random(seed))
        self.watch.watch(paths, PACE)
        self.now_ns = 10_000 * MS
        self.there: Callable[[UdPath], bool] = lambda _path: True
        self.back: Callable[[UdPath], bool] = lambda _path: True
        self.pulses: list[UdPath] = []
        self._seq = 0
        self._answers: list[tuple[int, UdSample]] = []

    def run(self, ms: float) -> list[int]:
        """Time passes; when what is down changed, in ns from now."""
        began_ns, changed = self.now_ns, []
        while self.now_ns < began_ns + ms * MS:
            self.now_ns += MS // 2
            for _, pulse in self.watch.take(self.now_ns):
                self._send(pulse)
            come = [sample for at_ns, sample in self._answers if at_ns <= self.now_ns]
            self._answers = [one for one in self._answers if one[0] > self.now_ns]
            self.watch.take_samples(come)
            if self.watch.judge(self.now_ns):
                changed.append(self.now_ns - began_ns)
        return changed

    def down(self) -> set[int]:
        return {sport for _, sport in self.watch.down}

    def _send(self, pulse: UdPath) -> None:
        self.pulses.append(pulse)
        self._seq += 1
        self.watch.sent(pulse, self._seq, self.now_ns)
        if self.there(pulse) and self.back(pulse):
            exchange = Exchange(self.now_ns, 0, 0, self.now_ns + RTT_NS, UNSYNCED)
            self._answers.append((self.now_ns + RTT_NS, UdSample(pulse, self._seq, self.now_ns, exchange)))
        else:
            self._answers.append((self.now_ns + 100 * MS, UdSample(pulse, self._seq, self.now_ns, None)))


USED = [path(50_000 + i) for i in range(SPINES)]


@pytest.fixture
def fabric() -> Fabric:
    return Fabric(USED)


def test_nothing_is_down_while_all_is_well(fabric: Fabric) -> None:
    assert fabric.run(3_000) == []
    assert fabric.down() == set()


def test_a_silent_path_is_down_soon_and_up_again_after_health(fabric: Fabric) -> None:
    fabric.run(200)
    fabric.there = lambda pulse: pulse.sport != 50_001
    (found_ns,) = fabric.run(200)
    assert found_ns <= DEAD_AFTER_NS + 2 * TURN_NS
    assert fabric.down() == {50_001}
    fabric.there = lambda _pulse: True
    (healed_ns,) = fabric.run(2_000)
    assert HOLD_NS <= healed_ns <= 2 * HOLD_NS
    assert fabric.down() == set()


def test_a_path_that_flaps_stays_down(fabric: Fabric) -> None:
    fabric.there = lambda pulse: pulse.sport != 50_001 or fabric.now_ns // (300 * MS) % 2 == 0
    fabric.run(3_000)
    fabric.run(600)
    assert fabric.down() == {50_001}


@pytest.mark.parametrize("seed", range(10))
def test_a_dead_way_back_is_no_dead_way_there(seed: int) -> None:
    fabric = Fabric(USED, seed)
    fabric.run(200)
    fabric.back = lambda pulse: pulse.reply_sport % SPINES != 0
    assert fabric.run(1_000) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_spine_that_is_dead_both_ways_takes_its_paths_only(seed: int) -> None:
    fabric = Fabric(USED, seed)
    fabric.run(200)
    fabric.there = lambda pulse: pulse.sport % SPINES != 0
    fabric.back = lambda pulse: pulse.reply_sport % SPINES != 0
    fabric.run(1_000)
    assert fabric.down() == {50_000}


def test_a_peer_that_stands_still_is_no_dead_path() -> None:
    fabric = Fabric([*USED, path(51_000, OTHER), path(51_001, OTHER)])
    fabric.run(200)
    fabric.there = lambda pulse: pulse.peer != PEER
    assert fabric.run(1_000) == []
    fabric.there = lambda _pulse: True
    assert fabric.run(1_000) == []


def test_a_few_losses_are_no_silence(fabric: Fabric) -> None:
    random_ = random.Random(3)
    fabric.there = lambda _pulse: random_.random() > 0.1
    fabric.run(5_000)
    assert fabric.down() == set()


def test_a_path_that_is_only_a_spare_is_found_too() -> None:
    fabric = Fabric([*USED[:3], path(50_003, in_use=False)])
    fabric.run(200)
    fabric.there = lambda pulse: pulse.sport != 50_003
    fabric.run(400)
    assert fabric.down() == {50_003}
    pulses = [pulse.sport for pulse in fabric.pulses]
    assert pulses.count(50_003) < pulses.count(50_002) / 3


def test_what_is_watched_no_more_is_forgotten_and_the_rest_goes_on(fabric: Fabric) -> None:
    fabric.there = lambda pulse: pulse.sport != 50_001
    fabric.run(200)
    fabric.watch.watch([*USED[1:], path(50_009)], PACE)
    fabric.run(50)
    assert fabric.down() == {50_001}
    fabric.there = lambda _pulse: True
    fabric.run(2_000)
    fabric.watch.watch([], PACE)
    assert (fabric.watch.due_ns(), fabric.watch.take(fabric.now_ns + 10**9)) == (None, [])


def test_what_is_down_stays_so_until_it_heals_though_nothing_takes_it_any_more(fabric: Fabric) -> None:
    fabric.there = lambda pulse: pulse.sport != 50_001
    fabric.run(200)
    fabric.watch.watch(USED[2:], PACE)
    fabric.watch.watch([], PACE)
    fabric.pulses.clear()
    assert fabric.run(2_000) == []
    assert fabric.down() == {50_001}
    assert {pulse.sport for pulse in fabric.pulses} == {50_001}
    fabric.there = lambda _pulse: True
    (healed_ns,) = fabric.run(2_000)
    assert HOLD_NS <= healed_ns <= 2 * HOLD_NS
    assert fabric.down() == set()
    fabric.watch.watch([], PACE)
    assert fabric.watch.due_ns() is None


def test_what_is_down_to_a_peer_that_is_another_by_now_is_forgotten(fabric: Fabric) -> None:
    fabric.there = lambda pulse: pulse.sport != 50_001
    fabric.run(200)
    anew = msgspec.structs.replace(PEER, qpn=0x99)
    fabric.watch.watch([UdWatched(anew, USED[0].dst_addr, 50_000, in_use=True)], PACE)
    assert fabric.down() == set()


def test_what_is_down_and_never_heals_is_forgotten_in_the_end(fabric: Fabric) -> None:
    fabric.there = lambda pulse: pulse.sport != 50_001
    fabric.run(200)
    fabric.watch.watch([], PACE)
    fabric.watch.judge(fabric.now_ns)
    assert not fabric.watch.judge(fabric.now_ns + KEPT_NS)
    assert fabric.watch.judge(fabric.now_ns + KEPT_NS + 1)
    assert fabric.down() == set()


def test_paths_are_pulsed_and_given_up_as_slowly_as_configured(fabric: Fabric) -> None:
    pace = WatchPace(interval_ns=100 * MS, dead_after_ns=1_500 * MS, hold_down_ns=HOLD_NS)
    fabric.watch.watch(USED, pace)
    fabric.run(1_000)
    assert len(fabric.pulses) == pytest.approx(10 * SPINES, abs=SPINES)
    fabric.there = lambda pulse: pulse.sport != 50_001
    (found_ns,) = fabric.run(3_000)
    assert pace.dead_after_ns <= found_ns <= pace.dead_after_ns + 2 * pace.interval_ns
    fabric.there = lambda _pulse: True
    fabric.run(2_000)
    fabric.watch.watch(USED, msgspec.structs.replace(pace, dead_after_ns=10 * MS))
    fabric.there = lambda pulse: pulse.sport != 50_001
    (found_ns,) = fabric.run(3_000)
    assert DEAD_AFTER_TURNS * pace.interval_ns <= found_ns <= (DEAD_AFTER_TURNS + 2) * pace.interval_ns


def test_many_paths_are_pulsed_at_a_bounded_rate() -> None:
    fabric = Fabric([path(50_000 + i, in_use=i < 100) for i in range(200)])
    fabric.run(1_000)
    assert 0.7 * MOST_PER_S < len(fabric.pulses) <= MOST_PER_S + 125


def test_ways_back_are_of_those_that_the_peer_has() -> None:
    few = msgspec.structs.replace(PEER, sports=(50_100, 50_200))
    fabric = Fabric([path(50_000, few)])
    fabric.run(500)
    assert {pulse.reply_sport for pulse in fabric.pulses} == {50_100, 50_200}
    fabric = Fabric(USED)
    fabric.run(500)
    assert len({pulse.reply_sport for pulse in fabric.pulses}) == REPLY_PORTS
