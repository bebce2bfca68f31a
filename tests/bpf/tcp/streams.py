"""What goes over steered connections, and steered connections of real sockets."""

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable

from two_spines import Host, TwoSpines
from waiting import WAIT_S, until

from cwdp.dataplane.pinned import tree
from cwdp.dataplane.steering.tcp import TcpConnection, TcpSteer

CHUNK = os.urandom(1 << 16)


class Stream:
    """Random bytes from one end of a connection to the other until it is ended."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self._near, self._far = near, far
        self._ends = threading.Event()
        self._sent, self._got = hashlib.sha256(), hashlib.sha256()
        self.got_bytes = 0
        self.longest_s = 0.0
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self._ends.is_set():
            self._near.sendall(CHUNK)
            self._sent.update(CHUNK)
        self._near.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        self._last_s = time.monotonic()
        while data := self._far.recv(1 << 20):
            now_s = time.monotonic()
            self.longest_s = max(self.longest_s, now_s - self._last_s)
            self._last_s = now_s
            self._got.update(data)
            self.got_bytes += len(data)

    def end(self) -> None:
        """Every byte has arrived, in order."""
        self._ends.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert self._got.digest() == self._sent.digest()


class Pair:
    """A connection that both hosts steer, each its own direction, over a path and its backup."""

    def __init__(self, net: TwoSpines, version: int, *, ports: bool = True) -> None:
        self.net, self.version, self.ports = net, version, ports
        self.near, self.far = net.connect(version)
        self.ends = [
            (host, host.connection(sock)) for host, sock in zip(net.hosts, (self.near, self.far), strict=True)
        ]

    def steer(self, *spines: int) -> None:
        """Take these spines, there and back, the others as backup."""
        for side, first in enumerate(spines):
            host, connection = self.ends[side]
            sports = self.net.sports(side, self.version)
            wanted = TcpSteer(sports[first], sports[1 - first], self.ports, flow_label=self.version == 6)
            with tree.locked():
                host.steering.set(connection, wanted)

    def await_confirmed(self) -> None:
        for host, connection in self.ends:
            if connection in host.steering.all():
                until(confirmed(host, connection))
            until(lambda host=host: all(path["last_answer_ns"] for path in host.watched()))
        self.net.set_timers()


def confirmed(host: Host, connection: TcpConnection) -> Callable[[], bool]:
    def holds() -> bool:
        return any(
            one.connection == connection and one.confirmed
            for one in host.steering.listed(time.monotonic_ns())
        )

    return holds
