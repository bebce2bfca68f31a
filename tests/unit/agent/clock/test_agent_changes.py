"""An agent whose clock, or whose peers' clocks, change unannounced: what it drops, what it tells, and when."""

from collections.abc import Callable

import numpy as np
import pytest
from clocks import ChangingClock
from numpy.typing import NDArray

from cwdp.agent.clock.edges import LEAST_YOUNG_NS, LOOK_NS, OWN_NS, TOLD_NS, YOUNG_NS, HostEdges, LeftLine
from cwdp.agent.clock.window import Samples, Window
from cwdp.shared.bus.edges import EdgeFit
from cwdp.shared.bus.messages import DriftPrior

S = 1_000_000_000
MS = 1_000_000
TICK_NS = 125 * MS
ONE_WAY_NS = 8_000
BEGIN_NS = 100 * S
PPM = 1e-6
PEERS = ("b", "c", "d", "e")


class Host:
    """A host with four peers, probed without queues; `tick` is what its agent does eight times a second."""

    def __init__(self, peers: tuple[str, ...] = PEERS, per_s: int = 200) -> None:
        self.edges, self.own = HostEdges(), ChangingClock(begin_ns=BEGIN_NS)
        self.names = [("a/nic0", f"{peer}/nic0") for peer in peers]
        self.peers = {
            peer: ChangingClock((number - 2) * S, (number - 2) * 1e-5, BEGIN_NS)
            for number, peer in enumerate(peers)
        }
        self.shorter_ns = 0.0
        self.wrong_ns: Callable[[NDArray[np.int64]], NDArray[np.int64]] = lambda stamps: 0 * stamps
        self.now_ns = BEGIN_NS
        self.left: list[LeftLine] = []
        self.fits: dict[str, EdgeFit] = {}
        self._rng, self._per_tick = np.random.default_rng(7), per_s // 8
        self.edges.assign(self.names)

    @property
    def local_ns(self) -> int:
        return int(self.own.at(np.array([self.now_ns], np.float64))[0])

    def tick(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self._probe()
            change = self.edges.look(self.now_ns, self.local_ns)
            self.left += [] if change is None else [change]
            self.fits = {fit.dst.removesuffix("/nic0"): fit for fit in self.edges.fit(self.local_ns)}

    def seconds(self, count: float) -> None:
        self.tick(round(8 * count))

    def _probe(self) -> None:
        sent = self.now_ns + np.arange(self._per_tick) * (TICK_NS / self._per_tick)
        self.now_ns += TICK_NS
        stamps = []
        for clock in self.peers.values():
            there, back = self._rng.exponential(5.0, (2, len(sent))) + ONE_WAY_NS - self.shorter_ns
            arrived = sent + there
            mine = [self.own.at(at) for at in (sent, arrived + back)]
            mine = [shown + self.wrong_ns(shown) for shown in mine]
            stamps.append((mine[0], clock.at(arrived), clock.at(arrived), mine[1]))
        edge = np.repeat(self.edges.slots(self.names), len(sent))
        weight = np.ones(len(edge))
        self.edges.add(self.now_ns, Samples(edge, np.stack(stamps, axis=1).reshape(4, -1), weight, weight))


@pytest.fixture
def host() -> Host:
    """It has measured for eight seconds and knows its edges."""
    host = Host()
    host.seconds(8)
    return host


def of_truth(host: Host, peer: str, fit: EdgeFit) -> float:
    """How far a fit's offset is off."""
    guess = float(fit.ref_local_ns)
    for _ in range(6):  # the true time at which the own clock showed the reference
        guess += fit.ref_local_ns - float(host.own.at(np.array([guess]))[0])
    truth = host.peers[peer].at(np.array([guess]))[0] - fit.ref_local_ns
    return float(fit.offset_base_ns - truth + fit.offset_ns)


def test_clocks_that_go_on_as_they_are_bend_nothing(host: Host) -> None:
    host.seconds(5)
    assert host.left == []
    assert sorted(host.fits) == list(PEERS)
    assert not host.edges.is_young(host.local_ns)
    for fit in host.fits.values():
        assert (fit.cut, fit.young, fit.own, fit.apart, fit.since_local_ns) == (
            False,
            False,
            False,
            0.0,
            None,
        )
    assert host.edges.own_change(host.now_ns, host.local_ns) is None


@pytest.mark.parametrize("rate", [10 * PPM, -10 * PPM, 200 * PPM])
def test_a_change_of_the_own_clock_is_told_once_and_cuts_every_edge(host: Host, rate: float) -> None:
    change_ns = host.now_ns + 10 * MS
    host.own.change(change_ns, rate)
    begun_ns = host.local_ns
    host.tick()
    (left,) = host.left
    assert begun_ns <= left.since_ns < begun_ns + 60 * MS
    assert 0.5 < left.rate / abs(rate) < 2
    assert host.edges.is_young(host.local_ns)
    for fit in host.fits.values():
        assert fit.cut
        assert fit.young
        assert fit.own
        assert fit.apart == left.rate
        assert fit.since_local_ns == left.since_ns
    host.seconds(1)
    assert len(host.left) == 1
    for peer, fit in host.fits.items():
        assert (fit.cut, fit.young, fit.own) == (False, True, True)
        assert abs(of_truth(host, peer, fit)) < 10
        assert abs(fit.slope - (1 + host.peers[peer].rate) / (1 + rate) + 1) < max(5 * fit.sigma_slope, 3e-9)
    host.seconds(12)
    assert len(host.left) == 1
    assert not host.edges.is_young(host.local_ns)
    assert all(fit.since_local_ns is None for fit in host.fits.values())


@pytest.mark.parametrize("rate", [10 * PPM, -10 * PPM])
def test_a_change_of_a_peers_clock_cuts_its_edge_alone(host: Host, rate: float) -> None:
    change_ns = host.now_ns
    host.peers["c"].change(change_ns, rate)
    host.tick()
    assert host.left == []
    assert [peer for peer, fit in host.fits.items() if fit.cut] == ["c"]
    fit = host.fits["c"]
    assert fit.young
    assert not fit.own
    assert 0.5 < fit.apart / abs(rate) < 2
    assert fit.since_local_ns is not None
    assert change_ns <= fit.since_local_ns < change_ns + 60 * MS
    assert {fit.young for peer, fit in host.fits.items() if peer != "c"} == {False}
    host.seconds(0.5)
    assert not host.fits["c"].cut
    assert abs(of_truth(host, "c", host.fits["c"])) < 20
    assert abs(host.fits["c"].slope - (host.peers["c"].rate + rate)) < 5 * host.fits["c"].sigma_slope


def test_a_cut_edge_is_young_for_three_seconds_and_told_of_for_twelve(host: Host) -> None:
    host.peers["c"].change(host.now_ns, 10 * PPM)
    host.tick()
    since_ns = host.fits["c"].since_local_ns
    assert since_ns is not None
    while host.local_ns - since_ns < TOLD_NS + S:
        host.tick()
        age_ns, fit = host.local_ns - since_ns, host.fits["c"]
        assert fit.cut == (age_ns < LEAST_YOUNG_NS)
        assert fit.young == (age_ns < YOUNG_NS)
        assert (fit.apart > 0) == fit.young
        assert fit.since_local_ns == (since_ns if age_ns < TOLD_NS else None)
        assert host.edges.is_young(host.local_ns) == fit.young


def test_a_few_early_probes_hold_an_edge_back_until_it_is_known_what_they_are(host: Host) -> None:
    from_ns = host.now_ns + TICK_NS - 30 * MS
    host.peers["c"].change(from_ns, 0.0, jump_ns=2_000.0)
    host.peers["c"].change(from_ns + 30 * MS, 0.0, jump_ns=-2_000.0)
    host.tick()
    assert sorted(host.fits) == ["b", "d", "e"]
    host.seconds(1.5)
    assert sorted(host.fits) == list(PEERS)
    fit = host.fits["c"]
    assert (fit.cut, fit.young, fit.since_local_ns) == (False, False, None)
    assert abs(of_truth(host, "c", fit)) < 5
    assert fit.sigma_offset_ns < 10


def test_wrong_own_stamps_of_a_moment_are_no_change_and_leave_the_window(host: Host) -> None:
    from_ns = host.local_ns + TICK_NS - 30 * MS
    host.wrong_ns = lambda stamps: np.where((stamps >= from_ns) & (stamps < from_ns + 30 * MS), 5_000, 0)
    host.tick()
    assert host.fits == {}
    host.seconds(1.5)
    assert host.left == []
    assert sorted(host.fits) == list(PEERS)
    for peer, fit in host.fits.items():
        assert not fit.torn
        assert fit.since_local_ns is None
        assert abs(of_truth(host, peer, fit)) < 5


def test_what_the_kernel_tells_of_is_dropped_at_once(host: Host) -> None:
    """The discipline has changed, and what was stamped until that was seen is off."""
    from_ns = host.local_ns + TICK_NS - 30 * MS
    host.wrong_ns = lambda stamps: np.where((stamps >= from_ns) & (stamps < from_ns + 30 * MS), 5_000, 0)
    host._probe()
    host.edges.drop_between(from_ns, from_ns + 30 * MS)
    assert host.edges.look(host.now_ns, host.local_ns) is None
    host.fits = {fit.dst.removesuffix("/nic0"): fit for fit in host.edges.fit(host.local_ns)}
    assert sorted(host.fits) == list(PEERS)
    assert all(abs(of_truth(host, peer, fit)) < 5 for peer, fit in host.fits.items())


def test_a_shorter_way_is_no_change_of_the_own_clock_and_is_learnt(host: Host) -> None:
    host.shorter_ns = 1_000.0
    host.tick()
    assert host.left == []
    assert all(fit.cut and not fit.own for fit in host.fits.values())
    host.seconds(8)
    assert host.left == []
    for peer, fit in host.fits.items():
        assert fit.margin_ns == pytest.approx(ONE_WAY_NS - 1_000, abs=20)
        assert not fit.young
        assert abs(of_truth(host, peer, fit)) < 5


@pytest.mark.parametrize("rate", [10 * PPM, -10 * PPM, 300 * PPM])
def test_all_edges_tell_the_own_change_together_and_soon(host: Host, rate: float) -> None:
    change_ns = host.now_ns
    host.own.change(change_ns, rate)
    told = []
    for _ in range(16):
        host.tick()
        change = host.edges.own_change(host.now_ns, host.local_ns)
        told += [] if change is None else [(host.now_ns - change_ns, change)]
    after_ns, first = told[0]
    assert after_ns <= 250 * MS
    assert told[-1][0] <= OWN_NS + 2 * TICK_NS
    assert host.edges.own_change(host.now_ns, host.local_ns) is None
    for _, change in told:
        elapsed_ns = (change.ref_local_ns - change_ns) / (1 + rate)
        assert change.ahead_ns == pytest.approx(rate * elapsed_ns, abs=max(5 * change.sigma_ns, 15))
        assert change.rate == pytest.approx(rate / (1 + rate), abs=5 * change.sigma_rate)
        assert change.since_local_ns == first.since_local_ns
        assert change.sigma_ns < 200
    assert told[-1][1].sigma_rate < 20e-9


def test_a_second_change_seconds_after_the_first_is_found_too(host: Host) -> None:
    host.own.change(host.now_ns, 10 * PPM)
    host.seconds(5)
    host.own.change(host.now_ns, -25 * PPM)
    host.seconds(1)
    assert len(host.left) == 2
    for peer, fit in host.fits.items():
        assert fit.own
        assert abs(of_truth(host, peer, fit)) < 10


@pytest.mark.parametrize("after_s", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("whose", ["a", "c"])
def test_a_second_change_while_edges_are_young_is_found_too(host: Host, whose: str, after_s: float) -> None:
    clock = host.own if whose == "a" else host.peers[whose]
    clock.change(host.now_ns, 10 * PPM)
    host.seconds(after_s)
    clock.change(host.now_ns, -25 * PPM)
    host.seconds(1.5)
    assert sorted(host.fits) == list(PEERS)
    for peer, fit in host.fits.items():
        assert not fit.cut
        assert abs(of_truth(host, peer, fit)) < 5 * fit.sigma_offset_ns + 10


def test_a_change_that_takes_a_while_is_got_over(host: Host) -> None:
    """A fast slew: what was measured in its course is of no use, what came after it is."""
    host.peers["c"].change(host.now_ns, 5_000 * PPM)
    host.peers["c"].change(host.now_ns + 60 * MS, -5_000 * PPM)
    host.seconds(1.5)
    fit = host.fits["c"]
    assert not fit.cut
    assert abs(of_truth(host, "c", fit)) < 5 * fit.sigma_offset_ns + 10


def test_the_managers_word_on_rates_does_not_count_for_young_edges(host: Host) -> None:
    old = {peer: clock.rate for peer, clock in host.peers.items()}
    host.own.change(host.now_ns, 10 * PPM)
    host.seconds(1)
    host.edges.believe(
        [DriftPrior(dst=f"{peer}/nic0", slope=rate, sigma=1e-11) for peer, rate in old.items()],
        host.local_ns,
    )
    host.tick()
    for peer, fit in host.fits.items():
        assert fit.sigma_slope > 1e-10
        assert fit.slope == pytest.approx((1 + old[peer]) / (1 + 10 * PPM) - 1, abs=5 * fit.sigma_slope)


def test_hearing_of_a_peers_change_cuts_its_edge_there(host: Host) -> None:
    """As where probes in queues do not show it."""
    since_ns = host.local_ns - 300 * MS
    host.edges.hear_of_change("c", since_ns)
    host.tick()
    assert [peer for peer, fit in host.fits.items() if fit.young] == ["c"]
    assert host.fits["c"].since_local_ns == since_ns
    assert host.fits["c"].apart == 0
    assert not host.fits["c"].own
    host.seconds(1)
    assert abs(of_truth(host, "c", host.fits["c"])) < 10
    assert host.left == []


def test_hearing_of_the_own_change_cuts_all_edges(host: Host) -> None:
    host.edges.hear_of_change("a", host.local_ns - 300 * MS)
    host.tick()
    assert all(fit.young for fit in host.fits.values())


def test_what_an_edge_has_noticed_itself_is_not_cut_again(host: Host) -> None:
    change_ns = host.local_ns
    host.peers["c"].change(host.now_ns, 10 * PPM)
    host.tick()
    noticed_ns = host.fits["c"].since_local_ns
    for heard_ns in (change_ns - 100 * MS, change_ns + 300 * MS):
        host.edges.hear_of_change("c", heard_ns)
        host.tick()
        assert host.fits["c"].since_local_ns == noticed_ns
    host.edges.hear_of_change("stranger", host.local_ns)
    host.tick()
    assert [peer for peer, fit in host.fits.items() if fit.young] == ["c"]


def test_a_new_edge_in_a_young_ones_slot_is_not_young() -> None:
    host = Host()
    host.seconds(8)
    host.peers["c"].change(host.now_ns, 10 * PPM)
    host.tick()
    slot = host.edges.slots([("a/nic0", "c/nic0")])
    host.edges.assign([name for name in host.names if name[1] != "c/nic0"])
    many = [("a/nic0", f"x{number}/nic0") for number in range(70)]
    host.edges.assign([name for name in host.names if name[1] != "c/nic0"] + many)
    assert slot in host.edges.slots(many)
    assert not host.edges.is_young(host.local_ns)


def test_more_slots_after_a_change_leave_the_young_edges_young(host: Host) -> None:
    host.own.change(host.now_ns, 10 * PPM)
    host.tick()
    since_ns = host.fits["b"].since_local_ns
    host.edges.assign(host.names + [("a/nic0", f"x{number}/nic0") for number in range(200)])
    host.seconds(1)
    assert all(fit.since_local_ns == since_ns and fit.young for fit in host.fits.values())
    assert host.edges.own_change(host.now_ns, host.local_ns) is None


def stretch(sent_ms: list[int], edge: int = 0) -> Samples:
    """Probes that are answered after a millisecond."""
    sent = np.array(sent_ms, np.int64) * MS
    one = np.ones(len(sent))
    return Samples(np.full(len(sent), edge), np.stack((sent, sent, sent, sent + MS)), one, one)


def sent_ms(window: Window, edges: int = 2) -> list[list[int]]:
    exchanges = window.exchanges(edges)
    parts = np.split(exchanges.t1_ns // MS, exchanges.starts[1:-1])
    return [part.tolist() for part in parts]


def test_a_window_is_cut_edge_by_edge_also_what_it_remembers() -> None:
    window = Window()
    for edge in (0, 1):
        window.add(0, stretch([100, 200, 300], edge))
    window.age(3 * S, np.zeros(2))
    for edge in (0, 1):
        window.add(3 * S, stretch([3100, 3200], edge))
    before = sent_ms(window)
    assert before[0][:2] != [3100, 3200]
    window.cut(np.array([3150 * MS, -(1 << 60)]))
    assert sent_ms(window) == [[3200], before[1]]


def test_a_window_drops_what_was_stamped_in_a_stretch_sent_or_answered() -> None:
    window = Window()
    window.add(0, stretch([100, 149, 150, 180, 200, 201, 300]))
    window.add(S, stretch([400, 500], 1))
    window.drop_between(150 * MS, 200 * MS)
    assert sent_ms(window) == [[100, 201, 300], [400, 500]]
    window.drop_between(600 * MS, 700 * MS)
    assert sent_ms(window) == [[100, 201, 300], [400, 500]]


def test_a_window_drops_some_of_what_is_recent() -> None:
    window = Window()
    for second in (1, 2, 3):
        window.add(second * S, stretch([1000 * second, 1000 * second + 1]))
    assert window.recent(4 * S) is None
    samples = window.recent(2 * S)
    assert samples is not None
    assert (samples.stamps_ns[0] // MS).tolist() == [2000, 2001, 3000, 3001]
    window.drop_recent(2 * S, np.array([False, True, True, False]))
    assert sent_ms(window, 1) == [[1000, 1001, 2000, 3001]]


def test_looks_are_at_a_second_of_probes() -> None:
    assert LOOK_NS == S


@pytest.mark.parametrize("whose", ["own", "b"])
def test_with_one_peer_nobody_can_tell_whose_clock_it_was_so_both_leave_their_lines(whose: str) -> None:
    host = Host(("b",))
    host.seconds(8)
    clock = host.own if whose == "own" else host.peers["b"]
    clock.change(host.now_ns, 10 * PPM)
    host.tick(2)
    assert len(host.left) == 1
    assert host.left[0].rate == pytest.approx(10 * PPM, rel=1)
