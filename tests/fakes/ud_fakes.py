"""A network in arithmetic between UD probers, whose clock a test moves."""

import os
from collections import deque

from cwdp.errors import RdmaError
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.udprobe import Received, UdPath, UdProber, UdSample
from cwdp.shared.bus.messages import UdAddress

KEY = bytes(range(16))
A, B = "::ffff:10.0.1.1", "fd00:2::1"
DELAY_NS = 3_000
ALWAYS_READABLE = os.eventfd(1)


class Clock:
    """A clock that a test moves; each reading takes 10 ns."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        self.now_ns += 10
        return self.now_ns


class Network:
    """Hands messages over, each after DELAY_NS; `lose` and `refuse` are a test's."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queues: dict[tuple[bytes, int], deque[Received]] = {}
        self.log: list[tuple[bytes, int, bytes]] = []
        self.lose = False
        self.refuse = False
        self.dead_sports: set[int] = set()

    def carry(self, source: bytes, gid: bytes, qpn: int, sport: int, data: bytes) -> None:
        self.log.append((gid, sport, data))
        self.clock.now_ns += DELAY_NS
        if not self.lose and sport not in self.dead_sports and (gid, qpn) in self.queues:
            self.queues[gid, qpn].append(Received(self.clock(), source, data))


class Link:
    def __init__(self, network: Network, address: UdAddress) -> None:
        self.network, self.address = network, address
        self.gid = gid_bytes(address.gid)
        self.queue = network.queues[self.gid, address.qpn] = deque()
        self.suspected: list[bytes] = []
        self.failure: RdmaError | None = None
        self.closed = False

    def send(self, gid: bytes, qpn: int, sport: int, data: bytes) -> bool:
        if self.network.refuse:
            return False
        self.network.carry(self.gid, gid, qpn, sport, data)
        return True

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def poll(self) -> list[Received]:
        found = list(self.queue)
        self.queue.clear()
        return found

    def suspect(self, gid: bytes) -> None:
        self.suspected.append(gid)

    def fileno(self) -> int:
        return ALWAYS_READABLE

    def close(self) -> None:
        self.closed = True


class Pair:
    """Two probers, A and B, and a path between them."""

    def __init__(self, b_keys: dict[int, bytes] | None = None) -> None:
        self.network = Network()
        self.links = [Link(self.network, UdAddress(A, 0x11)), Link(self.network, UdAddress(B, 0x22))]
        clock = self.network.clock
        self.a = UdProber(self.links[0], {1: KEY}, 1, clock)
        self.b = UdProber(self.links[1], b_keys or {1: KEY}, next(iter(b_keys or {1: KEY})), clock)
        self.path = UdPath(self.b.address, 50_001, 50_002)

    def exchange(self) -> list[UdSample]:
        self.a.send([self.path])
        self.network.clock.now_ns += 5_000  # B is slow to look
        self.b.poll()
        return self.a.poll()
