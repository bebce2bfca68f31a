"""What is amiss in subnets: fat trees that are drawn, with tables that are drawn, and some that are not whole."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import CHANNEL_ADAPTER, NO_PEER, NO_ROUTE, PORT, SWITCH, Subnet, pack, unpack
from manager.ib import evenness
from manager.ib.audit import Finding, findings_of, in_words, names_twice, subjects_of
from manager.ib.evenness import balance
from tools.ib.topology import Clos

LANE_BPS = 10_000_000_000
Choose = Callable[[int, int], int]
"""Which of so many links up to take for a LID."""


def in_turns(lid: int, count: int) -> int:
    return lid % count


def one(lid: int, count: int) -> int:
    del lid, count
    return 0


def subnet_of(clos: Clos, lmc: int = 0, choose: Choose = in_turns) -> Subnet:
    """A fat tree with tables: leaves choose by `choose`, spines too among parallel links."""
    wires = clos.nodes()
    names = tuple(wires)
    rows, own = [], {}
    lids = iter(range(1, 60_000))
    by_host = {name: next(lids) * (1 << lmc) for name in names if name.startswith("h")}
    for node, name in enumerate(names):
        numbers = sorted(wires[name]) if name in by_host else [0, *sorted(wires[name])]
        for number in numbers:
            own[name, number] = len(rows)
            lid, mask = (by_host[name], lmc) if name in by_host else (0, 0)
            rows.append((node, number, lid, mask, 1, 4, number > 0, 12, 12, LANE_BPS, LANE_BPS, NO_PEER))
    ports = np.array(rows, PORT)
    for name, ends in wires.items():
        for number, end in ends.items():
            ports["peer"][own[name, number]] = own[end]
    kinds = np.array([CHANNEL_ADAPTER if name in by_host else SWITCH for name in names], np.uint8)
    switches = [name for name in names if name not in by_host]
    top = (max(by_host.values()) | (1 << lmc) - 1) + 1
    tables = np.full((len(switches), top), NO_ROUTE, np.uint8)
    for host, base in by_host.items():
        leaf = wires[host][1][0]
        for lid in range(base, base + (1 << lmc)):
            for row, name in enumerate(switches):
                to = {"l": "s", "s": leaf}[name[0]] if name != leaf else host
                ways = [number for number, (there, _) in sorted(wires[name].items()) if there.startswith(to)]
                exact = [number for number in ways if wires[name][number][0] == to] or ways
                tables[row, lid] = exact[choose(lid, len(exact))]
    return Subnet(np.arange(1, 1 + len(names), dtype=np.uint64), names, kinds, ports, tables)


def walked(subnet: Subnet, *, every_lid: bool) -> tuple[Counter[int], int]:
    """Flows by the port that they leave by, one pair after the other."""
    ports = subnet.ports
    row_of = {(int(port["node"]), int(port["number"])): row for row, port in enumerate(ports)}
    table_of = {int(node): row for row, node in enumerate(subnet.switches)}
    hosts = [row for row, port in enumerate(ports) if subnet.kinds[port["node"]] == CHANNEL_ADAPTER]
    flows: Counter[int] = Counter()
    lost = 0
    for src in hosts:
        for dst in hosts:
            count = 1 << int(ports["lmc"][dst]) if every_lid else 1
            for lid in range(int(ports["lid"][dst]), int(ports["lid"][dst]) + count) if src != dst else ():
                at = int(ports["peer"][src])
                for _ in range(64):
                    node = int(ports["node"][at])
                    out = row_of.get((node, int(subnet.tables[table_of[node], lid])))
                    if out is None or ports["peer"][out] == NO_PEER:
                        lost += 1
                        break
                    flows[out] += 1
                    at = int(ports["peer"][out])
                    if subnet.kinds[ports["node"][at]] == CHANNEL_ADAPTER:
                        lost += at != dst
                        break
                else:
                    lost += 1
    return flows, lost


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("every_lid", [True, False])
def test_flows_are_those_of_each_pair(seed: int, every_lid: bool) -> None:
    draw = random.Random(seed)
    clos = Clos(*(draw.randint(1, 4) for _ in range(3)), parallel=draw.randint(1, 3))
    subnet = subnet_of(clos, draw.randint(0, 2), lambda _, count: draw.randrange(count))
    for _ in range(draw.choice((0, 5))):
        subnet.tables[draw.randrange(len(subnet.tables)), draw.randrange(subnet.tables.shape[1])] = (
            draw.choice((NO_ROUTE, 200, 1, 2))
        )
    found = balance(subnet, every_lid=every_lid)
    flows, lost = walked(subnet, every_lid=every_lid)
    assert dict(zip(found.ports.tolist(), found.flows.tolist(), strict=True)) == {
        row: flows[row] for row in found.ports.tolist()
    }
    assert found.lost == lost


@pytest.mark.parametrize("cells", [1, 7 * 8, 1_000])
def test_few_at_a_time_come_to_the_same(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    subnet = subnet_of(Clos(), 2)
    subnet.tables[3, 5:9] = NO_ROUTE
    whole = balance(subnet, every_lid=True)
    monkeypatch.setattr(evenness, "MOST_CELLS", cells)
    part = balance(subnet, every_lid=True)
    assert np.array_equal(whole.flows, part.flows)
    assert (whole.lost, whole.lost > 0) == (part.lost, True)


@pytest.mark.parametrize(("hosts", "parallel", "lmc"), [(4, 1, 0), (4, 1, 2), (8, 2, 1)])
def test_routes_in_turns_are_even(hosts: int, parallel: int, lmc: int) -> None:
    subnet = subnet_of(Clos(4, 4, hosts, parallel), lmc)
    found = balance(subnet, every_lid=True)
    assert found.lost == 0
    if hosts == 4:
        assert found.ratio == pytest.approx(1.0)
    assert found.ratio.max() <= 1.25


@pytest.mark.parametrize("spines", [2, 4])
def test_all_over_one_spine_is_told_with_how_much(spines: int) -> None:
    (told,) = [one for one in told_of(subnet_of(Clos(4, spines, 4), 0, one)) if one.check == "ib-balance"]
    assert told.verdict == "warn"
    assert f"{spines:.2f} times as many" in told.found
    assert {"l3:5 > s1:3", "s1:1 > l1:5"} <= set(told.about)
    assert f"on {told.about[0]}," in told.found


def test_even_over_all_lids_but_not_over_the_first() -> None:
    subnet = subnet_of(Clos(4, 4, 4), 2, lambda lid, count: lid % count)
    told = [one.found for one in told_of(subnet) if one.check == "ib-balance"]
    assert len(told) == 1
    assert "over hosts' first LIDs alone" in told[0]


def test_a_whole_subnet_has_no_findings() -> None:
    assert told_of(subnet_of(Clos(), 2, lambda lid, count: (lid + lid // 4) % count)) == []


def told_of(subnet: Subnet) -> list[Finding]:
    return findings_of(subnet, Names(subnet))


def by_check(subnet: Subnet) -> dict[str, str]:
    return {one.check: f"{one.verdict}: {in_words(one.about)}: {one.found}" for one in told_of(subnet)}


@pytest.mark.parametrize(
    ("field", "value", "check", "said"),
    [
        ("width", 4, "ib-width", "4 of 12 lanes"),
        ("lane_bps", 2_500_000_000, "ib-speed", "2.5gbit a lane, both ends could 10gbit"),
        ("state", 2, "ib-state", "not active"),
        ("lmc", 0, "ib-lmc", "LMC is 0"),
    ],
)
def test_one_port_that_is_not_as_it_should_be(field: str, value: int, check: str, said: str) -> None:
    subnet = subnet_of(Clos(), 2, lambda lid, count: (lid + lid // 4) % count)
    row = next(row for row in range(len(subnet.ports)) if Names(subnet).ports[row] == "h7/1")
    subnet.ports[field][row] = value
    found = by_check(subnet)
    assert found.keys() == {check}
    assert "h7/1" in found[check]
    assert said in found[check]


@pytest.mark.parametrize(("can", "uses"), [("widest", "width"), ("fastest_bps", "lane_bps")])
def test_what_one_end_cannot_do_is_no_finding(can: str, uses: str) -> None:
    subnet = subnet_of(Clos(), 2, lambda lid, count: (lid + lid // 4) % count)
    row = next(row for row in range(len(subnet.ports)) if Names(subnet).ports[row] == "h7/1")
    subnet.ports[can][row] //= 2
    for end in (row, subnet.ports["peer"][row]):
        subnet.ports[uses][end] //= 2
    assert by_check(subnet) == {}


def test_names_twice_and_what_is_silent() -> None:
    whole = subnet_of(Clos(), 2, lambda lid, count: (lid + lid // 4) % count)
    names = tuple({"h3": "h2", "h4": "", "h5": ""}.get(name, name) for name in whole.names)
    subnet = Subnet(whole.guids, names, whole.kinds, whole.ports, whole.tables, (5,))
    assert {check: text.partition(": ")[0] for check, text in by_check(subnet).items()} == {
        "ib-names": "warn",
        "ib-silent": "warn",
    }
    assert "2 nodes have the description 'h2'" in by_check(subnet)["ib-names"]


def test_routes_that_lead_nowhere_are_counted() -> None:
    subnet = subnet_of(Clos(2, 2, 2), 0)
    subnet.tables[:, int(subnet.ports["lid"].max())] = NO_ROUTE
    assert "fail: forwarding tables: 3 of 12 routes" in by_check(subnet)["ib-routes"]


@pytest.mark.parametrize("clos", [Clos(1, 1, 1), Clos(1, 1, 2)])
def test_small_subnets(clos: Clos) -> None:
    assert by_check(subnet_of(clos, 1)) == {}


def test_a_name_that_two_subnets_have() -> None:
    one = subnet_of(Clos(1, 1, 2), 1)
    names = tuple("h1" if name == "h2" else f"other-{name}" for name in one.names)
    other = replace(one, guids=one.guids + np.uint64(100), names=names)
    (told,) = names_twice([(each, Names(each)) for each in (one, other)])
    assert (told.about, "2 nodes" in told.found) == (("h1/1", "h1/1"), True)
    assert list(names_twice([(one, Names(one))] * 2)) == []


def test_how_many_each_check_is_about() -> None:
    assert subjects_of(subnet_of(Clos(4, 4, 4), 2)) == {
        "ib-state": 64, "ib-silent": 64, "ib-width": 32, "ib-speed": 32, "ib-lmc": 16, "ib-names": 24,
        "ib-routes": 1, "ib-balance": 32,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_reader_may_tell_is_judged(seed: int) -> None:
    """Subnets that contradict themselves in no way that is refused, and make no sense."""
    draw = np.random.default_rng(seed)
    subnet = subnet_of(Clos(2, 2, 2), 1)
    ports = subnet.ports.copy()
    for name, most in (("number", 256), ("lid", 65_536), ("lmc", 8), ("state", 9), ("width", 256)):
        rows = draw.random(len(ports)) < 0.3
        ports[name][rows] = draw.integers(0, most, int(rows.sum()))
    ports["node"] = draw.permutation(ports["node"])
    kinds = draw.integers(1, 5, len(subnet.kinds)).astype(np.uint8)
    lids = int(draw.choice((0, 1, 70)))
    tables = draw.integers(0, 256, (int((kinds == SWITCH).sum()), lids)).astype(np.uint8)
    strange = unpack(pack(replace(subnet, ports=ports, kinds=kinds, tables=tables)))
    assert told_of(strange)
    assert min(subjects_of(strange).values()) >= 0


def test_a_subnet_of_nothing() -> None:
    empty = Subnet(
        np.zeros(0, np.uint64), (), np.zeros(0, np.uint8), np.zeros(0, PORT), np.zeros((0, 0), np.uint8)
    )
    assert told_of(empty) == []
