"""Documents: mutual edges with swapped ports, addresses of one family, versions that rise only on change."""

import struct
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import pytest
from fakes import nic, ud_nic
from hypothesis import given
from hypothesis import strategies as st

from cwdp.shared.bus.messages import Desired, ProbeEdge, RoceSettings, SteerQp, decode, encode
from manager.probing.schedule import (
    FIRST_PORT,
    PORT_MASK,
    UD_PAIRS_PER_S,
    Documents,
    EdgeMaker,
    Family,
    Member,
    build_pairs,
    draw_ports,
    edges_by_host,
    graph_nics,
)

PAIRS = np.array([[0, 1], [0, 2], [1, 2]])


def _members(count: int = 3, **addresses: Any) -> list[Member]:
    return [(f"h{i}", nic("eth0", **addresses)) for i in range(count)]


def _edges(members: list[Member] | None = None, **settings: Any) -> dict[str, list[ProbeEdge]]:
    given_settings = {"family": "4", "paths": 8, "pairs_per_s": 1000.0} | settings
    return edges_by_host(members or _members(), PAIRS, **given_settings)


@given(st.binary(max_size=20), st.integers(0, 200))
def test_drawn_ports_are_the_first_different_ones_of_a_keys_digests(key: bytes, count: int) -> None:
    digests = (blake2b(key, digest_size=64, salt=turn.to_bytes(2, "little")).digest() for turn in range(20))
    drawn = [FIRST_PORT + (v & PORT_MASK) for digest in digests for v in struct.unpack("<32H", digest)]
    assert draw_ports(key, count) == list(dict.fromkeys(drawn))[:count]


@given(st.integers(1, 64))
def test_both_ends_probe_the_same_paths_with_ports_swapped(paths: int) -> None:
    edges = _edges(paths=paths)
    there = {(e.src, e.dst): e for host in edges.values() for e in host}
    assert len(there) == 6
    for (src, dst), edge in there.items():
        back = there[dst, src]
        assert edge.sports == back.reply_sports
        assert edge.reply_sports == back.sports
        assert len(set(edge.sports + edge.reply_sports)) == 2 * paths
        assert all(49152 <= port <= 65535 for port in edge.sports + edge.reply_sports)


def test_the_rate_of_a_nic_is_divided_over_its_peers() -> None:
    assert {e.pairs_per_s for e in _edges()["h0"]} == {500.0}


def test_ports_depend_on_the_pair_only() -> None:
    few = _edges()["h0"][0]
    many = edges_by_host(_members(9), np.array([[0, 1]]), family="6", paths=8, pairs_per_s=1.0)["h0"][0]
    assert (few.sports, few.reply_sports) == (many.sports, many.reply_sports)


@pytest.mark.parametrize(("family", "expected"), [("4", {"10.0.0.1"}), ("6", {"fd00::1"})])
def test_family_decides_where_both_ends_have_both(family: Family, expected: set[str]) -> None:
    assert {e.src_addr for e in _edges(family=family)["h0"]} == expected


def test_both_families_alternate_and_agree_at_both_ends() -> None:
    members = _members(40)
    pairs = np.array([[a, b] for a in range(40) for b in range(a)])
    edges = edges_by_host(members, pairs, family="both", paths=1, pairs_per_s=1.0)
    by_pair = {(e.src, e.dst): e for host in edges.values() for e in host}
    used = [e.src_addr for e in by_pair.values()]
    assert 0.4 < used.count("fd00::1") / len(used) < 0.6
    assert all(by_pair[dst, src].src_addr == e.dst_addr for (src, dst), e in by_pair.items())


def test_the_other_family_is_used_where_the_wanted_one_is_missing() -> None:
    assert {e.src_addr for e in _edges(_members(ipv4=None))["h0"]} == {"fd00::1"}


def test_graph_nics_carry_their_families() -> None:
    members = [("a", nic(ipv6=None)), ("b", nic(ipv4=None)), ("c", nic())]
    assert [n.families for n in graph_nics(members)] == [1, 2, 3]


def _mixed(count: int = 6) -> list[Member]:
    """By turns a NIC with a dataplane and one with UD queue pairs."""
    return [
        (f"h{i}", ud_nic(gid=f"::ffff:10.0.0.{i}", qpn=100 + i) if i % 2 else nic()) for i in range(count)
    ]


def test_nics_of_different_transports_are_not_paired() -> None:
    pairs = build_pairs(_mixed(), degree=4, seed=1)
    assert {(a % 2, b % 2) for a, b in pairs.tolist()} == {(0, 0), (1, 1)}
    assert len(pairs) == 2 * 3


def test_a_lone_nic_of_its_transport_has_no_pairs() -> None:
    assert build_pairs(_mixed(2), degree=4, seed=1).tolist() == []
    assert build_pairs([], degree=4, seed=1).shape == (0, 2)


def test_ud_queue_pairs_of_another_family_are_not_paired() -> None:
    members = [("a", ud_nic()), ("b", ud_nic(gid="fd00::2")), ("c", ud_nic(gid="fd00::3"))]
    assert build_pairs(members, degree=4, seed=1).tolist() == [[1, 2]]


def test_each_end_is_told_the_others_queue_pair_and_given_a_rate_that_it_can_keep() -> None:
    members = _mixed()
    edges = edges_by_host(
        members, build_pairs(members, degree=4, seed=1), family="4", paths=8, pairs_per_s=1000.0
    )
    for name, member in members:
        rates = {edge.pairs_per_s for edge in edges[name]}
        assert rates == ({500.0} if member.transport == "xdp" else {UD_PAIRS_PER_S / 2})
        for edge in edges[name]:
            assert edge.dst_ud == dict(members)[edge.dst.partition("/")[0]].ud


def test_slow_probing_is_slow_by_ud_too() -> None:
    members = _mixed()
    edges = edges_by_host(members, np.array([[1, 3]]), family="4", paths=2, pairs_per_s=10.0)
    assert edges["h1"][0].pairs_per_s == 10.0


def test_only_ports_that_a_queue_pair_has_are_probed_and_the_peers_are_as_many() -> None:
    few, many = tuple(range(50_000, 50_005)), tuple(range(60_000, 60_016))
    members = [
        ("a", ud_nic(gid="fd00::1", sports=few)),
        ("b", ud_nic(gid="fd00::2", sports=many)),
        ("c", ud_nic(gid="fd00::3")),
    ]
    chosen: list[str] = []

    def choose(src: str, _dst: str, ports: list[int]) -> list[int]:
        chosen.append(src)
        return ports

    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    edges = edges_by_host(members, pairs, family="6", paths=8, pairs_per_s=10.0, choose=choose)
    to_b, to_c = edges["a"]
    assert set(to_b.sports) == set(few)
    assert set(to_b.reply_sports) < set(many)
    assert len(to_b.sports) == len(to_b.reply_sports) == len(to_c.sports) == len(to_c.reply_sports) == 5
    back = edges["b"][0]
    assert (back.sports, back.reply_sports) == (to_b.reply_sports, to_b.sports)
    assert set(edges["b"][1].sports) < set(many)
    assert set(chosen) == {"c/eth0"}


def _wanted(edges: dict[str, list[ProbeEdge]] | None = None) -> list[Desired]:
    return [Desired(host=h, version=0, probes=p) for h, p in (edges or _edges()).items()]


def test_versions_rise_only_with_a_change() -> None:
    documents, known = Documents(), dict.fromkeys(("h0", "h1", "h2"), 0)
    assert {d.version for d in documents.update(_wanted(), known)} == {1}
    assert documents.update(_wanted(), dict.fromkeys(known, 1)) == []
    changed = documents.update(_wanted({**_edges(), "h1": []}), dict.fromkeys(known, 1))
    assert [(d.host, d.version, d.probes) for d in changed] == [("h1", 2, [])]


def test_a_new_manager_goes_above_what_hosts_follow_already() -> None:
    changed = Documents().update(_wanted(), {"h0": 41, "h1": 0, "h2": 0})
    assert {d.host: d.version for d in changed} == {"h0": 42, "h1": 1, "h2": 1}


def test_a_host_that_finds_an_older_document_later_is_overtaken() -> None:
    documents = Documents()
    documents.update(_wanted(), dict.fromkeys(("h0", "h1", "h2"), 0))
    raised = documents.overtaken({"h0": 5, "h1": 1, "stranger": 9})
    assert [(d.host, d.version) for d in raised] == [("h0", 6)]
    assert raised[0].probes == _edges()["h0"]
    assert documents.overtaken({"h0": 5}) == []


@pytest.mark.parametrize("claimed", [2**53, 2**53 - 1, 2**52, 2**40])
def test_a_version_that_nobody_can_have_written_is_not_gone_above(claimed: int) -> None:
    """Else a forged hello would drive a host's documents to where no further one can be written."""
    documents, known = Documents(), {"h0": 7, "h1": 0, "h2": 0}
    documents.update(_wanted(), known)
    forged = known | {"h0": claimed}
    assert documents.overtaken(forged) == []
    changed = documents.update(_wanted({**_edges(), "h0": []}), forged)
    assert [(d.host, d.version) for d in changed] == [("h0", 9)]
    changed = Documents().update(_wanted(), forged)
    assert {d.host: d.version for d in changed} == {"h0": 1, "h1": 1, "h2": 1}


@pytest.mark.parametrize("version", [2**53 + 1, 2**64 - 1, -1])
def test_a_document_of_a_version_that_no_hello_could_tell_is_refused(version: int) -> None:
    forged = encode(Desired(host="h0", version=version, probes=[]))
    with pytest.raises(msgspec.DecodeError):
        decode(Desired, forged)


def test_a_host_without_a_nic_to_probe_from_is_told_to_stop() -> None:
    documents = Documents()
    documents.update(_wanted(), dict.fromkeys(("h0", "h1", "h2"), 0))
    changed = documents.update(_wanted({"h0": [], "h1": []}), {"h0": 1, "h1": 1, "h2": 1})
    assert {(d.host, d.version, len(d.probes)) for d in changed} == {(f"h{i}", 2, 0) for i in range(3)}


def test_a_change_of_steering_or_settings_makes_a_new_version() -> None:
    documents = Documents()
    plain = Desired(host="h0", version=0, probes=[])
    steered = Desired(
        host="h0", version=0, probes=[], steer=[SteerQp(nic="n", dst_addr="10.0.0.1", qpn=5, sport=50_000)]
    )
    settled = Desired(host="h0", version=0, probes=[], roce=RoceSettings(dead_after_ms=20))
    versions = [
        [document.version for document in documents.update([wanted], {"h0": 0})]
        for wanted in (plain, plain, steered, steered, settled, plain)
    ]
    assert versions == [[1], [], [2], [], [3], [4]]


def test_a_pair_that_is_to_probe_over_fewer_paths_sends_as_many_probes() -> None:
    maker = EdgeMaker(family="4", paths=8, pairs_per_s=100.0, choose=lambda _src, _dst, ports: ports)
    before = maker.make(_members(), PAIRS)
    maker.paths = 8
    assert all(maker.make(_members(), PAIRS)[host] is edges for host, edges in before.items())
    maker.paths = 4
    now = maker.make(_members(), PAIRS)
    for host, edges in before.items():
        for edge, fewer in zip(edges, now[host], strict=True):
            assert (len(edge.sports), len(fewer.sports)) == (8, 4)
            assert fewer.pairs_per_s == edge.pairs_per_s
    assert now == EdgeMaker(
        family="4", paths=4, pairs_per_s=100.0, choose=lambda _src, _dst, ports: ports
    ).make(_members(), PAIRS)
