"""Paths that are traced while a link is silent are known up to there: what they lose accuses nothing else.

So it was in soaks: an agent began anew while a link above its leaf, or one above the leaf at the far end, was silent; of its
other paths some were known by then.
"""

from collections.abc import Collection

import numpy as np
import pytest

from manager.fabric.routes import DirectedLink, Gap, Routes
from manager.faults.dead_links import avoided
from manager.faults.finding import Findings
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench

SILENT = [("l0", "s1"), ("l1", "s1")]


class _Fleet:
    """A fleet in which a link falls silent and a host's paths are traced anew meanwhile."""

    def __init__(self, seed: int, silent: tuple[str, str]) -> None:
        self.bench = Bench(
            LeafSpine(Shape(leaves=3, spines=3, hosts_per_leaf=2), np.random.default_rng(seed))
        )
        known = self.bench.fabric.routes
        numbers = {link: i for i, link in enumerate(known.links)}
        self.both = {numbers[DirectedLink(*silent)], numbers[DirectedLink(*silent[::-1])]}
        self.trouble = Trouble(loss=dict.fromkeys(self.both, 1.0))
        self._known = known

    def trace_anew(self, others: int) -> None:
        """Of the host's paths those over the silent link are known up to its leaf, of so many others one."""
        known = self._known
        links, paths = list(known.links), dict(known.paths)
        for i, (name, crossed) in enumerate(known.paths.items()):
            if name.src == "h0/nic0" and self.both.intersection(crossed):
                paths[name] = (crossed[0], len(links), crossed[-1])
                links.append(DirectedLink("l0", f"?{name.src}>{name.dst_addr}:{name.sport}"))
            elif name.src == "h0/nic0" and i % others:
                del paths[name]
        self.bench.fabric.routes = Routes(2, tuple(links), paths)

    def hear_less(self, behind: DirectedLink) -> None:
        """Of some hosts' paths over a link nobody knows which switch before it they cross."""
        known = self._known
        links, paths = list(known.links), dict(known.paths)
        new: dict[DirectedLink, int] = {}
        for name, crossed in known.paths.items():
            way = [known.links[number] for number in crossed]
            if name.src.endswith("0/nic0") or behind not in way:
                continue
            at = way.index(behind)
            a, b = way[at - 1].a, behind.b
            way[at - 1 : at + 1] = [DirectedLink(a, f"?{a}>{b}"), DirectedLink(f"?{a}>{b}", b)]
            for link in way[at - 1 : at + 1]:
                if link not in new:
                    new[link] = len(links)
                    links.append(link)
            numbers = [new[link] for link in way[at - 1 : at + 1]]
            paths[name] = (*crossed[: at - 1], *numbers, *crossed[at + 1 :])
        self.bench.fabric.routes = Routes(2, tuple(links), paths)

    def named(self, windows: int, trouble: Trouble) -> set[str]:
        """What is found meanwhile."""
        found = set()
        for _ in self.bench.run(windows, trouble):
            found |= {finding.subject.name for finding in self.bench.watch.findings.current.values()}
        return found


def _of_the_host(names: Collection[str]) -> list[str]:
    return [name for name in names if "h0/nic0" in name]


@pytest.mark.parametrize("others", [3, 20])
@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize("seed", range(3))
def test_a_nic_whose_paths_are_traced_anew_while_a_link_is_silent_is_not_named(
    seed: int, silent: tuple[str, str], others: int
) -> None:
    fleet = _Fleet(seed, silent)
    assert not fleet.named(45, Trouble())
    fleet.named(10, fleet.trouble)
    fleet.trace_anew(others)
    named = fleet.named(100, fleet.trouble)
    assert named
    assert _of_the_host(named) == []


@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize("seed", range(3))
def test_nor_is_it_once_the_link_is_well_again(seed: int, silent: tuple[str, str]) -> None:
    fleet = _Fleet(seed, silent)
    fleet.named(45, Trouble())
    fleet.named(10, fleet.trouble)
    fleet.trace_anew(others=20)
    fleet.named(100, fleet.trouble)
    assert _of_the_host(fleet.named(60, Trouble())) == []
    assert not fleet.bench.watch.findings.current


def test_its_paths_that_may_lead_over_the_link_are_avoided_as_it_is() -> None:
    fleet = _Fleet(0, SILENT[1])
    fleet.named(55, fleet.trouble)
    fleet.trace_anew(others=3)
    routes, findings = fleet.bench.fabric.routes, fleet.bench.watch.findings
    both = {DirectedLink(*SILENT[1]), DirectedLink(*SILENT[1][::-1])}
    assert routes.hidden
    assert set(routes.hidden.values()) == {Gap("l0", "l1", None)}
    assert avoided(findings, (), routes) == both | routes.hidden.keys()
    elsewhere = [DirectedLink("l2", "s0"), DirectedLink("h5/nic0", "l2")]
    assert avoided(Findings(), elsewhere, routes) == set(elsewhere)
    assert avoided(Findings(), [DirectedLink("s0", "c0")], routes) > routes.hidden.keys()


SEVERAL = (
    DirectedLink("l0", "?l0>l1"),
    DirectedLink("?l0>l1", "l1"),
    DirectedLink("s0", "?s0>s1.1"),
    DirectedLink("?s0>s1.1", "?s0>s1.2"),
    DirectedLink("?s0>s1.2", "s1"),
    DirectedLink("h0/nic0", "?h0/nic0"),
    DirectedLink("?h0/nic0", "l0"),
)
"""Where one of several switches is crossed that some paths get no answer from."""


def test_where_several_ways_may_be_meant_is_told_by_the_links() -> None:
    one, two = Gap("l0", "l1", 2), Gap("s0", "s1", 3)
    assert Routes(1, SEVERAL).hidden == dict(zip(SEVERAL, [one, one, two, two, two], strict=False))


@pytest.mark.parametrize(
    ("dead", "perhaps"),
    [
        (DirectedLink("l0", "s0"), SEVERAL[:5]),
        (DirectedLink("l0", "s7"), SEVERAL[:2]),
        (DirectedLink("s7", "l1"), SEVERAL[:2]),
        (DirectedLink("l7", "s7"), ()),
        (DirectedLink("s7", "c7"), SEVERAL[2:5]),
        (DirectedLink("h0/nic0", "l0"), ()),
    ],
    ids=str,
)
def test_a_way_next_to_a_dead_link_may_be_that(dead: DirectedLink, perhaps: tuple[DirectedLink, ...]) -> None:
    routes = Routes(
        1,
        (
            *SEVERAL,
            DirectedLink("h1/nic0", "l0"),
            DirectedLink("l7", "h2/nic0"),
            DirectedLink("h3/nic0", "l1"),
        ),
    )
    assert avoided(Findings(), [dead], routes) == {dead, *perhaps}


@pytest.mark.parametrize("seed", range(3))
def test_paths_that_are_silent_next_to_a_link_that_dies_accuse_nothing(seed: int) -> None:
    """So it was in labs of two pods: answers were lost over another link, and nobody heard which switch was crossed."""
    silent = ("l0", "s1")
    fleet = _Fleet(seed, silent)
    fleet.hear_less(DirectedLink("s1", "l1"))
    fleet.named(45, Trouble())
    named = fleet.named(100, fleet.trouble)
    assert named
    assert not [name for name in named if "?" in name]
    assert not [name for name in fleet.named(60, Trouble()) if "?" in name]
