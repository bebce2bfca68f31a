"""Which link changes DSCP or ECN, or is too small for packets, by what walks tell; and which are walked over."""

from collections import Counter

import pytest
from msgspec.structs import replace

from cwdp.shared.audit.facts import Walk, Walked, WalkHop
from manager.audit.network.planning import CROSSED, ROCE_TOS, SMALL_BYTES, WALKS_OF_HOST, plan
from manager.audit.network.walked import DSCP, ECN, MTU, judged, untold
from manager.audit.results import FABRIC, Result
from manager.fabric.routes import DirectedLink, PathName, Routes
from tests.unit.manager.audit.network.clos import Switch, routes, walked

SHAPES = [(2, 2, 1), (3, 2, 2), (4, 4, 2)]
CE = 3


def _mtus(known: Routes, mtu_bytes: int = 9_000) -> dict[str, int]:
    return {name.src: mtu_bytes for name in known.paths}


def _all(
    known: Routes, meet: Switch, *, seed: int = 1, silent: frozenset[str] = frozenset()
) -> list[tuple[str, Walked]]:
    planned = plan(known, _mtus(known), seed)
    return [
        (host, walked(known, host, walk, meet, silent)) for host, walks in planned.items() for walk in walks
    ]


def _well(walk: Walk, _link: DirectedLink) -> Walk:
    return walk


def _at(link: DirectedLink, change: Switch) -> Switch:
    return lambda walk, crossed: change(walk, crossed) if crossed == link else walk


def _between(known: Routes) -> list[DirectedLink]:
    return [link for link in known.links if "/" not in link.a + link.b]


def _said(results: list[Result]) -> set[tuple[str, str, str]]:
    return {(one.check, one.subject, one.verdict) for one in results}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_every_link_is_crossed_by_a_large_and_a_small_packet(shape: tuple[int, int, int], seed: int) -> None:
    known = routes(*shape)
    crossed: Counter[tuple[DirectedLink, bool]] = Counter()
    for host, walks in plan(known, _mtus(known), seed).items():
        for walk in walks:
            way = known.paths[PathName(f"{host}/{walk.nic}", walk.dst_addr, walk.sport)]
            assert (walk.tos, walk.hops) == (ROCE_TOS, len(way))
            assert walk.size_bytes in (9_000, SMALL_BYTES)
            crossed.update((known.links[number], walk.size_bytes > SMALL_BYTES) for number in way)
    least = 1 if WALKS_OF_HOST // 2 * shape[2] < CROSSED * shape[1] else CROSSED
    assert all(crossed[link, is_large] >= least for link in known.links for is_large in (True, False))


def test_no_host_walks_more_than_it_may_and_none_from_a_nic_of_unknown_mtu() -> None:
    known = routes(4, 4, 2)
    assert all(len(walks) <= 4 for walks in plan(known, _mtus(known), 1, walks_of_host=4).values())
    assert plan(known, {"h1/eth1": 1_500}, 1).keys() == {"h1"}
    assert plan(Routes(), {}, 1) == {}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_fabric_that_is_well_passes(shape: tuple[int, int, int]) -> None:
    known = routes(*shape)
    results, passed = judged(_all(known, _well), known)
    assert results == []
    last = sum("/" in link.b for link in known.links)
    assert passed == dict.fromkeys((MTU, DSCP, ECN), len(known.links) - last)
    assert untold(passed, results, known.links) == []
    few = dict.fromkeys(passed, 1)
    assert {one.reason.split(" links")[0] for one in untold(few, results, known.links)} == {
        f"of {len(known.links) - last - 1} of {len(known.links) - last}"
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("which", range(3))
def test_a_link_that_strips_dscp_or_ecn_is_named(shape: tuple[int, int, int], which: int) -> None:
    known = routes(*shape)
    link = _between(known)[which]
    subject = f"{link.a} > {link.b}"
    for change, check, found in (
        (lambda walk, _: replace(walk, tos=walk.tos & 3), DSCP, "DSCP 26 becomes 0"),
        (lambda walk, _: replace(walk, tos=walk.tos & 0xFC), ECN, "ECN 10 becomes 00"),
    ):
        results, _ = judged(_all(known, _at(link, change)), known)
        assert _said(results) == {(check, subject, "fail")}
        assert (results[0].found, results[0].host) == (found, FABRIC)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mark_is_no_loss_of_ecn(shape: tuple[int, int, int]) -> None:
    known = routes(*shape)
    results, _ = judged(_all(known, lambda walk, _: replace(walk, tos=walk.tos | CE)), known)
    assert results == []


def _refused(mtu_bytes: int, tells: int) -> Switch:
    def meet(walk: Walk, link: DirectedLink) -> Walk | WalkHop:
        if walk.size_bytes <= mtu_bytes:
            return walk
        return WalkHop(answer="too_big", responder=link.a, tos=walk.tos, mtu_bytes=tells)

    return meet


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["told", "told without a number", "vanishes"])
def test_a_link_of_a_smaller_mtu_is_named(shape: tuple[int, int, int], kind: str) -> None:
    known = routes(*shape)
    meet: Switch = {
        "told": _refused(1_500, 1_500),
        "told without a number": _refused(1_500, 0),
        "vanishes": lambda walk, _: walk if walk.size_bytes <= 1_500 else None,
    }[kind]
    for link in _between(known):
        results, _ = judged(_all(known, _at(link, meet)), known)
        assert _said(results) == {(MTU, f"{link.a} > {link.b}", "fail")}
        assert "9,000 bytes" in results[0].found
        assert ("1,500 do" in results[0].found) == (kind == "told")


def test_the_link_to_a_nic_is_its_hosts() -> None:
    known = routes(3, 2, 2)
    link = DirectedLink("l2", "h3/eth1")
    results, _ = judged(_all(known, _at(link, _refused(1_500, 1_500))), known)
    assert {(one.host, one.subject, one.verdict) for one in results} == {("h3", "eth1: l2 > h3/eth1", "fail")}


def test_a_switch_that_does_not_answer_leaves_several_links_to_be_named_together() -> None:
    known = routes(3, 2, 2)
    link = DirectedLink("l1", "s1")
    change = _at(link, lambda walk, _: replace(walk, tos=walk.tos & 3))
    results, _ = judged(_all(known, change, silent=frozenset({"s1"})), known)
    assert {one.subject for one in results} == {"l1 > l2", "l1 > l3"}
    assert all(one.found == "DSCP 26 becomes 0 on the way" for one in results)


def test_a_link_that_some_packets_cross_unharmed_only_warns() -> None:
    """One cable of several that look like one, or a route that has just changed."""
    known = routes(2, 1, 2)
    link = DirectedLink("l1", "s1")
    change = _at(
        link, lambda walk, _: replace(walk, tos=3 & walk.tos) if walk.dst_addr.endswith("3") else walk
    )
    results, _ = judged(_all(known, change), known)
    assert _said(results) == {(DSCP, "l1 > s1", "warn")}
    assert "in 4 of 8 walks" in results[0].found


def test_a_walk_that_was_not_made_is_unknown() -> None:
    known = routes(2, 1, 1)
    walk = Walk(nic="eth1", dst_addr="10.0.0.2", sport=50_001, size_bytes=9_000, tos=ROCE_TOS, hops=4)
    results, passed = judged([("h1", Walked(walk=walk, trouble="no time was left"))], known)
    assert [(one.verdict, one.host, one.subject) for one in results] == [("unknown", "h1", "eth1")]
    assert "no time was left" in results[0].reason
    assert not any(passed.values())


def test_what_hosts_tell_wrongly_harms_nothing() -> None:
    """More hops than there are, of paths that nobody knows, answers in any order."""
    known = routes(2, 1, 1)
    walk = Walk(nic="eth9", dst_addr="10.9.9.9", sport=1, size_bytes=9_000, tos=ROCE_TOS, hops=4)
    hops = [WalkHop(answer="too_big", responder="x" * 10_000, tos=999, mtu_bytes=-5)] * 16
    results, passed = judged([("h1", Walked(walk=walk, hops=hops))], known)
    assert (results, any(passed.values())) == ([], False)
    judged(
        [("h1", Walked(walk=replace(walk, nic="eth1", dst_addr="10.0.0.2", sport=50_001), hops=hops))], known
    )
