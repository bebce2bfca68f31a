"""Each kind of fault at random places of subnets that carry traffic: the right link or port, in three seconds of polling."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from fat_trees import RATE_BPS, TICKS_PER_S, Shape, Traffic, fat_tree, kept, links_of, way, without
from watched import Watched

from cwdp.shared.ib.counters import NAMES, WORD_BYTES, Growth
from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import NO_PEER, SWITCH, Subnet

SHAPES = (
    Shape(),
    Shape(leaves=2, spines=2, hosts=2),
    Shape(leaves=8, spines=4, hosts=8),
    Shape(leaves=4, spines=2, hosts=4, parallel=3),
    Shape(leaves=4, spines=4, hosts=3, adapters=2),
)
POLLS = 3
WARM = 4
FULL_WORDS = RATE_BPS / 8 / WORD_BYTES


@dataclass
class Fault:
    """What is wrong from now on: another subnet, what counters grow by besides, and what should be found."""

    subnet: Subnet
    per_s: dict[tuple[int, str], float]
    found: set[tuple[str, str]]
    silenced: tuple[int, ...] = ()


Make = Callable[[Subnet, np.random.Generator], Fault]


def host_port(subnet: Subnet, row: int) -> bool:
    return bool(subnet.kinds[subnet.ports["node"][row]] != SWITCH)


def cable_name(subnet: Subnet, pair: tuple[int, int]) -> str:
    a, b = sorted(pair, key=lambda row: (not host_port(subnet, row), Names(subnet).ports[row]))
    return f"{Names(subnet).ports[a]} - {Names(subnet).ports[b]}"


def some_link(subnet: Subnet, draw: np.random.Generator) -> tuple[int, int]:
    a, b = draw.permuted(draw.choice(subnet.links)).tolist()
    return a, b


def down(subnet: Subnet, draw: np.random.Generator) -> Fault:
    pair = some_link(subnet, draw)
    gone = tuple(int(subnet.ports["node"][row]) for row in pair if host_port(subnet, row))
    gone = tuple(node for node in gone if len(links_of(subnet, node)) == 1)
    return Fault(without(subnet, [pair], gone), {}, {("dead", cable_name(subnet, pair))})


def switch_gone(subnet: Subnet, draw: np.random.Generator) -> Fault:
    node = int(draw.choice(subnet.switches))
    subject = ("dead", subnet.names[node])
    links = links_of(subnet, node)
    alone = [
        int(subnet.ports["node"][far])
        for _, far in links
        if host_port(subnet, far) and len(links_of(subnet, int(subnet.ports["node"][far]))) == 1
    ]
    return Fault(without(subnet, links, (node, *alone)), {}, {subject})


def host_gone(subnet: Subnet, draw: np.random.Generator) -> Fault:
    name = str(
        draw.choice([n for n, kind in zip(subnet.names, subnet.kinds, strict=True) if kind != SWITCH])
    ).split()[0]
    nodes = tuple(i for i, each in enumerate(subnet.names) if each.split()[0] == name)
    links = [link for node in nodes for link in links_of(subnet, node)]
    found = name if len(links) > 1 else cable_name(subnet, links[0])
    return Fault(without(subnet, links, nodes), {}, {("dead", found)})


def flapping(subnet: Subnet, draw: np.random.Generator) -> Fault:
    pair = some_link(subnet, draw)
    name = str(draw.choice(["link_downed", "link_recoveries"]))
    return Fault(subnet, {(pair[0], name): 3.0}, {("flapping", cable_name(subnet, pair))})


def slower(subnet: Subnet, draw: np.random.Generator) -> Fault:
    pair = some_link(subnet, draw)
    ports = subnet.ports.copy()
    field, value = [("width", 1), ("width", 2), ("lane_bps", 10_000_000_000)][draw.integers(3)]
    ports[field][list(pair)] = value
    return Fault(replace(subnet, ports=ports), {}, {("degraded", cable_name(subnet, pair))})


def errors(subnet: Subnet, draw: np.random.Generator) -> Fault:
    to, by = some_link(subnet, draw)
    name = str(draw.choice(["symbol_errors", "receive_errors"]))
    found = {("bit_errors", f"{Names(subnet).ports[by]} > {Names(subnet).ports[to]}")}
    return Fault(subnet, {(to, name): float(draw.uniform(6, 500))}, found)


def _senders(subnet: Subnet, draw: np.random.Generator, dst: int, most: int) -> list[list[int]]:
    """Ways of others to a host's port, without those below its own leaf."""
    leaf = subnet.ports["node"][subnet.ports["peer"][dst]]
    hosts = [
        row
        for row in range(len(subnet.ports))
        if host_port(subnet, row) and subnet.ports["node"][subnet.ports["peer"][row]] != leaf
    ]
    return [list(way(subnet, int(src), dst)) for src in draw.permutation(hosts)[:most]]


def slow_receiver(subnet: Subnet, draw: np.random.Generator) -> Fault:
    dst = int(draw.choice([row for row in range(len(subnet.ports)) if host_port(subnet, row)]))
    last = int(subnet.ports["peer"][dst])
    per_s = {(row, "send_wait"): 0.5 * TICKS_PER_S for ways in _senders(subnet, draw, dst, 4) for row in ways}
    return Fault(
        subnet,
        per_s,
        {("slow_receiver", f"{Names(subnet).ports[last]} > {Names(subnet).ports[dst]}")},
        (last,),
    )


def incast(subnet: Subnet, draw: np.random.Generator) -> Fault:
    dst = int(draw.choice([row for row in range(len(subnet.ports)) if host_port(subnet, row)]))
    last = int(subnet.ports["peer"][dst])
    waits = {row for ways in _senders(subnet, draw, dst, 4) for row in ways} - {last}
    per_s = {(row, "send_wait"): 0.4 * TICKS_PER_S for row in waits} | {
        (last, "sent_words"): 0.97 * FULL_WORDS
    }
    return Fault(
        subnet, per_s, {("congested", f"{Names(subnet).ports[last]} > {Names(subnet).ports[dst]}")}, (last,)
    )


def full_between_switches(subnet: Subnet, draw: np.random.Generator) -> Fault:
    dst = int(draw.choice([row for row in range(len(subnet.ports)) if host_port(subnet, row)]))
    ways = _senders(subnet, draw, dst, 1)[0]
    root, far = ways[1], int(subnet.ports["peer"][ways[1]])
    leaf = int(subnet.ports["node"][root])
    waits = [far for _, far in links_of(subnet, leaf) if host_port(subnet, far)][:3]
    per_s = {(row, "send_wait"): 0.4 * TICKS_PER_S for row in waits} | {
        (root, "sent_words"): 0.99 * FULL_WORDS
    }
    return Fault(
        subnet, per_s, {("congested", f"{Names(subnet).ports[root]} > {Names(subnet).ports[far]}")}, (root,)
    )


MAKERS = (
    down, switch_gone, host_gone, flapping, slower, errors, slow_receiver, incast, full_between_switches,
)  # fmt: skip


def healthy(subnet: Subnet, traffic: Traffic, fault: Fault | None = None) -> Growth:
    """Of a second; ports whose traffic is the fault's own send nothing else."""
    growth = traffic.growth(subnet)
    if fault is not None:
        sent = NAMES.index("sent_words")
        for row in fault.silenced:
            growth.per_s[row, sent] = 0.3 * FULL_WORDS
        for (row, name), value in fault.per_s.items():
            column = NAMES.index(name)
            growth.per_s[row, column] = value if column == sent else growth.per_s[row, column] + value
    return growth


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_faults_are_named_rightly_in_three_polls(make: Make) -> None:
    right, tried = 0, 0
    wrong = []
    for seed in range(40):
        draw = np.random.default_rng([seed, MAKERS.index(make)])
        shape = SHAPES[seed % len(SHAPES)]
        subnet, traffic, watched = fat_tree(shape), Traffic(draw), Watched()
        for _ in range(WARM):
            watched.poll(subnet, healthy(subnet, traffic))
        fault = make(subnet, draw)
        for _ in range(POLLS):
            watched.poll(fault.subnet, healthy(fault.subnet, traffic, fault))
        tried += 1
        right += watched.found == fault.found
        if watched.found != fault.found:
            wrong.append((seed, fault.found, watched.found))
    assert right >= 0.99 * tried, wrong


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_is_mended_is_over(make: Make) -> None:
    draw = np.random.default_rng(5)
    subnet, watched = fat_tree(SHAPES[0]), Watched()
    traffic, fault = Traffic(draw), make(subnet, draw)
    for each in (None, None, fault, fault, fault, fault):
        told = subnet if each is None else each.subnet
        watched.poll(told, healthy(told, traffic, each))
    assert watched.found == fault.found
    for _ in range(650 if make is flapping else 400 if make is errors else 8):
        watched.poll(subnet, healthy(subnet, traffic))
    assert watched.found == set()
    (began, over) = watched.events
    assert over[0] == f"{began[0]}_over"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ten_minutes_without_a_fault_find_nothing(shape: Shape) -> None:
    subnet, traffic, watched = fat_tree(shape), Traffic(np.random.default_rng(7)), Watched()
    for _ in range(600):
        watched.poll(subnet, traffic.growth(subnet))
    assert watched.events == []


def test_a_host_that_boots_is_not_flapping() -> None:
    draw = np.random.default_rng(3)
    subnet, traffic, watched = fat_tree(SHAPES[0]), Traffic(draw), Watched()
    fault = host_gone(subnet, draw)
    for told in (subnet, *[fault.subnet] * 5, *[subnet] * 3, *[fault.subnet] * 5, *[subnet] * 8):
        watched.poll(told, traffic.growth(told))
    assert {kind for kind, _ in watched.events} == {"link_dead", "link_dead_over"}


def test_a_cable_that_is_put_elsewhere_is_no_fault() -> None:
    draw = np.random.default_rng(3)
    subnet, traffic, watched = fat_tree(Shape(leaves=4, spines=2, hosts=2)), Traffic(draw), Watched()
    watched.poll(subnet, traffic.growth(subnet))
    (a, b), (c, d) = subnet.links[:2].tolist()
    ports = subnet.ports.copy()
    ports["peer"][[a, d]] = d, a
    for row in (b, c):
        ports["peer"][row], ports["state"][row], ports["is_linked"][row] = NO_PEER, 1, False
    moved = replace(subnet, ports=ports)
    for _ in range(5):
        watched.poll(moved, traffic.growth(moved))
    assert watched.found == set()


def test_damage_that_is_only_seen_behind_its_place() -> None:
    subnet, watched = fat_tree(SHAPES[0]), Watched()
    traffic = Traffic(np.random.default_rng(1))
    src, dst = (int(np.flatnonzero(subnet.ports["lid"] == lid)[0]) for lid in (1, 16))
    ways = list(way(subnet, src, dst))
    ends = [int(subnet.ports["peer"][row]) for row in ways]
    watched.poll(subnet, traffic.growth(subnet))
    traffic.per_s = {(row, "remote_physical_errors"): 40.0 for row in ends[1:]}
    for _ in range(3):
        watched.poll(subnet, traffic.growth(subnet))
    assert watched.found == {
        ("bit_errors", f"{Names(subnet).ports[ways[1]]} > {Names(subnet).ports[ends[1]]}")
    }
    assert "counts no damage" in watched.events[0][1]


def test_damage_is_named_where_it_is_counted_and_not_behind_it() -> None:
    subnet, watched = fat_tree(SHAPES[0]), Watched()
    traffic = Traffic(np.random.default_rng(1))
    src, dst = (int(np.flatnonzero(subnet.ports["lid"] == lid)[0]) for lid in (1, 16))
    ways = list(way(subnet, src, dst))
    ends = [int(subnet.ports["peer"][row]) for row in ways]
    watched.poll(subnet, traffic.growth(subnet))
    traffic.per_s = {(row, "remote_physical_errors"): 40.0 for row in ends[1:]} | {
        (ends[0], "symbol_errors"): 40.0
    }
    for _ in range(3):
        watched.poll(subnet, traffic.growth(subnet))
    assert watched.found == {
        ("bit_errors", f"{Names(subnet).ports[ways[0]]} > {Names(subnet).ports[ends[0]]}")
    }


def test_a_circle_of_ports_that_wait_is_one_tree() -> None:
    subnet, watched = fat_tree(Shape(leaves=3, spines=1, hosts=1)), Watched()
    growth = Traffic(np.random.default_rng(1)).growth(subnet)
    growth.per_s[:, NAMES.index("send_wait")] = 0.0
    up = [
        row
        for row in range(len(subnet.ports))
        if not host_port(subnet, row) and subnet.ports["peer"][row] != NO_PEER
    ]
    growth.per_s[up, NAMES.index("send_wait")] = 0.6 * TICKS_PER_S
    for _ in range(3):
        watched.poll(subnet, growth)
    assert {kind for kind, _ in watched.found} <= {"congested", "slow_receiver"}


def liar(growth: Growth, draw: np.random.Generator) -> Growth:
    del draw
    growth.per_s[3] = 1e3 * FULL_WORDS
    return growth


def nothing_known(growth: Growth, draw: np.random.Generator) -> Growth:
    del draw
    return Growth(np.full_like(growth.per_s, np.nan), growth.stuck)


def cleared(growth: Growth, draw: np.random.Generator) -> Growth:
    return Growth(growth.per_s * (draw.random() < 0.5), growth.stuck)


def infinite(growth: Growth, draw: np.random.Generator) -> Growth:
    growth.per_s[draw.integers(len(growth.per_s))] = np.inf
    return growth


def of_other_rows(growth: Growth, draw: np.random.Generator) -> Growth:
    del draw
    return Growth(growth.per_s[1:], growth.stuck[1:])


@pytest.mark.parametrize(
    "lie", [liar, nothing_known, cleared, infinite, of_other_rows], ids=lambda lie: lie.__name__
)
def test_lies_accuse_nobody_but_the_liar(lie: Callable[[Growth, np.random.Generator], Growth]) -> None:
    draw = np.random.default_rng(9)
    subnet, watched = fat_tree(SHAPES[0]), Watched()
    traffic = Traffic(draw)
    for _ in range(60):
        watched.poll(subnet, lie(traffic.growth(subnet), draw))
    expected = {("counters", Names(subnet).ports[3])} if lie is liar else set()
    assert {each for each in watched.found if lie is not infinite or each[0] != "counters"} == expected
    if lie is liar:
        assert watched.faults.trust.refused["nonsense"] == 60
    if lie is of_other_rows:
        assert watched.faults.trust.refused["rows"] == 60


def test_rows_that_go_and_come_back_and_other_lids_change_nothing() -> None:
    draw = np.random.default_rng(11)
    whole, traffic, watched = fat_tree(SHAPES[2]), Traffic(draw), Watched()
    other = fat_tree(SHAPES[2], first_lid=500)
    for poll in range(120):
        told = other if poll % 3 == 0 else whole
        if poll % 2:
            told = kept(told, draw.random(len(told.guids)) < 0.9)
        watched.poll(told, traffic.growth(told) if poll % 5 else None)
    assert watched.events == []


def test_a_fault_stays_while_nothing_is_told_of_it() -> None:
    draw = np.random.default_rng(2)
    subnet, traffic, watched = fat_tree(SHAPES[0]), Traffic(draw), Watched()
    fault = down(subnet, draw)
    for told in (subnet, fault.subnet, fault.subnet):
        watched.poll(told, traffic.growth(told))
    one = kept(subnet, np.arange(len(subnet.guids)) == len(subnet.guids) - 1)
    for _ in range(20):
        watched.poll(one, None)
    assert watched.found == fault.found


def test_counters_at_their_most_are_told() -> None:
    subnet, watched = fat_tree(SHAPES[0]), Watched()
    traffic = Traffic(np.random.default_rng(1))
    for _ in range(3):
        growth = traffic.growth(subnet)
        growth.stuck[7, NAMES.index("link_downed")] = True
        watched.poll(subnet, growth)
    assert watched.found == {("counters", Names(subnet).ports[7])}
    assert "link_downed stand at their most" in watched.events[0][1]


def test_a_tree_names_its_root_its_kind_and_who_waits() -> None:
    draw = np.random.default_rng(4)
    subnet, traffic, watched = fat_tree(SHAPES[0]), Traffic(draw), Watched()
    fault = slow_receiver(subnet, draw)
    for _ in range(POLLS):
        watched.poll(subnet, healthy(subnet, traffic, fault))
    (finding,) = watched.findings.current.values()
    said = "; ".join(finding.evidence)
    assert "takes less than its link could bring" in said
    assert "ports wait for it" in said


@pytest.mark.parametrize("seed", range(3))
def test_several_faults_at_once_are_each_named(seed: int) -> None:
    draw = np.random.default_rng([seed, 77])
    subnet, traffic, watched = fat_tree(SHAPES[2]), Traffic(draw), Watched()
    watched.poll(subnet, traffic.growth(subnet))
    faults = [errors(subnet, draw), slower(subnet, draw), flapping(subnet, draw)]
    told = faults[1].subnet
    traffic.per_s = faults[0].per_s | faults[2].per_s
    for _ in range(3):
        watched.poll(told, traffic.growth(told))
    assert watched.found == set.union(*(fault.found for fault in faults))
