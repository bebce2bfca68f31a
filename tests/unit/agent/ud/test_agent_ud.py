"""The process that probes by UD queue pairs: what it sends, tells and answers, and what it does when a device fails."""

import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from ud_fakes import DELAY_NS, KEY, A, B, Link, Network

from cwdp.agent.orders import Orders, Words
from cwdp.agent.ud import pairs as udpairs
from cwdp.agent.ud.orders import DownPaths, Fate, Row, UdOrder, UdPathOrder, UdWatched, UdWord, WatchPace
from cwdp.agent.ud.pairs import CATCH_UP_S, Turns
from cwdp.agent.ud.process import OPEN_AGAIN_S, SAY_S, SILENT_S, UdHost, read_line, run
from cwdp.errors import ConfigError, CwdpError, RdmaError
from cwdp.rdma.udprobe import REPLY_TIMEOUT_NS
from cwdp.rdma.udwire import UNSYNCED, UNSYNCED_BOUND_NS, Reading
from cwdp.shared.bus.messages import ClockLine, UdAddress
from cwdp.shared.testclock import TestClock

A_AT, B_AT = UdAddress(A, 0x11), UdAddress(B, 0x22)
NEW_KEY = bytes(range(16, 32))
PATHS = [UdPathOrder(B_AT, sport, 60_000 + sport % 10) for sport in (50_001, 50_002)]


def order(device: str, **changes: object) -> UdOrder:
    given = UdOrder(device=device, port=1, gid_index=3, driver="mlx5", keys={1: KEY.hex()}, send_key=1)
    return msgspec.structs.replace(given, **changes)


def line(offset_ns: int, bound_ns: float = 100.0) -> ClockLine:
    return ClockLine(
        ref_local_ns=0,
        offset_base_ns=offset_ns,
        offset_ns=0.0,
        drift=0.0,
        bound_ns=bound_ns,
        bound_drift=0.0,
        state="synced",
    )


class World:
    """A host `a` that probes and a host `b`, over a network in arithmetic."""

    def __init__(self) -> None:
        self.network = Network()
        self.now_s = 100.0
        self.links: list[Link] = []
        self.down: list[DownPaths] = []
        self.refusal: CwdpError | None = None
        self.a, self.b = self.host(A_AT), self.host(B_AT)
        self.b.follow(order("b"))
        self.said: list[UdWord] = []

    def host(self, address: UdAddress) -> UdHost:
        def opened(_order: UdOrder, _clock: object) -> Link:
            if self.refusal is not None:
                raise self.refusal
            self.links.append(Link(self.network, address))
            return self.links[-1]

        return UdHost(opened, lambda: self.now_s, self.down.append)

    def pass_time(self, seconds: float, step_s: float = 0.01) -> None:
        """Let both run; the network's clock is the one that probes are stamped with."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += step_s
            for host in (self.a, self.b, self.a):
                host.step()
            word = self.a.word()
            self.said += [word] if word is not None else []

    def rows(self) -> list[Row]:
        return [row for word in self.said for row in word.rows]

    def counters(self) -> Counter[str]:
        return Counter(self.said[-1].counters)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr("time.monotonic_ns", made.network.clock)
    return made


def test_pairs_go_over_each_path_in_turn_at_the_rate_asked_for(world: World) -> None:
    world.a.follow(order("a", version=4, paths=PATHS, turns=[0, 1, 0], pairs_per_s=30.0))
    world.pass_time(2.0)
    rows = world.rows()
    assert {word.version for word in world.said} == {4}
    assert {word.address for word in world.said if word.rows} == {A_AT}
    assert all(
        first[0] == second[0] and first[2] < second[2]
        for first, second in zip(rows[::2], rows[1::2], strict=True)
    )
    per_path = Counter(row[0] for row in rows[::2])
    assert per_path[0] == pytest.approx(2 * per_path[1], abs=2)
    assert len(rows) == pytest.approx(2 * 60, rel=0.25)
    assert {row[1] for row in rows} == {Fate.ANSWERED}
    assert world.counters()["answered"] >= len(rows)


def test_a_path_of_queue_pairs_that_falls_silent_is_told_of_at_once_and_each_second(world: World) -> None:
    watched = [UdWatched(B_AT, B, 51_000 + i, True) for i in range(4)]
    world.a.follow(
        order(
            "a",
            nic="nic0",
            watched=[*watched, UdWatched(B_AT, B, 9, True)],
            pace=WatchPace(hold_down_ns=10**8),
        )
    )
    world.pass_time(1.0, 0.002)
    assert world.down == []
    world.network.dead_sports = {51_002}
    world.pass_time(0.05, 0.002)
    (first,) = world.down
    assert (first.nic, first.paths) == ("nic0", [(B, 51_002)])
    assert first.decided_ns > 0
    world.pass_time(2.0, 0.002)
    assert [(told.paths, told.decided_ns) for told in world.down[1:]] == [([(B, 51_002)], 0)] * (
        len(world.down) - 1
    )
    assert len(world.down) == pytest.approx(3, abs=1)
    world.network.dead_sports = set()
    world.pass_time(1.0, 0.002)
    assert world.down[-1].paths == []
    assert world.counters()["paths_went_down"] == 1
    world.a.follow(order("a", nic="nic0"))
    world.pass_time(2.0)
    sent = world.counters()["pulses_sent"]
    world.pass_time(2.0)
    assert world.counters()["pulses_sent"] == sent


def test_without_a_timeline_there_are_stamps_and_no_delays(world: World) -> None:
    world.a.follow(order("a", paths=PATHS, turns=[0], pairs_per_s=10.0))
    world.pass_time(0.5)
    for row in world.rows():
        _, _, t1, t2, t3, t4, *delays = row
        assert 2 * DELAY_NS <= (t4 - t1) - (t3 - t2) <= 4 * DELAY_NS
        assert delays == [0, 0, UNSYNCED_BOUND_NS]


def test_delays_on_the_timeline_come_from_both_ends_lines(world: World) -> None:
    """Both stamp with one clock, so lines that differ by 5,000 ns make the ways differ by twice that."""
    world.b.follow(order("b", line=line(7_000, 40.5)))
    world.a.follow(order("a", paths=PATHS, turns=[0], pairs_per_s=10.0, line=line(2_000)))
    world.pass_time(0.5)
    assert world.rows()
    for row in world.rows():
        _, _, t1, t2, t3, t4, fwd_ns, rev_ns, bound_ns = row
        assert (fwd_ns, rev_ns) == (t2 - t1 + 5_000, t4 - t3 - 5_000)
        assert bound_ns == 141


def test_what_is_lost_and_what_is_not_sent_are_told_apart(world: World) -> None:
    world.a.follow(order("a", paths=PATHS, turns=[0], pairs_per_s=10.0))
    world.network.lose = True
    world.pass_time(0.3)
    world.network.clock.now_ns += REPLY_TIMEOUT_NS
    world.network.lose, world.network.refuse = False, True
    world.pass_time(0.5)
    fates = Counter(row[1] for row in world.rows())
    assert fates.keys() == {Fate.LOST, Fate.UNSENT}
    assert all(count % 2 == 0 for count in fates.values())


def test_paths_that_an_end_cannot_send_on_are_counted_and_left_out(world: World) -> None:
    few = UdAddress(B, 0x22, (60_001,))
    bad = [
        UdPathOrder(few, 50_001, 60_002),
        UdPathOrder(UdAddress("no GID", 5), 50_001, 60_002),
        UdPathOrder(few, 50_001, 60_001),
    ]
    world.a.follow(order("a", paths=bad, turns=[0, 1, 2], pairs_per_s=30.0))
    world.pass_time(5.0)
    assert {row[0] for row in world.rows()} == {2}
    assert len(world.rows()) == pytest.approx(2 * 50, rel=0.25)
    assert world.counters()["paths_refused"] == 2


def test_a_new_schedule_replaces_the_old_one(world: World) -> None:
    world.a.follow(order("a", version=1, paths=PATHS, turns=[0, 1], pairs_per_s=100.0))
    world.network.lose = True
    world.pass_time(0.05)
    world.a.follow(order("a", version=2, paths=PATHS[:1], turns=[0], pairs_per_s=10.0))
    world.network.lose = False
    world.pass_time(1.0)
    assert {row[0] for word in world.said if word.version == 2 for row in word.rows} == {0}
    assert world.counters()["probes_abandoned"] > 0


def test_keys_are_changed_without_a_probe_lost(world: World) -> None:
    probing = {"paths": PATHS, "turns": [0], "pairs_per_s": 50.0}
    old, new = {1: KEY.hex()}, {2: NEW_KEY.hex()}
    world.a.follow(order("a", **probing))
    world.pass_time(0.2)
    for host, at, more in ((world.b, "b", {}), (world.a, "a", probing)):
        host.follow(order(at, keys=old | new, **more))
    world.pass_time(0.2)
    world.a.follow(order("a", keys=old | new, send_key=2, **probing))
    world.pass_time(0.2)
    world.b.follow(order("b", keys=new, send_key=2))
    world.pass_time(0.2)
    assert {row[1] for row in world.rows()} == {Fate.ANSWERED}
    world.a.follow(order("a", keys=old, **probing))
    world.pass_time(0.1)
    world.network.clock.now_ns += REPLY_TIMEOUT_NS
    world.pass_time(0.2)
    assert Fate.LOST in {row[1] for row in world.rows()}


@pytest.mark.parametrize(
    "error", [RdmaError("there is no RDMA device a"), ConfigError("a port 1 has no RoCE v2 GID of index 3")]
)
def test_a_device_that_is_not_there_is_told_and_tried_again(world: World, error: CwdpError) -> None:
    world.refusal = error
    world.a.follow(order("a", paths=PATHS, turns=[0], pairs_per_s=10.0))
    world.pass_time(OPEN_AGAIN_S * 2.5)
    assert (world.said[-1].address, world.said[-1].trouble) == (None, error.message)
    assert world.counters()["open_failed"] == 3
    world.refusal = None
    world.pass_time(2 * OPEN_AGAIN_S)
    assert (world.said[-1].address, world.said[-1].trouble) == (A_AT, "")
    assert world.rows()


def test_a_device_that_goes_is_noticed_closed_and_opened_again(world: World) -> None:
    world.a.follow(order("a", paths=PATHS, turns=[0], pairs_per_s=10.0))
    world.pass_time(0.5)
    (link,) = (one for one in world.links if one.address == A_AT)
    link.failure = RdmaError("the RDMA device a has gone")
    world.pass_time(SILENT_S + 1.0)
    assert link.closed
    assert "the RDMA device a has gone" in {word.trouble for word in world.said}
    assert None in {word.address for word in world.said[2:]}
    before = len(world.rows())
    world.pass_time(1.0)
    assert len(world.rows()) > before
    assert (world.counters()["failed"], world.counters()["opened"]) == (1, 2)


def test_another_port_is_opened_in_place_of_the_first(world: World) -> None:
    world.a.follow(order("a"))
    world.pass_time(0.1)
    world.a.follow(order("a", gid_index=4))
    world.pass_time(0.1)
    mine = [link.closed for link in world.links if link.address == A_AT]
    assert mine == [True, False]


def test_words_come_often_with_news_and_seldom_without(world: World) -> None:
    world.a.follow(order("a"))
    world.pass_time(10 * SILENT_S)
    assert 9 <= len(world.said) <= 12
    world.a.follow(order("a", version=1, paths=PATHS, turns=[0], pairs_per_s=100.0))
    before = len(world.said)
    world.pass_time(10 * SAY_S)
    assert 8 <= len(world.said) - before <= 11


def test_turns_are_not_made_up_for_without_end() -> None:
    counters = Counter[str]()
    turns = Turns([5, 6], 100.0, 0.0, counters)
    taken = turns.take(10.0)
    assert len(taken) == pytest.approx(100.0 * CATCH_UP_S, abs=4)
    assert counters["pairs_skipped"] == pytest.approx(990, abs=2)
    assert Turns([], 100.0, 0.0, counters).take(10.0) == Turns([1], 0.0, 0.0, counters).take(10.0) == []


def test_a_line_goes_on_from_its_reference() -> None:
    given = msgspec.structs.replace(line(5_000, 10.0), ref_local_ns=1_000, drift=1e-3, bound_drift=1e-2)
    assert read_line(given, 2_000_999) == Reading(7_000, 20_010)
    assert read_line(msgspec.structs.replace(given, state="set_aside"), 0) == UNSYNCED
    assert read_line(msgspec.structs.replace(given, bound_ns=1e12), 0).bound_ns == UNSYNCED_BOUND_NS - 1


@pytest.mark.parametrize("ahead_ns", [None, 7_000])
def test_stamps_are_of_local_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_ns: int | None
) -> None:
    """CLOCK_MONOTONIC_RAW and what the order says, or CLOCK_MONOTONIC where that is not readable; in a lab, the lab's."""
    now_ns, raw_ns = 3_000_000_000, 2_000_000_000
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns)
    monkeypatch.setattr("time.clock_gettime_ns", lambda _which: raw_ns)
    clocks: list[Callable[[], int]] = []

    def opened(_order: UdOrder, clock: Callable[[], int]) -> Link:
        clocks.append(clock)
        raise RdmaError("no such device")

    lab = tmp_path / "clock.npz"
    TestClock.constant(1_000_000_000, 50, 10_000.0).save(lab)
    for number, test_clock in enumerate((None, str(lab))):
        host = UdHost(opened, lambda: 1.0)
        host.follow(order("a", ahead_of_raw_ns=ahead_ns, test_clock=test_clock))
        host.step()
        ahead = 0 if test_clock is None else 50 + 20_000
        own_ns = now_ns if ahead_ns is None else raw_ns + ahead_ns
        assert clocks[number]() == pytest.approx(own_ns + ahead, abs=1)


def test_the_process_ends_with_its_input(world: World) -> None:
    read, write = os.pipe()
    out_read, out = os.pipe()
    process = threading.Thread(target=run, args=(Orders(read, UdOrder), world.a, Words(out)))
    process.start()
    os.write(write, msgspec.json.encode(order("a")) + b"\n")
    with os.fdopen(out_read, "rb") as told:
        assert msgspec.json.decode(told.readline(), type=UdWord).trouble == ""
        os.close(write)
        process.join(10)
        assert not process.is_alive()
    os.close(read)
    os.close(out)


def test_an_agent_that_does_not_read_is_not_waited_for() -> None:
    read, out = os.pipe()
    words = Words(out)
    word = UdWord(address=A_AT, trouble="x" * 200_000, version=1, rows=[], counters={})
    words.say(word)
    assert not words.is_free()
    with os.fdopen(read, "rb") as told:
        line = b""
        while not words.is_free():
            line += told.read1()
        line += told.readline()
    os.close(out)
    assert msgspec.json.decode(line, type=UdWord) == word


def test_nothing_more_is_sent_while_nobody_takes_the_results(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udpairs, "MOST_PENDING", 40)
    monkeypatch.setattr(udpairs, "ROWS_A_WORD", 30)
    world.a.follow(order("a", paths=PATHS, turns=[0], pairs_per_s=100.0))
    for _ in range(100):
        world.now_s += 0.01
        for host in (world.a, world.b, world.a):
            host.step()
    first = world.a.word()
    assert first is not None
    assert (len(first.rows), first.counters["pairs_sent"]) == (30, 20)
    assert first.counters["pairs_held_back"] > 50
