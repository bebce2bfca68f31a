"""Rounds of flows over fabrics in arithmetic: what is filled, what is found slow, who is accused."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from manager.audit.results import Result
from manager.audit.throughput.course import MOST_OF_ALL, Course
from manager.audit.throughput.judged import BISECTION, NIC_RATE, THROUGHPUT, carried, judged
from tools.sim.audit.carrying import NIC_BPS, Fabric, run

SHAPES: list[dict[str, Any]] = [
    {},
    {"hosts": 1},
    {"hosts": 2},
    {"leaves": 2, "spines": 2},
    {"leaves": 3, "spines": 5, "hosts": 3},
    {"leaves": 8, "spines": 2, "hosts": 6},
    {"uplink_bps": 4 * NIC_BPS},
    {"uplink_bps": 2 * NIC_BPS},
    {"uplink_bps": 0.4 * NIC_BPS},
    {"leaves": 2, "hosts": 3, "pods": 2, "cores": 2, "spines": 2},
]


def found(course: Course) -> list[Result]:
    return judged(course, {}, 0)[0]


def named(course: Course) -> list[tuple[str, str]]:
    return sorted((one.host, one.subject) for one in found(course) if one.verdict == "fail")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_link_is_filled_in_few_rounds(shape: dict[str, Any]) -> None:
    fabric = Fabric(**shape)
    course, rounds = run(fabric)
    assert 0 < course.filled_after <= 12
    assert len(rounds) == course.done <= MOST_OF_ALL
    for now in rounds:
        sends, receives = zip(*(course.ways.ends(row) for row in now.rows), strict=True)
        assert max(Counter(sends).values()) == max(Counter(receives).values()) == 1
    results, passed = judged(course, {}, 0)
    assert results == []
    assert passed == {THROUGHPUT: len(course.ways.known), BISECTION: 1}


def test_one_flow_does_not_fill_a_link_that_carries_two() -> None:
    """The first round crosses all links; they are full once two flows have met on each."""
    course, rounds = run(Fabric(leaves=2, uplink_bps=2 * NIC_BPS))
    assert [now.kind for now in rounds[:2]] == ["fill", "meet"]
    full = [now for now in rounds[: course.filled_after] if now.kind == "fill" and now.used.max() == 2]
    assert full
    assert course.filled_after > len(rounds[:2])


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_accused_where_all_is_well(seed: int) -> None:
    """Now and then a flow gets half, as others have the processor."""
    fabric = Fabric(**SHAPES[seed % len(SHAPES)], seed=seed, accidents=0.02, noise=0.08)
    course, _ = run(fabric, seed)
    assert named(course) == []


@pytest.mark.parametrize("seed", range(40))
def test_a_slow_link_is_named_and_nothing_else(seed: int) -> None:
    draw = random.Random(seed)
    shape = SHAPES[seed % len(SHAPES)]
    fabric = Fabric(**shape, seed=seed)
    links = [
        link for link in fabric.ways(seed).links if "/" not in link.a + link.b or fabric.uplink_bps >= NIC_BPS
    ]
    link = draw.choice(links)
    slow = Fabric(**shape, seed=seed, slow_bps={tuple(link): 0.5 * fabric.capacity(link)})
    course, _ = run(slow, seed)
    (one,) = (result for result in found(course) if result.check != BISECTION)
    assert f"{link.a} > {link.b}" in one.subject + one.found
    assert (one.check, one.verdict) == (THROUGHPUT, "fail")
    assert "carries 5" in one.found or "carries 4" in one.found


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_path_is_named_though_its_links_are_well(seed: int) -> None:
    """With two leaves the links of a spine lead nowhere else, and would be slow themselves."""
    able = [
        shape
        for shape in SHAPES
        if not shape.get("pods") and shape.get("uplink_bps", NIC_BPS) == NIC_BPS and shape.get("leaves") != 2
    ]
    shape, draw = able[seed % len(able)], random.Random(seed)
    leaves, spines = shape.get("leaves", 4), shape.get("spines", 4)
    a, b = draw.sample(range(leaves), 2)
    way = (f"l{a}", f"p0s{draw.randrange(spines)}", f"l{b}")
    fabric = Fabric(**shape, seed=seed, degree=64, slow_ways_bps={way: 0.5 * NIC_BPS})
    course, _ = run(fabric, seed)
    results = found(course)
    assert len(results) == 1
    assert " > ".join(way) in results[0].subject
    assert "of other paths" in results[0].found


def test_several_at_once() -> None:
    slow = {("l1", "p0s2"): 0.5, ("p0s0", "l3"): 0.3, ("h9/nic0", "l2"): 0.5, ("l0", "h2/nic0"): 0.7}
    fabric = Fabric(slow_bps={link: share * NIC_BPS for link, share in slow.items()})
    course, _ = run(fabric)
    assert named(course) == [
        ("fabric", "l1 > p0s2"),
        ("fabric", "p0s0 > l3"),
        ("h2", "nic0: l0 > h2/nic0"),
        ("h9", "nic0: h9/nic0 > l2"),
    ]


@pytest.mark.parametrize(("way", "word"), [(("l1", "p0s{}"), "to"), (("p0s{}", "l1"), "from")])
def test_a_whole_leaf_that_is_slow(way: tuple[str, str], word: str) -> None:
    """All of its uplinks are; the others tell that they should not be."""
    links = {(way[0].format(spine), way[1].format(spine)): 0.5 * NIC_BPS for spine in range(4)}
    course, _ = run(Fabric(slow_bps=links))
    (one,) = found(course)
    assert (one.host, one.subject) == ("fabric", "l1")
    assert f"each of its 4 links {word} other switches carries 50 %" in one.found


def test_nics_of_two_speeds() -> None:
    """Half of the hosts have slower ones; they are no fault."""
    fabric = Fabric(slow_bps={})
    slow = {nic for nic in fabric.nics if int(nic[1:].partition("/")[0]) % 2}
    links = {tuple(link): 0.25 * NIC_BPS for link in fabric.ways().links if slow.intersection(link)}
    mixed = Fabric(slow_bps=links)
    speeds = {nic: round((0.25 if nic in slow else 1) * NIC_BPS) for nic in mixed.nics}
    course, _ = run(mixed, speeds=speeds)
    assert named(course) == []


def test_all_are_slower_than_they_say() -> None:
    fabric = Fabric()
    speeds = dict.fromkeys(fabric.nics, round(NIC_BPS))
    course, _ = run(fabric, speeds=speeds, told=lambda bps: {row: rate / 2 for row, rate in bps.items()})
    (one,) = found(course)
    assert (one.check, one.verdict) == (NIC_RATE, "warn")
    assert "100gbit" in one.found


def test_hosts_that_take_no_part_are_told_and_what_they_leave_unfilled() -> None:
    fabric = Fabric(hosts=1)
    course, _ = run(fabric, without=["h2/nic0"])
    results, _ = judged(course, {"h2/nic0": "queue pairs send on nic0"}, 0)
    told = {(one.host, one.subject, one.verdict): one.reason for one in results}
    assert told["h2", "nic0", "unknown"] == "queue pairs send on nic0"
    assert "of 40 links, one way each, 10 were not filled" in told["fabric", "", "unknown"]


def test_flows_that_are_not_told_are_planned_again() -> None:
    fabric, draw = Fabric(), random.Random(3)

    def some(bps: dict[int, float]) -> dict[int, float]:
        return {row: rate for row, rate in bps.items() if draw.random() < 0.7}

    course, _ = run(fabric, told=some)
    assert course.filled_after
    assert named(course) == []


def test_nothing_is_told() -> None:
    course, rounds = run(Fabric(), told=lambda _: {})
    assert len(rounds) <= MOST_OF_ALL
    assert {one.verdict for one in found(course)} == {"unknown"}
    assert carried(course, 0).filled == 0


def test_a_fabric_of_which_no_path_is_known() -> None:
    course, rounds = run(Fabric(degree=0))
    assert rounds == []
    (one,) = found(course)
    assert one.reason == "no path is known between NICs that may send"


def test_too_few_flows_accuse_nobody() -> None:
    fabric = Fabric(leaves=2, spines=1, hosts=1, slow_bps={("l0", "p0s0"): 0.5 * NIC_BPS})
    course, _ = run(fabric)
    assert [one.verdict for one in found(course)] in ([], ["unknown"])


def test_halves_of_the_fabric_that_get_less_than_their_links_carry() -> None:
    """As where links share a port group of a switch."""
    course, rounds = run(Fabric())
    assert carried(course, 0).halves_bps > 0.95 * carried(course, 0).halves_bound_bps
    done, bps = course.halves or pytest.fail("no halves")
    course.halves = done, {row: 0.6 * rate for row, rate in bps.items()}
    (one,) = found(course)
    assert (one.check, one.verdict) == (BISECTION, "warn")
    assert rounds[-1].kind == "halves"


def test_a_large_fleet_is_planned_in_seconds() -> None:
    slow = {("l1", "p0s2"): 0.5 * NIC_BPS, ("p0s3", "l9"): 0.5 * NIC_BPS}
    fabric = Fabric(leaves=16, spines=8, hosts=16, slow_bps=slow)
    course, _ = run(fabric)
    assert named(course) == [("fabric", "l1 > p0s2"), ("fabric", "p0s3 > l9")]
    assert np.count_nonzero(course.filled) == len(course.ways.known) == 2 * (256 + 128)


def test_a_path_that_carries_nothing() -> None:
    course, _ = run(Fabric(degree=64, slow_ways_bps={("l0", "p0s1", "l2"): 0.0}))
    (one,) = found(course)
    assert "l0 > p0s1 > l2" in one.subject
    assert "carries 0 %" in one.found
