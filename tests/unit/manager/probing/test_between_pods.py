"""Pairs between pods: few for each NIC, the same by both ends' managers, over all leaves, and steady."""

from collections import Counter

import numpy as np
import pytest

from cwdp.shared.bus.messages import Nic
from manager.probing.between_pods import CHOICES, build_between, pairs_between
from manager.probing.schedule import Member, edges_by_host

LEAF = 16
"""NICs of one."""


def pod(name: str, size: int, *, transport: str = "xdp", v6_only: bool = False) -> list[Member]:
    number = sum(map(ord, name)) % 200
    return [
        (
            f"{name}-{i:04}",
            Nic(
                ifname="eth0",
                mac="",
                ipv4=None if v6_only else f"10.{number}.{i // 250}.{i % 250}",
                ipv6=f"fd00::{number}:{i:x}",
                carrier=True,
                mode="native",
                transport=transport,  # type: ignore[arg-type]
            ),
        )
        for i in range(size)
    ]


def named(own: str, pods: dict[str, list[Member]]) -> set[frozenset[str]]:
    """The pairs of a pod by their hosts."""
    others = {name: members for name, members in pods.items() if name != own}
    flat = [member for members in others.values() for member in members]
    pairs = pairs_between(pods[own], others, own, 0)
    return {frozenset((pods[own][a][0], flat[b][0])) for a, b in pairs.tolist()}


def test_both_managers_arrive_at_the_same_pairs() -> None:
    pods = {name: pod(name, 40) for name in ("a", "b", "c")}
    found = {name: named(name, pods) for name in pods}
    for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
        both = {pair for pair in found[one] if any(host.startswith(other) for host in pair)}
        assert both == {pair for pair in found[other] if any(host.startswith(one) for host in pair)}
        assert both


@pytest.mark.parametrize(("count", "size"), [(2, 256), (3, 256), (16, 256)])
def test_a_nic_has_few_pairs_and_all_leaves_of_other_pods_are_met(count: int, size: int) -> None:
    pods = {f"p{i:02}": pod(f"p{i:02}", size) for i in range(count)}
    found = set().union(*(named(name, pods) for name in pods))
    of_nic = Counter(host for pair in found for host in pair)
    assert len(of_nic) == count * size
    assert np.mean(list(of_nic.values())) == pytest.approx(2 * CHOICES, rel=0.03)
    assert max(of_nic.values()) <= 8 * CHOICES
    met = {
        (host.partition("-")[0], int(other.partition("-")[2]) // LEAF, other.partition("-")[0])
        for pair in found
        for host, other in ((min(pair), max(pair)), (max(pair), min(pair)))
    }
    leaves = count * (count - 1) * size // LEAF
    assert len(met) >= 0.85 * leaves, "pods that meet each leaf of each other pod"
    assert len({(leaf, of) for _, leaf, of in met}) == count * size // LEAF


def test_a_small_pod_beside_large_ones_is_not_overrun() -> None:
    pods = {"a": pod("a", 512), "b": pod("b", 512), "s": pod("s", 4)}
    found = named("s", pods)
    of_nic = Counter(host for pair in found for host in pair if host.startswith("s"))
    assert min(of_nic.values(), default=0) >= 1
    assert max(of_nic.values()) <= 8 * CHOICES


def test_who_comes_or_goes_changes_few_pairs_only() -> None:
    pods = {name: pod(name, 200) for name in ("a", "b", "c")}
    before = named("a", pods)
    after = named("a", pods | {"b": pods["b"][:77] + pods["b"][78:]})
    assert len(before ^ after) <= 8 * CHOICES


def test_pairs_have_a_transport_and_a_family_in_common() -> None:
    pods = {"a": pod("a", 6), "b": pod("b", 3, transport="ud"), "c": pod("c", 3)}
    assert not any("b" in name for pair in named("a", pods) for name in pair)
    only_4 = [(host, Nic(ifname="eth0", mac="", ipv4=nic.ipv4, ipv6=None, carrier=True, mode="native")) for host, nic in pods["a"]]  # fmt: skip
    assert not named("a", {"a": only_4, "b": pod("b", 6, v6_only=True)})
    assert named("a", {"a": pods["a"], "b": pod("b", 6, v6_only=True)})


def test_nobody_is_probed_without_other_pods() -> None:
    own = pod("a", 3)
    assert not len(pairs_between(own, {"b": []}, "a", 0))
    assert not len(pairs_between([], {"b": own}, "a", 0))


def test_edges_to_other_pods_are_mutual_and_share_a_nics_rate() -> None:
    pods = {name: pod(name, 3) for name in ("a", "b")}
    edges = {}
    for own, other in (("a", "b"), ("b", "a")):
        between = build_between(pods[own], {other: pods[other]}, own, 0)
        members, pairs = between.joined(pods[own], np.array([[0, 1], [1, 2], [0, 2]]))
        edges[own] = edges_by_host(members, pairs, family="4", paths=2, pairs_per_s=100.0)
    far = 0
    for host, _ in pods["a"]:
        mine = edges["a"][host]
        assert sum(edge.pairs_per_s for edge in mine) == pytest.approx(100.0)
        for edge in mine:
            peer = edge.dst.partition("/")[0]
            if peer.startswith("b"):
                far += 1
                (back,) = (one for one in edges["b"][peer] if one.dst == edge.src)
                assert (back.sports, back.reply_sports) == (edge.reply_sports, edge.sports)
                assert (back.src_addr, back.dst_addr) == (edge.dst_addr, edge.src_addr)
    assert far >= 3
