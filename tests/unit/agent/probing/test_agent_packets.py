"""Probe packets and their order: read back by scapy, which knows nothing of ours."""

import socket
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6

from cwdp.agent.probing.packets import Path, build, requests, round_robin
from cwdp.agent.probing.schedule import PathKey, make_schedule
from cwdp.dataplane import abi
from cwdp.shared.bus.messages import ProbeEdge

RNG = np.random.default_rng(1)
ADDRESSES = {4: ("10.1.0.1", "10.2.0.2"), 6: ("fd00:1::1", "fd00:2::2")}
PORTS = st.integers(1, 65535)


def _edge(dst: str, rate: float, ports: list[tuple[int, int]], version: int = 4) -> ProbeEdge:
    source, destination = ADDRESSES[version]
    return ProbeEdge(
        src="a/nic0",
        dst=dst,
        src_addr=source,
        dst_addr=destination,
        sports=[sport for sport, _ in ports],
        reply_sports=[reply for _, reply in ports],
        pairs_per_s=rate,
    )


@pytest.mark.parametrize("version", [4, 6])
@given(
    ports=st.lists(st.tuples(PORTS, PORTS), min_size=1, max_size=4),
    key=st.integers(0, 255),
    port=PORTS,
)
def test_scapy_reads_what_was_built(version: int, ports: list[tuple[int, int]], key: int, port: int) -> None:
    source, destination = ADDRESSES[version]
    paths = [Path(n + 7, source, destination, sport, reply) for n, (sport, reply) in enumerate(ports)]
    templates = build(paths, key, port)
    assert len(templates) == 2 * len(paths)
    for row, template in enumerate(templates):
        raw = template.tobytes()
        path = paths[row // 2]
        ip = (IP if version == 4 else IPv6)(raw)
        assert (ip.src, ip.dst) == (source, destination)
        if version == 4:
            assert (ip.version, ip.ihl, ip.len, ip.ttl, ip.proto) == (4, 5, len(raw), 64, 17)
            assert (ip.tos, ip.flags, ip.frag, ip.id) == (26 << 2, 0, 0, 0)
        else:
            assert (ip.version, ip.plen, ip.hlim, ip.nh) == (6, len(raw) - 40, 64, 17)
            assert (ip.tc, ip.fl) == (26 << 2, 0)
        udp = ip[UDP]
        assert (udp.sport, udp.dport, udp.len, udp.chksum) == (path.sport, port, 88, 0)
        bth = BTH(bytes(udp)[8:])
        assert (bth.opcode, bth.pkey, bth.dqpn) == (abi.BTH_OPCODE, 0xFFFF, abi.BTH_QPN)
        assert (bth.solicited, bth.ackreq, bth.padcount, bth.version) == (0, 0, 0, 0)
        probe = template["packet"]["probe"]
        assert raw[-68:-64] == b"CWDP"
        assert (probe["version"], probe["kind"]) == (abi.PROBE_VERSION, abi.ProbeKind.REQUEST)
        assert (probe["key_id"], probe["pair_position"], probe["path"]) == (key, row % 2, path.number)
        assert (probe["sport"], probe["reply_port"]) == (path.sport, path.reply_port)
        assert not any(int(probe[name]) for name in ("bound_ns", "t1", "t2", "peer_offset", "t3", "mac"))


def test_scapy_takes_the_usual_port_for_roce() -> None:
    raw = build([Path(0, *ADDRESSES[4], 50_000, 50_001)], 1, abi.ROCE_PORT)[0].tobytes()
    assert IP(raw).haslayer(BTH)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_every_path_comes_in_proportion_to_its_rate(rates: list[int]) -> None:
    whole = np.array(rates, dtype=np.float64) * min(rates)  # multiples of the lowest rate
    whole[int(np.argmin(rates))] = min(rates)
    order = round_robin(whole, RNG)
    assert np.bincount(order, minlength=len(rates)).tolist() == (whole / whole.min()).tolist()


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20))
def test_every_path_comes_whatever_its_rate(rates: list[float]) -> None:
    wanted = np.maximum(1, np.round(np.array(rates) / min(rates)))
    if wanted.sum() < 1e5:
        assert set(round_robin(np.array(rates), RNG).tolist()) == set(range(len(rates)))


@given(st.lists(st.sampled_from([1.0, 2.0, 4.0, 8.0]), min_size=2, max_size=12), st.integers(0, 1000))
def test_the_turns_of_a_path_are_evenly_spread(rates: list[float], seed: int) -> None:
    order = round_robin(np.array(rates), np.random.default_rng(seed))
    for index in range(len(rates)):
        where = np.flatnonzero(order == index)
        gaps = np.diff(np.append(where, where[0] + len(order)))
        assert gaps.max() <= 2 * len(order) / len(where) + len(rates)
        if len(set(rates)) == 1:
            assert gaps.tolist() == [len(rates)]


def test_equal_paths_are_mixed_by_chance() -> None:
    orders = {tuple(round_robin(np.ones(6), np.random.default_rng(seed))) for seed in range(20)}
    assert len(orders) > 10


def test_edges_without_paths_or_rate_send_nothing() -> None:
    edges = [_edge("b/nic0", 100.0, []), _edge("c/nic0", 0.0, [(1, 2)]), _edge("d/nic0", 10.0, [(3, 4)])]
    schedule = make_schedule(edges, key_id=1, port=4791, rng=RNG)
    assert schedule.paths == [PathKey("a/nic0", "d/nic0", 3, 4)]
    assert schedule.edge.tolist() == [2]
    assert [f.pairs_per_s for f in schedule.families] == [10.0]
    assert make_schedule([], key_id=1, port=4791, rng=RNG).families == []


def test_both_families_side_by_side() -> None:
    edges = [_edge("b/nic0", 30.0, [(1, 2), (3, 4), (5, 6)]), _edge("c/nic0", 20.0, [(7, 8)], version=6)]
    schedule = make_schedule(edges, key_id=9, port=4791, rng=RNG)
    assert schedule.edge.tolist() == [0, 0, 0, 1]
    four, six = schedule.families
    assert (four.family, six.family) == (socket.AF_INET, socket.AF_INET6)
    assert four.pairs_per_s == pytest.approx(30.0)
    assert six.pairs_per_s == pytest.approx(20.0)
    assert sorted(four.path) == [0, 1, 2]
    assert six.path.tolist() == [3]
    assert six.templates["packet"]["probe"]["path"].tolist() == [3, 3]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 99))
def test_templates_follow_the_order_of_sending(paths_of_edge: list[int], seed: int) -> None:
    edges = [
        _edge(f"p{n}/nic0", 100.0, [(1000 * n + p + 1, p + 1) for p in range(count)])
        for n, count in enumerate(paths_of_edge)
    ]
    schedule = make_schedule(edges, key_id=1, port=4791, rng=np.random.default_rng(seed))
    (ring,) = schedule.families
    assert ring.templates["packet"]["probe"]["path"].tolist() == np.repeat(ring.path, 2).tolist()
    sports = [schedule.paths[i].sport for i in ring.path]
    assert ring.templates["packet"]["sport"][::2].tolist() == sports
    turns = Counter(schedule.edge[ring.path].tolist())
    assert set(turns) == set(range(len(edges)))
    assert ring.pairs_per_s == pytest.approx(100.0 * len(edges))


@pytest.mark.parametrize("version", [4, 6])
def test_tcp_probes_are_segments_by_scapy(version: int) -> None:
    """Between those of RoCEv2, of the same length, without room for a connection's ports to be taken for theirs."""
    ends = ("10.0.0.1", "10.0.0.2") if version == 4 else ("fd00::1", "fd00::2")
    paths = [Path(n, *ends, 50_000 + n, 60_000, protocol=6 * (n % 2)) for n in range(4)]
    for path, template in zip(paths, requests(paths, 3, 4791), strict=True):
        packet = (IP if version == 4 else IPv6)(template.tobytes())
        assert (TCP in packet) == (path.protocol == 6)
        assert (UDP in packet) == (path.protocol == 0)
        if path.protocol:
            tcp = packet[TCP]
            assert (tcp.sport, tcp.dport, tcp.flags, tcp.seq, tcp.ack) == (path.sport, 4791, "PA", 0, 0)
            assert tcp.urgptr > 0
            assert (tcp.sport + tcp.dport + tcp.urgptr) % 0xFFFF == 0
            assert bytes(tcp.payload)[:4] == b"CWDP"
