"""Subnets that readers tell of: each is judged once for what is new, whoever reads it, and forgotten when nobody does."""

import numpy as np
import pytest
from fat_trees import LEAF, Shape, Traffic, fat_tree, kept, links_of, without

from cwdp.shared.ib.counters import Growth
from cwdp.shared.ib.subnet import SWITCH, Subnet
from manager.faults.finding import Findings
from manager.ib.faults.subnets import SubnetWatch
from manager.ib.subnets import SubnetNow


class Told:
    """A watch, and what it told."""

    def __init__(self) -> None:
        self.findings, self.events = Findings(), list[str]()
        self.watch = SubnetWatch(self.findings, self._note)

    def _note(self, host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
        del host, detail, nic
        self.events.append(kind)

    def step(self, now_s: float, *told: SubnetNow) -> None:
        self.watch.step(told, now_s)


def now(
    subnet: Subnet, growth: Growth | None = None, reader: str = "h1", *, is_fresh: bool = True
) -> SubnetNow:
    return SubnetNow(reader, subnet, growth, is_fresh)


def broken() -> tuple[Subnet, Subnet, Traffic]:
    subnet = fat_tree(Shape())
    leaf = subnet.guids.tolist().index(LEAF)
    return subnet, without(subnet, [links_of(subnet, leaf)[-1]]), Traffic(np.random.default_rng(1))


def test_what_is_told_once_is_judged_once() -> None:
    whole, cut, traffic = broken()
    told = Told()
    told.step(1.0, now(whole, traffic.growth(whole)))
    growth = traffic.growth(cut)
    for i in range(30):
        told.step(2.0 + i / 10, now(cut, growth))
    assert told.events == []
    told.step(6.0, now(cut, traffic.growth(cut)))
    assert told.events == ["link_dead"]


def test_what_is_told_twice_in_a_second_is_one_poll() -> None:
    whole, cut, traffic = broken()
    told = Told()
    told.step(1.0, now(whole, traffic.growth(whole)))
    told.step(2.0, now(cut))
    told.step(2.1, now(cut, traffic.growth(cut)))
    assert told.events == []
    told.step(3.0, now(cut, traffic.growth(cut)))
    assert told.events == ["link_dead"]


def test_another_reader_goes_on_with_what_is_known() -> None:
    whole, cut, traffic = broken()
    told = Told()
    told.step(1.0, now(whole, traffic.growth(whole)))
    told.step(2.0, now(cut, traffic.growth(cut)))
    told.step(3.0, now(cut, traffic.growth(cut), "h9"))
    assert told.events == ["link_dead"]


def test_a_reader_that_cannot_read_accuses_nobody() -> None:
    whole, _, traffic = broken()
    told = Told()
    told.step(1.0, now(whole, traffic.growth(whole)))
    one = kept(whole, np.arange(len(whole.guids)) == 0)
    for i in range(10):
        told.step(2.0 + i, now(one, traffic.growth(one), is_fresh=False))
    assert told.events == []


def test_a_subnet_that_nobody_tells_of_has_no_findings() -> None:
    whole, cut, traffic = broken()
    told = Told()
    for i, subnet in enumerate((whole, cut, cut)):
        told.step(float(i), now(subnet, traffic.growth(subnet)))
    told.step(9.0)
    assert told.events == ["link_dead", "link_dead_over"]
    assert not told.findings.current
    assert told.watch.refused["no_growth"] == 0


@pytest.mark.parametrize("turn", [1, -1])
def test_two_subnets_with_the_same_adapters_are_judged_apart(turn: int) -> None:
    """Each has one port of each adapter; the link of one of them is cut in one."""
    whole, cut, traffic = broken()
    rails = [moved(subnet) for subnet in (whole, whole, whole)]
    told = Told()
    for i, (subnet, rail) in enumerate(zip((whole, cut, cut), rails, strict=True)):
        both = now(subnet, traffic.growth(subnet)), now(rail, traffic.growth(rail), "h2")
        told.step(float(i), *both[::turn])
    assert told.events == ["link_dead"]


def moved(subnet: Subnet) -> Subnet:
    """The same with other switches, and the second ports of adapters."""
    is_switch = subnet.kinds == SWITCH
    guids, ports = subnet.guids + is_switch.astype(np.uint64) * np.uint64(1 << 40), subnet.ports.copy()
    ports["number"][~is_switch[ports["node"]]] += 1
    return Subnet(guids, subnet.names, subnet.kinds, ports, subnet.tables)


def test_two_subnets_are_judged_apart() -> None:
    whole, cut, traffic = broken()
    other = fat_tree(Shape(leaves=2, spines=2, hosts=2))
    other = Subnet(other.guids + np.uint64(1 << 40), other.names, other.kinds, other.ports, other.tables)
    told = Told()
    for i, subnet in enumerate((whole, cut, cut)):
        told.step(float(i), now(subnet, traffic.growth(subnet)), now(other, traffic.growth(other), "h2"))
    assert told.events == ["link_dead"]
