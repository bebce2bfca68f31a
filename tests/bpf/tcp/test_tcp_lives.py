"""What a steered connection goes through beside data: full receivers, silence, resets, and the next one of the same ports."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from streams import Pair, Stream, confirmed
from two_spines import TwoSpines, host_address, two_spines
from waiting import WAIT_S, until

from cwdp.dataplane.pinned import tree
from cwdp.dataplane.steering.tcp import TcpSteer
from cwdp.shared.addresses import read_address

pytestmark = pytest.mark.kernel

MEGABYTE = 1_000_000
CLOSED = 7
"""Of <netinet/tcp.h>."""

TCP_MD5SIG = 14
"""Of <linux/tcp.h>."""


@pytest.fixture
def net() -> Iterator[TwoSpines]:
    with two_spines() as made:
        yield made


@pytest.fixture
def pair(net: TwoSpines) -> Pair:
    """One over spine 0 both ways, with spine 1 as backup."""
    made = Pair(net, 4)
    made.steer(0, 0)
    made.await_confirmed()
    return made


def received(sock: socket.socket, nbytes: int) -> bytes:
    got = bytearray()
    while len(got) < nbytes:
        got += sock.recv(nbytes - len(got))
    return bytes(got)


def reset(sock: socket.socket) -> None:
    """Close it by a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_a_full_receiver_while_its_path_dies(net: TwoSpines, pair: Pair) -> None:
    """The sender asks for room over the backup."""
    data = bytes(range(256)) * 40_000
    sender = threading.Thread(target=pair.near.sendall, args=(data,), daemon=True)
    sender.start()
    time.sleep(0.3)
    net.cut(0)
    time.sleep(0.5)
    assert received(pair.far, len(data)) == data
    sender.join(WAIT_S)
    assert not sender.is_alive()


def test_keepalives_of_an_idle_connection_whose_path_dies(net: TwoSpines, pair: Pair) -> None:
    for sock in (pair.near, pair.far):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 2)):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    net.cut(0)
    time.sleep(5)
    pair.near.sendall(b"?")
    assert received(pair.far, 1) == b"?"


@pytest.mark.parametrize("side", [0, 1])
def test_a_reset_ends_both(net: TwoSpines, pair: Pair, side: int) -> None:
    """It bears the connection's own ports."""
    ends = pair.near, pair.far
    pair.near.sendall(b"?")
    received(pair.far, 1)
    reset(ends[side])
    ends[1 - side].settimeout(WAIT_S)
    with pytest.raises(ConnectionResetError):
        ends[1 - side].recv(1)


def test_a_segment_by_a_path_to_a_closed_socket_is_answered_by_a_reset(net: TwoSpines, pair: Pair) -> None:
    """As of any connection: what is restored is the stack's."""
    pair.near.settimeout(WAIT_S)
    pair.far.close()
    assert pair.near.recv(1) == b""
    pair.near.sendall(b"?")
    until(lambda: pair.near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSED)


def again(net: TwoSpines, listener: socket.socket, port: int) -> tuple[socket.socket, socket.socket]:
    """A connection from this port of host 0."""
    with net.hosts[0].namespace.entered():
        near = socket.socket()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    near.bind((host_address(0), port))
    near.connect(listener.getsockname())
    return near, listener.accept()[0]


@pytest.mark.parametrize("by_reset", [False, True])
def test_the_next_connection_of_the_same_ports(net: TwoSpines, by_reset: bool) -> None:
    """It is steered from its first segment on, also while the far end waits for late ones of the one before."""
    listener, host = net.listener(), net.hosts[0]
    near, far = again(net, listener, 0)
    port, connection = near.getsockname()[1], host.connection(near)
    with tree.locked():
        host.steering.set(connection, TcpSteer(*net.sports()))
    until(confirmed(host, connection))
    for _ in range(5):
        steered = host.maps.counters()["tcp_steered"]
        sender = threading.Thread(target=near.sendall, args=(bytes(MEGABYTE),))
        sender.start()
        assert received(far, MEGABYTE) == bytes(MEGABYTE)
        sender.join()
        if by_reset:
            reset(near)
        far.close()
        near.close()
        assert host.maps.counters()["tcp_steered"] > steered
        near, far = again(net, listener, port)
    near.close()
    far.close()
    assert net.hosts[1].maps.counters()["tcp_unknown"] == 0


def test_ipv4_by_a_socket_of_ipv6(net: TwoSpines) -> None:
    with net.hosts[1].namespace.entered():
        listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with net.hosts[0].namespace.entered():
        near = socket.socket(socket.AF_INET6)
    near.connect((f"::ffff:{host_address(1)}", listener.getsockname()[1]))
    far, _ = listener.accept()
    host = net.hosts[0]
    local, remote = near.getsockname(), near.getpeername()
    connection = host.connection(near)
    assert connection.local == read_address(local[0])
    assert connection.remote == read_address(remote[0])
    sports = net.sports()
    with tree.locked():
        host.steering.set(connection, TcpSteer(*sports))
    until(confirmed(host, connection))
    with host.namespace.entered():
        host.steering.set_timers()
    stream = Stream(near, far)
    until(lambda: stream.got_bytes > MEGABYTE)
    stream.end()
    assert host.maps.counters()["tcp_steered"] > 0
    for sock in (near, far, listener):
        sock.close()


def _sign(sock: socket.socket, peer: str) -> None:
    """RFC 2385, by `struct tcp_md5sig`; the key is one of this test alone."""
    address = struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton(peer))
    sock.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, struct.pack("=128sBBHi80s", address, 0, 0, 3, 0, b"key"))


def test_signed_segments(net: TwoSpines) -> None:
    """Signatures are over the connection's own ports: made before they change, checked after they are given back."""
    listener = net.listener()
    with net.hosts[0].namespace.entered():
        near = socket.socket()
    try:
        _sign(near, host_address(1))
    except OSError as error:
        pytest.skip(f"the kernel has no TCP-MD5: {error.strerror}")
    _sign(listener, host_address(0))
    with contextlib.closing(near):
        near.bind((host_address(0), 0))
        near.connect(listener.getsockname())
        far, _ = listener.accept()
        host = net.hosts[0]
        sports = net.sports()
        with tree.locked():
            host.steering.set(host.connection(near), TcpSteer(*sports))
        until(confirmed(host, host.connection(near)))
        stream = Stream(near, far)
        until(lambda: stream.got_bytes > MEGABYTE)
        stream.end()
        assert host.maps.counters()["tcp_steered"] > 10
        far.close()
