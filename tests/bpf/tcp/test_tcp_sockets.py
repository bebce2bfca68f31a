"""Connections of real sockets, below two real switches, are moved and failed over: no byte is lost, none is reset."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from streams import CHUNK, Pair, Stream, confirmed
from two_spines import Host, TwoSpines, two_spines
from waiting import until

from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.steering.tcp import TcpSteer

pytestmark = pytest.mark.kernel

FAMILIES = pytest.mark.parametrize("version", [4, 6], ids=["IPv4", "IPv6"])
LINUX_RTO_MIN_S = 0.2
"""Linux waits for no less, unless it is told to."""


@pytest.fixture
def net() -> Iterator[TwoSpines]:
    with two_spines() as made:
        yield made


def rto_s(sock: socket.socket) -> float:
    """The retransmission time-out of a socket now (`struct tcp_info`)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 16)
    return float(struct.unpack_from("=I", info, 8)[0]) / 1e6


@FAMILIES
def test_moved_back_and_forth_under_traffic(net: TwoSpines, version: int) -> None:
    """In buffers of many segments, as the hosts make them."""
    pair = Pair(net, version)
    pair.steer(0, 0)
    pair.await_confirmed()
    stream = Stream(pair.near, pair.far)
    for turn in range(30):
        pair.steer(turn % 2, turn // 2 % 2)
        before = net.hosts[0].maps.counters()["tcp_steered"]
        until(lambda before=before: net.hosts[0].maps.counters()["tcp_steered"] > before + 10)
    stream.end()
    near, far = (host.maps.counters() for host in net.hosts)
    assert far["tcp_restored"] > near["tcp_steered"] > 300
    assert near["tcp_unknown"] == far["tcp_unknown"] == 0


@FAMILIES
def test_a_move_takes_the_traffic_to_the_other_spine(net: TwoSpines, version: int) -> None:
    pair = Pair(net, version)
    pair.steer(0, 0)
    pair.await_confirmed()
    for spine in (1, 0, 1):
        pair.steer(spine, spine)
        before = [switch.received_bytes("l0") for switch in net.spines]
        for _ in range(20):
            pair.near.sendall(CHUNK)
            received = 0
            while received < len(CHUNK):
                received += len(pair.far.recv(1 << 20))
        carried = [switch.received_bytes("l0") - n for switch, n in zip(net.spines, before, strict=True)]
        assert carried[spine] > 20 * len(CHUNK) > 4 * carried[1 - spine]


@FAMILIES
@pytest.mark.parametrize("sides", [(0, 1), (0,), (1,)], ids=["both ways", "answers", "data"])
def test_a_silent_cut(net: TwoSpines, version: int, sides: tuple[int, ...]) -> None:
    """The sender's kernel takes the backup without being asked, and TCP finds out before its timer."""
    pair = Pair(net, version)
    pair.steer(0, 0)
    pair.await_confirmed()
    stream = Stream(pair.near, pair.far)
    until(lambda: stream.got_bytes > 10_000_000)
    stream.longest_s = 0.0
    net.cut(0, sides=sides)
    cut_bytes = stream.got_bytes
    until(lambda: stream.got_bytes > cut_bytes + 10_000_000)
    assert stream.longest_s < LINUX_RTO_MIN_S
    stream.end()


def test_only_sockets_of_steered_connections_wait_for_less(net: TwoSpines) -> None:
    pair = Pair(net, 4)
    pair.steer(0)
    pair.await_confirmed()
    net.pulses_took(0)
    net.set_timers()
    others = net.connect()
    for near, far in ((pair.near, pair.far), others):
        for _ in range(20):
            near.sendall(b"?")
            far.sendall(far.recv(1))
            near.recv(1)
    assert rto_s(pair.near) < LINUX_RTO_MIN_S <= min(map(rto_s, (pair.far, *others)))


def test_a_peer_without_cwdp_is_left_alone(net: TwoSpines) -> None:
    near, far = net.hosts
    with far.namespace.entered():
        loader.unload("roce0")
    pair = Pair(net, 4)
    pair.steer(0)
    until(lambda: near.counters["announcements_sent"] > 5)
    assert not confirmed(*pair.ends[0])()
    stream = Stream(pair.near, pair.far)
    until(lambda: stream.got_bytes > 1_000_000)
    stream.end()
    counters = near.maps.counters()
    assert counters["tcp_steered"] == 0
    assert counters["tcp_not_confirmed"] + counters["tcp_no_path"] > 10


def test_a_peer_whose_dataplane_goes(net: TwoSpines) -> None:
    """Its paths fall silent, and what is sent next bears its own ports again."""
    near, far = net.hosts
    pair = Pair(net, 4)
    pair.steer(0, 0)
    pair.await_confirmed()
    stream = Stream(pair.near, pair.far)
    until(lambda: stream.got_bytes > 1_000_000)
    with far.namespace.entered():
        loader.unload("roce0")
    before = stream.got_bytes
    until(lambda: stream.got_bytes > before + 1_000_000)
    stream.end()
    assert near.maps.counters()["tcp_no_path"] > 0


def own_ports(host: Host) -> int:
    """Segments that left by their own ports: neither path is alive, or none has been for so long that the far end's word is old."""
    counters = host.maps.counters()
    return counters["tcp_no_path"] + counters["tcp_not_confirmed"]


def test_both_paths_dead_for_a_while(net: TwoSpines) -> None:
    """As when the far end stands still: it stays on its path, takes its own ports when that lasts, and comes back."""
    pair = Pair(net, 4)
    pair.steer(0, 0)
    pair.await_confirmed()
    for host in net.hosts:
        host.maps.control["dead_after_ns"] = 50_000_000
    stream = Stream(pair.near, pair.far)
    until(lambda: stream.got_bytes > 1_000_000)
    near = net.hosts[0]
    before = own_ports(near)
    for spine in (0, 1):
        net.cut(spine)
    cut_s = time.monotonic()
    until(lambda: own_ports(near) > before)
    assert time.monotonic() - cut_s > 0.4
    for spine in (0, 1):
        net.mend(spine)
    mended_bytes, steered = stream.got_bytes, near.maps.counters()["tcp_steered"]
    until(lambda: stream.got_bytes > mended_bytes + 10_000_000)
    assert near.maps.counters()["tcp_steered"] > steered
    stream.end()


def test_both_spines_dead_is_not_our_death(net: TwoSpines) -> None:
    pair = Pair(net, 4)
    pair.steer(0, 0)
    pair.await_confirmed()
    for host in net.hosts:
        host.is_silent = True
    stream = Stream(pair.near, pair.far)
    until(lambda: stream.got_bytes > 1_000_000)
    stream.end()
    assert all(
        state == PathState.UP
        for one in net.hosts[0].steering.listed(0)
        for state in (one.primary_state, one.backup_state)
    )


def test_connections_to_the_port_of_probes(net: TwoSpines) -> None:
    """Somebody's own service on that port, with and without steering."""
    steered = Pair(net, 4)
    steered.steer(0, 0)
    steered.await_confirmed()
    listener = net.listener(port=abi.ROCE_PORT)
    for chosen in (False, True):
        near, far = net.connect(listener=listener)
        if chosen:
            connection = net.hosts[0].connection(near)
            with tree.locked():
                net.hosts[0].steering.set(connection, TcpSteer(50_500))
            until(confirmed(net.hosts[0], connection))
        stream = Stream(near, far)
        until(lambda stream=stream: stream.got_bytes > 1_000_000)
        stream.end()


def test_only_labels_where_switches_hash_them() -> None:
    """Linux as a switch does by its hash policy 0; the far end need not restore anything."""
    with two_spines(hash_policy=0) as net:
        pair = Pair(net, 6, ports=False)
        near, far = net.hosts
        used: set[int] = set()
        stream = Stream(pair.near, pair.far)
        for sport in range(50_000, 50_008):
            with tree.locked():
                near.steering.set(pair.ends[0][1], TcpSteer(sport, ports=False, flow_label=True))
            before = [switch.received_bytes("l0") for switch in net.spines]
            started = stream.got_bytes
            until(lambda started=started: stream.got_bytes > started + 5_000_000)
            carried = [switch.received_bytes("l0") - n for switch, n in zip(net.spines, before, strict=True)]
            used.add(carried.index(max(carried)))
        stream.end()
        assert used == {0, 1}
        assert far.maps.counters()["tcp_restored"] == 0


def test_a_path_of_a_smaller_mtu_is_found_out(net: TwoSpines) -> None:
    """A spine's ICMP error quotes the ports of the path; the sender's stack hears of its own."""
    pair = Pair(net, 4)
    pair.steer(0, 0)
    pair.await_confirmed()
    net.spines[0].set_mtu("l1", 1300)
    stream = Stream(pair.near, pair.far)
    until(lambda: stream.got_bytes > 10_000_000)
    stream.end()
    assert net.hosts[0].maps.counters()["tcp_quote_restored"] > 0


def test_many_connections_share_two_paths(net: TwoSpines) -> None:
    listener = net.listener()
    pairs = [net.connect(listener=listener) for _ in range(12)]
    sports = net.sports()
    near = net.hosts[0]
    with tree.locked():
        for n, (sock, _) in enumerate(pairs):
            near.steering.set(near.connection(sock), TcpSteer(sports[n % 2], sports[1 - n % 2]))
    for sock, _ in pairs:
        until(confirmed(near, near.connection(sock)))
    streams = [Stream(*pair) for pair in pairs]
    until(lambda: all(stream.got_bytes > 100_000 for stream in streams))
    for stream in streams:
        stream.end()
    assert near.maps.counters()["tcp_not_confirmed"] == 0
