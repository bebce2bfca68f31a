"""The fabric of a swarm: which links a port takes, within a pod and between pods, and what a dead link loses."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.shared.bus.messages import ProbeEdge
from cwdp.shared.bus.records import NO_DELAY_NS
from tools.swarm.fabric import (
    NO_LINK,
    Size,
    SwarmFabric,
    core_address,
    leaf_address,
    nic_address,
    spine_address,
)
from tools.swarm.measured import windows_of
from tools.swarm.probes import HostProbes
from tools.swarm.traffic import Traffic

PORTS = 4_000
TIERS = Size(nics=512, pods=4, hosts_per_leaf=8, spines=4, cores=8)
ONE = Size(nics=512, hosts_per_leaf=8, spines=4)
A_POD = TIERS.nics // TIERS.pods


def paths(fabric: SwarmFabric, src: int, dst: int, count: int = PORTS) -> np.ndarray:
    return fabric.path(np.full(count, src), np.full(count, dst), np.arange(count))


def ends(size: Size) -> tuple[list[str], list[str]]:
    """From where and to where each directed link leads, by its number: what each number is meant to be."""
    leaf_of = SwarmFabric(size).leaf_of(np.arange(size.nics))
    nics = [(nic_address(nic), leaf_address(int(leaf))) for nic, leaf in enumerate(leaf_of)]
    leaves = [
        (leaf_address(leaf), spine_address(leaf // size.pod_leaves * size.spines + spine))
        for leaf in range(size.pods * size.pod_leaves)
        for spine in range(size.spines)
    ]
    cores = [
        (spine_address(spine), core_address(core))
        for spine in range(size.pods * size.spines)
        for core in range(size.cores)
        if size.pods > 1
    ]
    links = [
        link for tier in (nics, leaves, cores) for link in (*tier, *((upper, lower) for lower, upper in tier))
    ]
    return [a for a, _ in links], [b for _, b in links]


@pytest.mark.parametrize("size", [ONE, TIERS], ids=["one pod", "four pods"])
def test_a_path_is_a_chain_of_links_over_the_switches_that_answer_to_a_trace(size: Size) -> None:
    fabric, (begin, end) = SwarmFabric(size), ends(size)
    assert len(begin) == size.links
    draw = np.random.default_rng(1)
    src, dst = (draw.integers(0, size.nics, 500) for _ in range(2))
    sport = draw.integers(0xC000, 0x10000, 500)
    hops = fabric.hops(src, dst, sport)
    for links, a, b, over in zip(fabric.path(src, dst, sport), src, dst, hops, strict=True):
        crossed = [int(link) for link in links if link != NO_LINK]
        assert begin[crossed[0]] == nic_address(int(a))
        assert end[crossed[-1]] == nic_address(int(b))
        assert [end[link] for link in crossed[:-1]] == [begin[link] for link in crossed[1:]]
        assert [end[link] for link in crossed[:-1]] == over


def test_paths_have_as_many_hops_as_tiers_between_their_ends() -> None:
    fabric, rails = SwarmFabric(TIERS), TIERS.nics_per_host
    src, dst = np.array([0, 0, 0, A_POD - 1]), np.array([rails, 1, A_POD, 3 * A_POD + 7])
    assert list(map(len, fabric.hops(src, dst, np.ones_like(src)))) == [1, 3, 5, 5]


def test_within_a_pod_paths_stay_in_it() -> None:
    fabric = SwarmFabric(TIERS)
    first = 2 * (TIERS.nics + TIERS.leaf_links)
    found = paths(fabric, A_POD, A_POD + 1)
    assert (found < first).all()
    switches = fabric.switches(np.full(PORTS, A_POD), np.full(PORTS, A_POD + 1), np.arange(PORTS))
    assert set(switches[:, 1].tolist()) == set(range(TIERS.spines, 2 * TIERS.spines))
    assert (switches[:, 1] == switches[:, 3]).all()
    assert (switches[:, 2] == NO_LINK).all()


def test_switches_of_each_tier_choose_without_regard_to_the_others() -> None:
    """Else ECMP would leave links unused between pods, which switches that hash alike are known for."""
    fabric = SwarmFabric(TIERS)
    ports = np.arange(0xC000, 0xC000 + 16_000)
    switches = fabric.switches(np.full(len(ports), 0), np.full(len(ports), A_POD), ports)
    up, core, down = switches[:, 1], switches[:, 2], switches[:, 3] - TIERS.spines
    counts = np.zeros((TIERS.spines, TIERS.cores, TIERS.spines))
    np.add.at(counts, (up, core, down), 1)
    expected = len(ports) / counts.size
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < counts.size + 5 * np.sqrt(2 * counts.size)


def test_the_two_directions_of_a_cable_are_crossed_by_the_paths_each_way() -> None:
    fabric, (begin, end) = SwarmFabric(TIERS), ends(TIERS)
    for cable in (fabric.core_cable(TIERS.spines + 2, 5), fabric.leaf_cable(TIERS.pod_leaves + 3, 6)):
        up, down = cable.links
        assert (begin[up], end[up]) == (end[down], begin[down])
        assert set(cable.name.split(" - ")) == {begin[up], end[up]}


def edges(src: int, peers: list[int], ports: int = 64) -> list[ProbeEdge]:
    return [
        ProbeEdge(
            src=f"h{src // 8}/nic{src % 8}",
            src_addr=nic_address(src),
            dst=f"h{peer // 8}/nic{peer % 8}",
            dst_addr=nic_address(peer),
            sports=list(range(0xC000, 0xC000 + ports)),
            reply_sports=list(range(0xD000, 0xD000 + ports)),
            pairs_per_s=100.0 * ports,
        )
        for peer in peers
    ]


def by_address(host: HostProbes, rows: NDArray[np.void]) -> dict[bytes, np.void]:
    """Rows of windows by the last four bytes of where they lead."""
    return {host.told[row["path"]]["dst_addr"].tobytes()[-4:]: row for row in rows}


def test_a_dead_link_to_a_core_loses_just_the_probes_that_cross_it_seen_from_either_pod() -> None:
    fabric = SwarmFabric(TIERS)
    here, there, within, elsewhere = 0, A_POD + 8, 9, 2 * A_POD
    peers = {here: [there, within], there: [here], within: [here], elsewhere: [3 * A_POD]}
    probes = {src: HostProbes(fabric, edges(src, dst), (1, src)) for src, dst in peers.items()}
    cable = fabric.core_cable(2, 3)
    fabric.loss[cable.links] = 1.0
    for src, host in probes.items():
        crosses = np.isin(host.there, cable.links).any(axis=1) | np.isin(host.back, cable.links).any(axis=1)
        (rows,) = windows_of([host], 100, 105, np.zeros(TIERS.pods), sums=False)
        of = [(path["dst_addr"].tobytes(), int(path["sport"])) for path in host.told]
        lost = {of[row["path"]] for row in rows if row["lost"] == row["sent"]}
        kept = {of[row["path"]] for row in rows if row["lost"] == 0}
        assert len(host) == len(lost) + len(kept)
        assert not lost & kept
        assert len(lost) == np.count_nonzero(crosses)
        assert (len(lost) > 0) == (src in (here, there))
    fabric.loss[cable.links] = 0.0
    assert not any(host.loses for host in probes.values())


def test_delays_between_pods_are_off_by_what_their_timelines_are_apart() -> None:
    fabric = SwarmFabric(TIERS)
    host = HostProbes(fabric, edges(0, [9, A_POD, 2 * A_POD], ports=1), (1, 0))
    ahead_ns = np.array([0.0, 1e6, np.nan, 0.0])
    rows = by_address(host, windows_of([host], 100, 105, ahead_ns, sums=False)[0])
    within, between, unknown = (
        rows[bytes(map(int, nic_address(nic).split(".")))] for nic in (9, A_POD, 2 * A_POD)
    )
    assert 0 < within["fwd_min_ns"] < 10_000
    assert 990_000 < between["fwd_min_ns"] < 1_010_000
    assert -1_010_000 < between["rev_min_ns"] < -990_000
    assert unknown["fwd_min_ns"] == NO_DELAY_NS
    far = by_address(host, windows_of([host], 105, 110, np.array([0, 3e9, 0, 0]), sums=False)[0])
    in_32_bits = far[bytes(map(int, nic_address(A_POD).split(".")))]
    assert 0 < in_32_bits["fwd_min_ns"] - (3e9 - 2**32) < 10_000
    assert 0 < in_32_bits["rev_min_ns"] - (2**32 - 3e9) < 10_000


def test_jobs_stay_in_their_pods_but_for_the_first_host_of_each_pod() -> None:
    fabric = SwarmFabric(TIERS)
    traffic = Traffic(fabric, 1)
    from_pod, to_pod = fabric.pod_of(traffic.src), fabric.pod_of(traffic.dst)
    first = (traffic.src // 8) % TIERS.pod_hosts == 0
    assert (from_pod == to_pod)[~first].all()
    abroad = from_pod != to_pod
    assert abroad.sum() == first.sum() / TIERS.peers
    assert (to_pod[abroad] == (from_pod[abroad] + 1) % TIERS.pods).all()
    assert (traffic.src != traffic.dst).all()
