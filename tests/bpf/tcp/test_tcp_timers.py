"""Timers of steered connections' sockets: short where the far end answers soon, longer by what queues delay."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from two_spines import TwoSpines, host_address, two_spines
from waiting import until

from cwdp.dataplane import abi
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.steering.tcp import TcpSteer

pytestmark = pytest.mark.kernel

RATE_BPS = 100_000_000
PACKET_BYTES, BURST_PACKETS = 1400, 640
DISCARD_PORT = 9
BURST_S = 8 * PACKET_BYTES * BURST_PACKETS / RATE_BPS

QUEUE_BYTES = 8_000_000
MOST_BURSTS = 40
"""Where the machine has much else to do round trips vary less beside what they take."""

LINUX_RTO_MIN_S = 0.2
RTO_MIN_S, RTO_MIN_MAX_S = abi.TCP_RTO_MIN_US / 1e6, abi.TCP_RTO_MIN_MAX_US / 1e6


@pytest.fixture
def net() -> Iterator[TwoSpines]:
    with two_spines() as made:
        for host in made.hosts:
            host.maps.control["dead_after_ns"] = 60 * 10**9
        yield made


def tcp_info(sock: socket.socket, offset: int) -> int:
    """A number of `struct tcp_info` (linux/tcp.h)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int(struct.unpack_from("=I", info, offset)[0])


def rto_s(sock: socket.socket) -> float:
    return tcp_info(sock, 8) / 1e6


def retransmissions(sock: socket.socket) -> int:
    return tcp_info(sock, 100)


def steered(net: TwoSpines, *, ports: bool = True, version: int = 4) -> tuple[socket.socket, socket.socket]:
    """A connection that both hosts have go by spine 0, confirmed where its ports change."""
    pair = net.connect(version)
    for side, (host, sock) in enumerate(zip(net.hosts, pair, strict=True)):
        wanted = TcpSteer(net.sports(side, version)[0], ports=ports, flow_label=version == 6)
        with tree.locked():
            host.steering.set(host.connection(sock), wanted)
        until(lambda host=host: all(one.confirmed for one in host.steering.listed(time.monotonic_ns())))
    return pair


def asks(near: socket.socket, far: socket.socket, times: int = 1) -> None:
    """Questions and answers, one at a time."""
    for _ in range(times):
        near.sendall(b"?")
        far.sendall(far.recv(1))
        near.recv(1)


class Asking:
    """One who asks without end."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self._ends = threading.Event()
        self._pair = near, far
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.001):
            asks(*self._pair)

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


class Bursts:
    """What fills the queue of spine 0 at once, again and again: datagrams, which no congestion control holds back."""

    def __init__(self, net: TwoSpines) -> None:
        sport = next(port for port in range(50_000, 50_100) if net.udp_spine_of(port, DISCARD_PORT) == 0)
        with net.hosts[0].namespace.entered():
            self._near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._near.bind((host_address(0), sport))
        net.spines[0].set_rate("l1", RATE_BPS, QUEUE_BYTES)

    def close(self) -> None:
        self._near.close()

    def burst(self) -> None:
        for _ in range(BURST_PACKETS):
            self._near.sendto(bytes(PACKET_BYTES), (host_address(1), DISCARD_PORT))
        time.sleep(BURST_S + 0.1)


@pytest.fixture
def bursts(net: TwoSpines) -> Iterator[Bursts]:
    made = Bursts(net)
    yield made
    made.close()


def rto_after(net: TwoSpines, pair: tuple[socket.socket, socket.socket]) -> float:
    """The time-out of a connection once its timers are set and it has asked for a while."""
    net.set_timers()
    asks(*pair, 30)
    return rto_s(pair[0])


def test_a_queue_that_comes_and_goes_is_no_loss(net: TwoSpines, bursts: Bursts) -> None:
    """One asks, each time after the last answer, while others fill the queue of its path at once, again and again."""
    pair = steered(net)
    until(lambda: bursts.burst() or net.hosts[0].watched()["slowest_ns"].max() > 2e9 * RTO_MIN_S)
    assert rto_after(net, pair) > 3 * RTO_MIN_S
    asking, before = Asking(*pair), retransmissions(pair[0])
    for _ in range(10):
        bursts.burst()
        net.set_timers()
    asking.end()
    assert retransmissions(pair[0]) == before


def test_one_that_comes_later_makes_the_timer_longer(net: TwoSpines, bursts: Bursts) -> None:
    """A least one above the variation of round trips would keep the kernel from that (`tcp_rtt_estimator`)."""
    pair = steered(net)
    net.pulses_took(0)
    assert rto_after(net, pair) < 2 * RTO_MIN_S
    net.pulses_took(1)
    assert rto_after(net, pair) < 2 * RTO_MIN_S
    asking, seen = Asking(*pair), threading.Event()
    filling = threading.Thread(
        target=lambda: [bursts.burst() for _ in range(MOST_BURSTS) if not seen.is_set()]
    )
    filling.start()
    longest_s = 0.0
    while filling.is_alive() and not seen.is_set():
        longest_s = max(longest_s, rto_s(pair[0]))
        if longest_s > 2 * RTO_MIN_S:
            seen.set()
        time.sleep(0.001)
    filling.join()
    asking.end()
    assert seen.is_set(), f"the longest time-out was {longest_s} s"


def test_and_is_forgotten(net: TwoSpines) -> None:
    pair = steered(net)
    net.pulses_took(0)
    net.hosts[0].maps.tcp_conns["queued_us"] = 10 * abi.TCP_RTO_MIN_MAX_US
    assert RTO_MIN_MAX_S <= rto_after(net, pair) < 1.2 * RTO_MIN_MAX_S
    for _ in range(50):
        net.set_timers()
    assert RTO_MIN_S <= rto_after(net, pair) < RTO_MIN_MAX_S / 2


@pytest.mark.parametrize("took_s", [0.001, 0.02, 0.05, 1.0])
def test_a_slow_path_is_waited_for(net: TwoSpines, took_s: float) -> None:
    """Its pulses say how long its queue is before the connection sends anything."""
    pair = steered(net)
    net.pulses_took(took_s)
    least_s = min(RTO_MIN_S + took_s, RTO_MIN_MAX_S)
    assert least_s <= rto_after(net, pair) < least_s + 0.05


def test_pulses_of_the_last_seconds_count(net: TwoSpines) -> None:
    steered(net)
    (path,) = net.hosts[0].watched()
    assert path["slow_ns"] <= path["slowest_ns"] < 10**9
    net.hosts[0].maps.paths["slowest_ns"] = 10**10
    (path,) = net.hosts[0].watched()
    until(lambda: net.hosts[0].watched()["slowest_ns"][0] < 0.9 * 10**10)
    assert net.hosts[0].watched()["slowest_ns"][0] > 0.7 * 10**10


def test_only_where_the_far_end_holds_no_answer_back_for_long(net: TwoSpines) -> None:
    """It is known to be one of ours once it has confirmed."""
    host = net.hosts[0]
    host.is_silent = True
    pair = net.connect()
    connection = host.connection(pair[0])
    with tree.locked():
        host.steering.set(connection, TcpSteer(net.sports()[0]))
    assert rto_after(net, pair) >= LINUX_RTO_MIN_S
    host.is_silent = False
    until(lambda: host.steering.listed(time.monotonic_ns())[0].confirmed)
    net.pulses_took(0)
    assert rto_after(net, pair) < LINUX_RTO_MIN_S / 2


def test_labels_alone_say_nothing_of_the_far_end(net: TwoSpines) -> None:
    pair = steered(net, ports=False, version=6)
    assert rto_after(net, pair) >= LINUX_RTO_MIN_S
