"""The agents' process for the verbs shim on hosts of the virtual machine, and what a stand-in for their manager knows.

Each process is forked, as emulated Python takes a minute to start. The stand-in finds by datagrams which spine each source
port leads over, and orders what the manager would.
"""

import multiprocessing
import os
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from cwdp.agent.orders import Orders, Words
from cwdp.agent.ud.orders import DownPaths
from cwdp.agent.verbs import process
from cwdp.agent.verbs.host import VerbsHost
from cwdp.agent.verbs.orders import VerbsOrder, VerbsQp, VerbsWord
from cwdp.agent.verbs.sources import sources
from cwdp.errors import LabError
from cwdp.rdma.sport import SPORT_MAX, SPORT_MIN
from cwdp.shared.bus.messages import Spread
from tools.rdma.testbed.counters import Counters
from tools.rdma.testbed.fabric import RdmaHost
from tools.waiting import wait_for

ROCE_PORT = 4791

_SEED = 16
_BURST = 20
_DATAGRAM = b"short"  # less than a BTH: the device drops it without a word
_SEEN_S, _SEEN_POLL_S = 20.0, 0.02
_TABLE_S, _POLL_S = 60.0, 0.1
_READ_BYTES = 1 << 16
_BACKLOG = 128
_fork = multiprocessing.get_context("fork")

Ports = Mapping[str, int]
"""A source port for each spine, by its name."""


class VerbsAgent:
    """That of a host, as its agent sees it. Made by `serving`.

    Args:
        order: what it is ordered at first.
        orders, words: ends of pipes to it and from it; they stay the caller's.
        watcher: by which paths that are down are told; it stays the caller's.

    Raises:
        LabError: it does not begin.
    """

    def __init__(self, order: VerbsOrder, orders: int, words: int, watcher: socket.socket) -> None:
        self._order, self._orders, self._words, self._watcher = order, orders, words, watcher
        self._unread = b""
        self._queue_pairs: dict[int, VerbsQp] = {}
        self._counters: dict[str, int] = {}
        self._tell()
        self._await_table(0)

    def spread(self, spreads: Sequence[Spread]) -> None:
        """Have new queue pairs spread otherwise than now; returns when the table says so.

        Raises:
            LabError: it does not in time.
        """
        before = self._tables()
        self._order = msgspec.structs.replace(self._order, spreads=list(spreads))
        self._tell()
        self._await_table(before)

    def lose(self, nic: str, paths: Sequence[tuple[str, int]]) -> None:
        """These paths of its NIC are down, as those that watch them would say; returns when the table says so.

        Raises:
            LabError: it does not in time.
        """
        before = self._tables()
        self._watcher.send(msgspec.json.encode(DownPaths(nic, list(paths))))
        self._await_table(before)

    def queue_pairs(self) -> list[VerbsQp]:
        """Those that programs have told of."""
        self._hear()
        return list(self._queue_pairs.values())

    def _await_table(self, before: int) -> None:
        if not wait_for(lambda: self._tables() > before, _TABLE_S, poll_s=_POLL_S):
            raise LabError("the agent's process for the verbs shim makes no table", str(self._counters))

    def _tables(self) -> int:
        self._hear()
        return self._counters.get("verbs_tables", 0)

    def _tell(self) -> None:
        os.write(self._orders, msgspec.json.encode(self._order) + b"\n")

    def _hear(self) -> None:
        try:
            while True:
                self._unread += os.read(self._words, _READ_BYTES)
        except BlockingIOError:
            *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            word = msgspec.json.decode(line, type=VerbsWord)
            if word.anew:
                self._queue_pairs.clear()
            self._queue_pairs.update((qp.number, qp) for qp in word.changed)
            for number in word.gone:
                self._queue_pairs.pop(number, None)
            self._counters = word.counters


Agents = Mapping[str, VerbsAgent]
"""By the names of their hosts."""


def socket_of(folder: Path, host: RdmaHost) -> Path:
    """Where programs of a host connect."""
    return folder / f"{host.name}.sock"


@contextmanager
def serving(hosts: Sequence[RdmaHost], folder: Path) -> Iterator[Agents]:
    """Serve programs of these hosts, by sockets in a folder; queue pairs may be drained."""
    with ExitStack() as stack:
        yield {host.name: stack.enter_context(_served(host, socket_of(folder, host))) for host in hosts}


@contextmanager
def _served(host: RdmaHost, path: Path) -> Iterator[VerbsAgent]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        watcher, paths = (
            stack.enter_context(one) for one in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        )
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        (taken, orders), (words, said) = os.pipe(), os.pipe()
        for fd in (taken, orders, words, said):
            stack.callback(os.close, fd)
        os.set_blocking(words, False)
        child = _fork.Process(
            target=_serve, args=(listener, paths, taken, said), name=f"verbs of {host.name}"
        )
        child.start()
        stack.callback(child.join)
        stack.callback(child.terminate)
        order = VerbsOrder(sources=sources([host.ifname]), moved=[host.ifname], drains=True)
        yield VerbsAgent(order, orders, words, watcher)


def _serve(listener: socket.socket, paths: socket.socket, orders: int, words: int) -> None:
    """In the fork: what `cwdp.agent.verbs.process` does."""
    process.run(Orders(orders, VerbsOrder), VerbsHost(listener, paths), Words(words))


def spread(source: RdmaHost, target: RdmaHost, sports: Sequence[int]) -> Spread:
    """New queue pairs from one host to another take these ports."""
    return Spread(nic=source.ifname, dst_addr=str(target.ipv4), sports=list(sports))


def ports_by_spine(counters: Counters, source: RdmaHost, target: RdmaHost, leaf: str) -> Ports:
    """A source port over each spine from one host to another, which is below this leaf.

    Raises:
        LabError: datagrams are not seen at the spines.
    """
    draw, found = random.Random(_SEED), dict[str, int]()
    while len(found) < len(counters.spines()):
        sport = draw.randint(SPORT_MIN, SPORT_MAX)
        found.setdefault(_spine(counters, source, target, leaf, sport), sport)
    return dict(sorted(found.items()))


def _spine(counters: Counters, source: RdmaHost, target: RdmaHost, leaf: str, sport: int) -> str:
    before = counters.sent_to(leaf)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((str(source.ipv4), sport))
        for _ in range(_BURST):
            sender.sendto(_DATAGRAM, (str(target.ipv4), ROCE_PORT))
    taken: list[str] = []

    def is_seen() -> bool:
        now = counters.sent_to(leaf)
        taken[:] = [spine for spine, packets in now.items() if packets - before[spine] >= _BURST]
        return bool(taken)

    if not wait_for(is_seen, _SEEN_S, poll_s=_SEEN_POLL_S):
        raise LabError(f"datagrams from port {sport} of {source.name} pass no spine", "Is the fabric up?")
    return taken[0]
