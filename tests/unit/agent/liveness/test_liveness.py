"""Liveness at scale: ways from traces, acknowledgements, the tables of several NICs, and the whole in the simulation."""

import json
import random

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from cwdp.agent.liveness.acknowledged import Acknowledged
from cwdp.agent.liveness.watchedpaths import HostPaths, NicPaths, WayKey
from cwdp.agent.liveness.ways import ways
from cwdp.agent.tracing.packets import FlowPath
from cwdp.agent.tracing.table import Found, Hops
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, SteerFlag
from cwdp.dataplane.steering.steering import parse_address
from cwdp.shared.addresses import address_bytes
from tools.sim.__main__ import main
from tools.sim.liveness.simulation import FABRICS, Shape, Traffic, cut_cables, false_switches, run_of


def _found(ifname: str, dst: str, sport: int, *hops: str | None, reached: bool = True) -> Found:
    return Found(FlowPath(ifname, "10.0.0.1", dst, sport), tuple(hops), reached)


def _key(found: Found) -> WayKey:
    path = found.path
    return path.ifname, address_bytes(parse_address(path.destination)), path.sport, path.protocol


def _links(*found: Found) -> list[tuple[int, ...]]:
    """Of each, in the order given."""
    by_key = {
        (way.ifname, way.dst, way.sport, way.protocol): way.links
        for way in ways(found, {_key(one) for one in found})
    }
    return [by_key[_key(one)] for one in found]


def test_links_are_the_same_between_the_same_switches_whatever_the_nic() -> None:
    a, b, c = _links(
        _found("n0", "10.0.1.1", 50_000, "leaf1", "spine1", "leaf2"),
        _found("n0", "10.0.1.2", 50_001, "leaf1", "spine1", "leaf3"),
        _found("n1", "10.0.2.1", 50_000, "leaf1", "spine1", "leaf2"),
    )
    assert (len(a), len(b), len(c)) == (3, 3, 3)
    assert a[:2] == b[:2]
    assert a[2] != b[2]
    assert a[1:] == c[1:]
    assert a[0] != c[0]


def test_a_destination_own_link_is_none_of_them() -> None:
    below, other = _links(
        _found("n0", "10.0.1.1", 50_000, "leaf1"), _found("n0", "10.0.1.2", 50_000, "leaf1")
    )
    assert below == other
    assert len(below) == 1


def test_what_a_trace_does_not_show_is_nobody_elses() -> None:
    a, b = _links(
        _found("n0", "10.0.1.1", 50_000, "leaf1", None, "leaf2"),
        _found("n0", "10.0.1.1", 50_001, "leaf1", None, "leaf2"),
    )
    assert a[0] == b[0]
    assert not set(a[1:]) & set(b[1:])
    whole, cut_off = _links(
        _found("n0", "10.0.1.1", 50_000, "leaf1", "spine1", "leaf2"),
        _found("n0", "10.0.1.2", 50_000, "leaf1", "spine1", reached=False),
    )
    assert whole[:2] == cut_off[:2]
    assert len(set(cut_off) - set(whole)) == 1


def test_ways_are_only_of_watched_paths_and_do_not_hang_on_the_order_of_traces() -> None:
    hops: list[Hops] = [("leaf1", f"spine{i}", "leaf2") for i in range(6)]
    found = [_found("n0", f"10.0.1.{i}", 50_000 + i, *hops[i]) for i in range(6)]
    watched = {_key(one) for one in found[:4]}
    told = ways(found, watched)
    assert {(way.ifname, way.dst, way.sport, way.protocol) for way in told} == watched
    random.Random(1).shuffle(found)
    assert ways(found, watched) == told


class _QueuePairs:
    """The tables of an interface, and queue pairs that send and are answered."""

    def __init__(self) -> None:
        self.qps = {direction: np.zeros(64, dtype=abi.QP) for direction in Direction}
        self.made = 0

    def qp_places_made(self) -> int:
        return self.made

    def open(self, place: int, dst: str, path: int, *, steered: bool = True) -> None:
        """A queue pair that sends, and the other direction of it."""
        for table, at in ((self.qps[Direction.EGRESS], place), (self.qps[Direction.INGRESS], 63 - place)):
            table["tag"][at] = 100 + place
            table["key"]["addr"][at] = np.frombuffer(address_bytes(parse_address(dst)), dtype=">u4")
        out = self.qps[Direction.EGRESS]
        out["path"][place], out["flags"][place] = path, SteerFlag.ON if steered else 0
        out["used_sport"][place], out["sport"][place] = 50_000, 50_000
        out["backup_sport"][place], out["backup_path"][place] = 50_001, path + 1
        self.made += 1

    def send(self, *places: int) -> None:
        self.qps[Direction.EGRESS]["next_psn"][list(places)] += 1

    def answer(self, *places: int, field: str = "acks") -> None:
        self.qps[Direction.INGRESS][field][[63 - place for place in places]] += 1


@pytest.fixture
def pairs() -> _QueuePairs:
    pairs = _QueuePairs()
    pairs.open(3, "10.0.0.2", 10)
    pairs.open(4, "10.0.0.2", 20)
    pairs.open(5, "10.0.0.0", 30)
    return pairs


def _heard(acknowledged: Acknowledged) -> tuple[set[int], set[int]]:
    sent, answered = acknowledged.heard()
    return set(sent.tolist()), set(answered.tolist())


@pytest.mark.parametrize("field", ["acks", "next_response_psn"])
def test_a_path_is_alive_whose_queue_pair_is_answered(pairs: _QueuePairs, field: str) -> None:
    acknowledged = Acknowledged(pairs)
    assert _heard(acknowledged) == (set(), set())
    pairs.send(3, 4, 5)
    pairs.answer(3, 4, field=field)
    assert _heard(acknowledged) == ({10, 20, 30}, {10, 20})


def test_no_path_is_taken_to_be_alive_for_anothers_answers(pairs: _QueuePairs) -> None:
    """Which of two to one destination was answered, nobody knows."""
    acknowledged = Acknowledged(pairs)
    pairs.send(3, 4)
    pairs.answer(4)
    assert _heard(acknowledged) == ({10, 20}, set())


def test_answers_are_soon_forgotten(pairs: _QueuePairs) -> None:
    acknowledged = Acknowledged(pairs)
    pairs.send(5)
    pairs.answer(5)
    for _ in range(5):
        pairs.send(5)
        _heard(acknowledged)
    pairs.send(5)
    assert _heard(acknowledged) == ({30}, set())


def test_a_queue_pair_on_its_backup_speaks_for_that(pairs: _QueuePairs) -> None:
    acknowledged = Acknowledged(pairs)
    pairs.qps[Direction.EGRESS]["used_sport"][5] = 50_001
    pairs.send(5)
    pairs.answer(5)
    assert _heard(acknowledged) == ({31}, {31})


def test_queue_pairs_that_are_new_are_found(pairs: _QueuePairs) -> None:
    acknowledged = Acknowledged(pairs)
    pairs.open(6, "fd00::2", 40)
    acknowledged.search()
    pairs.send(6)
    pairs.answer(6)
    assert _heard(acknowledged) == ({40}, {40})


class _Answers:
    def heard(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.array([7, 0, 99]), np.array([7])


def test_the_paths_of_several_nics_are_one_table() -> None:
    tables = [np.zeros(128, dtype=abi.PATH) for _ in range(3)]
    watching: list[list[int]] = [[7, 9], [], [7]]
    for table, numbers in zip(tables, watching, strict=True):
        table["users"][numbers] = 1
        table["dst"][numbers] = np.frombuffer(address_bytes(parse_address("10.0.0.2")), dtype=">u4")
        table["sport"][numbers] = 50_000 + np.array(numbers, dtype=int)
        table["slow_ns"][numbers] = numbers
    tables[0]["primaries"][7] = tables[2]["primaries"][7] = 1
    paths = HostPaths(
        [
            NicPaths(name, np.array(numbers, dtype=np.intp), table, np.array([[7, 9]]), _Answers())
            for name, numbers, table in zip("abc", watching, tables, strict=True)
        ]
    )
    dst = address_bytes(parse_address("10.0.0.2"))
    watched = paths.watched({("a", dst, 50_007, 0): (0, 1), ("c", dst, 50_007, 0): (1, 2, 3)})
    assert paths.read("slow_ns").tolist() == [7, 9, 7]
    assert watched.is_primary.tolist() == [True, False, True]
    assert watched.pairs.tolist() == [[0, 1]]
    a, unknown, c = (set(row.tolist()) - {-1} for row in watched.links)
    assert (a, c) == ({0, 1}, {1, 2, 3})
    assert len(unknown) == 1
    assert not unknown & (a | c)
    sent, answered = paths.heard()
    assert sent.tolist() == answered.tolist() == [True, False, True]


@pytest.fixture(params=[("rails", 0.2), ("wide", 1.0), ("three-tiers", 1.0)], ids=lambda param: param[0])
def busy(request: pytest.FixtureRequest) -> tuple[Shape, Traffic]:
    name, active = request.param
    return FABRICS[name], Traffic(active=active)


def test_two_thousand_paths_are_watched_as_few_are(busy: tuple[Shape, Traffic]) -> None:
    """At 20,000 pulses a second; one by one, as many take ten times as long."""
    found = cut_cables(run_of(*busy, seed=5), cuts=2, seed=5)
    assert found.paths == 2048
    assert found.p99_ms <= 15.0
    assert found.pulses_per_s <= 20_000
    each = cut_cables(run_of(*busy, seed=5, each_per_s=50_000.0), cuts=1, seed=5)
    assert each.p50_ms > 40.0


def test_nothing_is_given_up_for_lost_pulses() -> None:
    run = run_of(FABRICS["leaf"], Traffic(lost=0.05), seed=3)
    assert false_switches(run, seconds=1.0).switches == 0


def test_bursts_make_no_more_false_switches_than_where_every_path_is_asked_each_turn() -> None:
    traffic = Traffic(bursts_per_s=2.0, burst_ms=4.0)
    planned, every = (
        false_switches(run_of(FABRICS["rails"], traffic, 3, each), seconds=1.5).switches
        for each in (None, 1e9)
    )
    assert planned <= every


def test_the_command_tells_both() -> None:
    for options in (["--cuts", "1"], ["--cuts", "0", "--seconds", "1"]):
        result = CliRunner().invoke(main, ["liveness", "--json", *options])
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)[0]["paths"] == 2048


@pytest.mark.parametrize("seed", [7, 42])
def test_every_path_that_a_cut_hits_is_given_up_though_answers_of_its_backup_are_lost(seed: int) -> None:
    """Answers come back any way, so some over the cable that was cut: the backup is asked again."""
    found = cut_cables(run_of(FABRICS["leaf"], Traffic(), seed), 10, seed)
    assert found.max_ms < 50
    assert found.pulses_per_s <= 20_000
