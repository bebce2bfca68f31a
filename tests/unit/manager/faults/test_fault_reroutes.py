"""Links and switches that the fabric routes round."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from manager.fabric.routes import DirectedLink, Routes
from manager.faults.dead_links import localised
from manager.faults.reroutes import Reroutes
from manager.links.matrix import PathMatrix, Places
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench

SHAPE = Shape(leaves=3, spines=4, hosts_per_leaf=3)


class _Rerouted(Bench):
    """A bench whose fabric may route round some links."""

    cut: frozenset[DirectedLink] = frozenset()
    version = 1
    traced = 1.0
    """The share of paths whose new way is known."""

    @property
    def routes(self) -> Routes:
        routes = self.fabric.routes
        if not self.cut:
            return replace(routes, version=self.version)
        number = {link: i for i, link in enumerate(routes.links)}
        paths = {}
        for name, links in routes.paths.items():
            hops = [routes.links[i] for i in links]
            if self.cut & set(hops) and name.sport % 100 < 100 * self.traced:
                a, b = hops[1].a, hops[2].b
                hops[1:3] = next(
                    [DirectedLink(a, s), DirectedLink(s, b)]
                    for s in ("s3", "s2", "s1", "s0")
                    if not self.cut & {DirectedLink(a, s), DirectedLink(s, b)}
                )
            paths[name] = tuple(number[hop] for hop in hops)
        return Routes(version=self.version, links=routes.links, paths=paths)


def _told(bench: _Rerouted, windows: int) -> list[str]:
    already = len(bench.events)
    for now_s in bench.run(windows, Trouble()):
        bench.watch.follow_members(now_s, ())
    return [f"{kind} {detail.partition(':')[0]}" for kind, detail in bench.events[already:]]


def _both(a: str, b: str) -> frozenset[DirectedLink]:
    return frozenset((DirectedLink(a, b), DirectedLink(b, a)))


@pytest.mark.parametrize("seed", range(3))
def test_a_link_that_is_routed_round_is_dead_until_it_is_used_again(seed: int) -> None:
    bench = _Rerouted(LeafSpine(SHAPE, np.random.default_rng(seed)))
    assert _told(bench, 10) == []
    bench.cut, bench.version = _both("l1", "s2"), 2
    assert _told(bench, 25) == ["link_dead l1 - s2"]
    assert localised(bench.watch.findings) == _both("l1", "s2")
    bench.cut, bench.version = frozenset(), 3
    assert _told(bench, 5) == ["link_dead_over l1 - s2"]
    assert localised(bench.watch.findings) == set()


@pytest.mark.parametrize("seed", range(5))
def test_paths_leave_one_after_the_other_and_the_link_is_dead_once_all_have(seed: int) -> None:
    bench = _Rerouted(LeafSpine(replace(SHAPE, hosts_per_leaf=1, degree=2), np.random.default_rng(seed)))
    assert _told(bench, 10) == []
    bench.cut = _both("l1", "s2")
    for step in range(1, 21):
        bench.version, bench.traced = bench.version + 1, 0.05 * step
        told = _told(bench, 3)
    assert [*told, *_told(bench, 25)] == ["link_dead l1 - s2"]


def test_a_switch_all_of_whose_links_are_routed_round_is_one_finding() -> None:
    bench = _Rerouted(LeafSpine(SHAPE, np.random.default_rng(9)))
    assert _told(bench, 10) == []
    bench.cut, bench.version = _both("l0", "s1") | _both("l1", "s1"), 2
    assert _told(bench, 3) == []
    bench.cut, bench.version = bench.cut | _both("l2", "s1"), 3
    assert _told(bench, 25) == ["switch_dead s1"]
    bench.cut, bench.version = frozenset(), 4
    assert _told(bench, 5) == ["switch_dead_over s1"]


def test_a_change_of_versions_alone_says_nothing() -> None:
    bench = _Rerouted(LeafSpine(SHAPE, np.random.default_rng(2)))
    for version in range(2, 6):
        bench.version = version
        assert _told(bench, 5) == []


def _matrix(spine: str) -> PathMatrix:
    """What six paths from one leaf to another cross, by a spine that has that name."""
    links = tuple(DirectedLink(a, b) for s in ("s1", "s2") for a, b in (("l1", s), (s, "l2")))
    crossed = np.array([[spine in link for link in links]] * 6, np.int8)
    fwd, rev = csr_array(crossed), csr_array(np.zeros_like(crossed))
    known, place = np.ones(6, bool), np.array([1, 2, 1, 2])
    renamed = tuple(DirectedLink(*(node.replace("s1", "?l1>l2") for node in link)) for link in links)
    routes, nowhere = Routes(links=renamed), np.full((2, 6), -1, np.int32)
    return PathMatrix(routes, fwd, rev, known, place, Places([], {}, routes.packed, nowhere, nowhere, {}))


def test_a_place_that_gets_a_name_is_not_routed_round() -> None:
    reroutes = Reroutes()
    reroutes.step(_matrix("s2"), _matrix("s1"), 1.0)
    assert [subject.name for subject in reroutes.subjects(5.0)] == ["s2"]
    reroutes = Reroutes()
    reroutes.step(_matrix("s1"), _matrix("s2"), 1.0)
    assert reroutes.subjects(5.0) == []
