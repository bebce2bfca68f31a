"""Rounds of traces over a fabric in arithmetic: silence, limits, changes, forgery."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from cwdp.agent.tracing import table as tracetable
from cwdp.agent.tracing.packets import Answer, FlowPath, HopProbe
from cwdp.agent.tracing.table import RETRACE_S, Found, TraceTable

STEP_S = 0.02


def way(path: FlowPath) -> list[str]:
    """Leaf, one of four spines, leaf."""
    return ["10.254.1.1", f"10.254.2.{path.sport % 4 + 1}", "10.254.1.2"]


@dataclass
class Network:
    """Answers probes at once, or not; `way` says what a path crosses and `hears` whether a hop answers now."""

    way: Callable[[FlowPath], list[str]] = way
    hears: Callable[[HopProbe, str], bool] = lambda _probe, _hop: True
    table: TraceTable = field(default_factory=lambda: TraceTable(4791, random.Random(1)))
    now_s: float = 100.0
    sent: list[HopProbe] = field(default_factory=list)
    told: list[Found] = field(default_factory=list)

    def run(self, seconds: float) -> dict[int, Found]:
        """Let time pass; what was told last of each port meanwhile."""
        told = []
        for _ in range(round(seconds / STEP_S)):
            for probe in self.table.step(self.now_s):
                self.sent.append(probe)
                self.answer(probe)
            told += self.table.take_found()
            self.now_s += STEP_S
        self.told += told
        return {found.path.sport: found for found in told}

    def answer(self, probe: HopProbe) -> None:
        hops = self.way(probe.path)
        is_inside = probe.hop_limit <= len(hops)
        hop = hops[probe.hop_limit - 1] if is_inside else probe.path.destination
        if self.hears(probe, hop):
            self.table.hear(Answer(hop, "expired" if is_inside else "unreachable", probe.packet))


def paths(count: int, destination: str = "10.2.0.1", first: int = 50_000) -> list[FlowPath]:
    return [FlowPath("nic0", "10.1.0.1", destination, first + i) for i in range(count)]


def is_right(found: Found) -> bool:
    return found.reached and list(found.hops) == way(found.path)


def test_every_path_is_found_within_seconds() -> None:
    network = Network()
    network.table.want(paths(16))
    told = network.run(3.0)
    assert len(told) == 16
    assert all(is_right(found) for found in told.values())


@pytest.mark.parametrize("of_rocev2", [0, 4])
@pytest.mark.parametrize("switches", [None, 3])
def test_tcp_paths_lead_as_far_as_those_of_rocev2(of_rocev2: int, switches: int | None) -> None:
    """A destination does not answer their probes, so it is never asked by one, and searched for by one of RoCEv2's."""
    of_tcp = [replace(path, protocol=6) for path in paths(4, first=51_000)]
    network = Network(hears=lambda probe, hop: not (probe.path.protocol and hop == probe.path.destination))
    switches_of = {} if switches is None else {of_tcp[0].pair: switches}
    network.table.want([*of_tcp, *paths(of_rocev2)], switches_of, network.now_s)
    told = network.run(10.0)
    assert len(told) == 4 + of_rocev2
    assert all(list(found.hops) == way(found.path) for found in told.values())
    network.way = lambda path: [*way(path)[:2], "10.254.1.3"]
    network.run(tracetable.EXTENT_AGE_S + 2 * RETRACE_S)
    latest = network.run(tracetable.TELL_AGAIN_S + 2 * RETRACE_S)
    assert all(found.reached for found in latest.values())
    assert {port: found.hops[2] for port, found in latest.items()} == dict.fromkeys(told, "10.254.1.3")
    assert max(probe.hop_limit for probe in network.sent if probe.path.protocol) == 3


@pytest.mark.parametrize("hops", range(9))
def test_paths_of_any_length_are_followed_to_their_end(hops: int) -> None:
    network = Network(way=lambda _path: [f"10.254.1.{i}" for i in range(1, hops + 1)])
    network.table.want(paths(2))
    told = network.run(5.0)
    assert [len(found.hops) for found in told.values()] == [hops, hops]
    assert all(found.reached for found in told.values())


def test_probes_keep_to_the_rate() -> None:
    network = Network()
    network.table.want([path for i in range(1, 50) for path in paths(16, f"10.2.0.{i}")])
    network.run(4.0)
    most = tracetable.PROBES_PER_S * 4.0 + tracetable.BURST
    assert 0.9 * most <= len(network.sent) <= most


def test_what_does_not_change_is_told_again_now_and_then_only() -> None:
    network = Network()
    network.table.want(paths(4))
    network.run(3.0)
    assert network.run(20.0) == {}
    assert len(network.run(30.0)) == 4


def test_lost_answers_are_asked_for_again() -> None:
    rng = random.Random(2)
    network = Network(hears=lambda _probe, _hop: rng.random() > 0.3)
    network.table.want(paths(16))
    network.run(20.0)
    latest = {found.path.sport: found for found in network.told}
    assert all(is_right(found) for found in latest.values())
    assert len(latest) == 16


def test_a_switch_that_limits_its_answers_is_heard_in_the_end() -> None:
    last: dict[str, float] = {}

    def hears(_probe: HopProbe, hop: str) -> bool:
        if network.now_s - last.get(hop, -10.0) < 0.25:
            return False
        last[hop] = network.now_s
        return True

    network = Network(hears=hears)
    network.table.want(paths(12))
    network.run(60.0)
    latest = {found.path.sport: found for found in network.told}
    assert all(is_right(found) for found in latest.values())


def test_a_silent_hop_is_none_and_is_asked_less() -> None:
    network = Network(hears=lambda _probe, hop: not hop.startswith("10.254.2"))
    network.table.want(paths(4))
    told = network.run(8.0)
    assert {found.hops for found in told.values()} == {("10.254.1.1", None, "10.254.1.2")}
    network.run(40.0)
    before = len(network.sent)
    network.run(20.0)
    assert len(network.sent) - before <= 4 * 3 * 3 + 12


def test_a_silent_destination_ends_a_path_behind_the_last_answer() -> None:
    network = Network(hears=lambda _probe, hop: hop != "10.2.0.1")
    network.table.want(paths(4))
    told = network.run(2.0)
    assert len(told) == 4
    assert all(list(found.hops) == way(found.path) and not found.reached for found in told.values())


@pytest.mark.parametrize("hops", range(1, 9))
def test_a_path_of_any_length_ends_behind_the_last_answer(hops: int) -> None:
    network = Network(
        way=lambda _path: [f"10.254.1.{i}" for i in range(1, hops + 1)],
        hears=lambda _probe, hop: hop != "10.2.0.1",
    )
    network.table.want(paths(2))
    told = network.run(5.0)
    assert [len(found.hops) for found in told.values()] == [hops, hops]
    assert not any(found.reached for found in told.values())


@pytest.mark.parametrize("told", [1, 2, 3, 4, 6])
def test_how_far_it_is_can_be_told_and_be_wrong(told: int) -> None:
    network = Network(hears=lambda _probe, hop: hop != "10.2.0.1")
    network.table.want(paths(4), {("nic0", "10.2.0.1"): told}, network.now_s)
    soon = network.run(0.2)
    if told == 3:
        assert all(list(found.hops) == way(found.path) for found in soon.values())
        assert len(soon) == 4
    latest = {**soon, **network.run(tracetable.EXTENT_AGE_S + 2 * RETRACE_S + 5.0)}
    assert all(list(found.hops) == way(found.path) for found in latest.values())


def test_a_path_that_is_answered_in_full_is_told_of_at_once() -> None:
    network = Network()
    network.table.want(paths(4))
    assert len(network.run(0.5)) == 4


def test_where_nobody_answers_a_path_has_no_hops() -> None:
    network = Network(hears=lambda _probe, _hop: False)
    network.table.want(paths(4))
    told = network.run(10.0)
    assert {(found.hops, found.reached) for found in told.values()} == {((), False)}


def test_hops_of_a_link_that_died_keep_their_names() -> None:
    network = Network()
    network.table.want(paths(8))
    network.run(3.0)
    network.hears = lambda probe, _hop: probe.hop_limit == 1 or probe.path.sport % 4 != 1
    assert network.run(24.0) == {}


def test_a_changed_path_makes_all_paths_of_the_nic_due() -> None:
    network = Network()
    network.table.want(paths(64))
    network.run(12.0)
    network.way = lambda path: ["10.254.1.1", f"10.254.2.{path.sport % 3 + 1}", "10.254.1.2"]
    network.run(4.0)
    latest = {found.path.sport: found for found in network.told}
    right = [list(found.hops) == network.way(found.path) for found in latest.values()]
    assert sum(right) == 64


def test_an_event_makes_paths_to_its_destination_due_at_once() -> None:
    network = Network()
    network.table.want(paths(8) + paths(8, "10.2.0.2"))
    network.run(5.0)
    network.sent.clear()
    network.table.suspect({("nic0", "10.2.0.2")}, network.now_s)
    network.run(0.1)
    assert {probe.path.destination for probe in network.sent[:8]} == {"10.2.0.2"}


def test_a_path_that_grows_is_followed() -> None:
    network = Network()
    network.table.want(paths(4))
    network.run(3.0)
    network.way = lambda path: [*way(path), "10.254.9.9"]
    network.table.suspect({("nic0", "10.2.0.1")}, network.now_s)
    network.run(80.0)
    latest = {found.path.sport: found for found in network.told}
    assert {found.hops[-1] for found in latest.values()} == {"10.254.9.9"}


def test_two_answers_that_disagree_are_none_and_counted() -> None:
    network = Network()
    answer = network.answer

    def twice(probe: HopProbe) -> None:
        answer(probe)
        if probe.hop_limit == 2:
            network.table.hear(Answer("6.6.6.6", "expired", probe.packet))

    network.answer = twice  # type: ignore[method-assign]
    network.table.want(paths(4))
    told = network.run(3.0)
    assert {found.hops for found in told.values()} == {("10.254.1.1", None, "10.254.1.2")}
    assert network.table.counters["trace_answers_disagreed"] >= 4


def test_guessed_and_late_answers_are_counted_and_change_nothing() -> None:
    network = Network()
    network.table.want(paths(4))
    network.run(3.0)
    for probe in network.sent:
        network.table.hear(Answer("6.6.6.6", "expired", probe.packet))
    stray = network.table.counters["trace_answers_stray"]
    assert stray == len(network.sent)
    rng = random.Random(3)
    answer = network.answer

    def guess(probe: HopProbe) -> None:
        for _ in range(20):
            packet = bytearray(probe.packet)
            packet[4:6] = rng.randbytes(2)
            if bytes(packet) != probe.packet:
                network.table.hear(Answer("6.6.6.6", "expired", bytes(packet)))
        answer(probe)

    network.answer = guess  # type: ignore[method-assign]
    network.run(20.0)
    assert network.table.counters["trace_answers_forged"] > 0
    assert all(is_right(found) for found in network.told)


def test_a_path_that_is_no_longer_wanted_is_forgotten() -> None:
    network = Network()
    network.table.want(paths(8))
    network.run(0.05)
    network.table.want(paths(2))
    told = network.run(3.0)
    assert sorted(told) == [50_000, 50_001]
    network.sent.clear()
    network.run(2 * RETRACE_S + 1.0)
    assert {probe.path.sport for probe in network.sent} == {50_000, 50_001}


def test_everything_can_be_told_again() -> None:
    network = Network()
    network.table.want(paths(8))
    network.run(3.0)
    network.table.tell_all()
    assert len(network.table.take_found()) == 8


@pytest.mark.parametrize("seed", range(10))
def test_random_trouble_never_shows_a_wrong_path_for_long(seed: int) -> None:
    rng = random.Random(seed)
    spines = [1, 2, 3, 4]

    def here(path: FlowPath) -> list[str]:
        return ["10.254.1.1", f"10.254.2.{spines[path.sport % len(spines)]}", "10.254.1.2"]

    network = Network(way=here, hears=lambda _probe, _hop: rng.random() > 0.1)
    network.table.want(paths(24))
    for _ in range(4):
        spines[:] = rng.sample([1, 2, 3, 4], rng.randrange(2, 5))
        network.run(30.0)
        latest = {found.path.sport: found for found in network.told}
        wrong = [
            found
            for found in latest.values()
            if any(hop not in (None, true) for hop, true in zip(found.hops, here(found.path), strict=False))
        ]
        assert wrong == []
