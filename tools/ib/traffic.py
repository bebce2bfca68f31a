"""What ports of a subnet send, and how long they wait, second by second: bursts, incasts, hosts that pause, counters that err. Pure.

A fluid, not packets. Flows to a host share what it takes, by default all that its link can bring. On the way to it each port sends its
flows' part and waits for the rest of the time; the last port before the host waits only where the host takes less than its link brings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from tools.ib.topology import Clos, Port

BURSTS_A_HOST, INCASTS_A_HOST, PAUSES_A_HOST = 0.1, 0.02, 0.001
"""That begin in a second."""

BURST_S, INCAST_S, PAUSE_S = (0.05, 0.5), (0.5, 2.0), (0.02, 0.3)
APART_S = 3.0
"""So long a host's link is left alone after a burst or an incast: two that follow each other are a longer one, and no burst."""

MOST_SENDERS, MOST_OF_A_PAUSE = 8, 4
MOST_LOAD, MOST_WAIT = 0.3, 0.05
"""Of a second, at each port, beside all that."""

STRAYS, STRAY_WAIT = 0.002, (0.1, 0.5)
"""The share of ports whose counters tell of waiting in a second for no reason, and of how much."""

BUSY = (0.6, 1.0)
"""The share of a second in which something is sent to a slow receiver."""


@dataclass(frozen=True)
class Flows:
    """To one host.

    Attributes:
        host: its place, from 0.
        ports, parts: those on the way, and the part of the flows that takes each.
        begin_s, end_s: when they are there.
        takes: what the host takes of its link's rate meanwhile.
    """

    host: int
    ports: NDArray[np.intp]
    parts: NDArray[np.float64]
    begin_s: float
    end_s: float = inf
    takes: float = 1.0


class Traffic:
    """Of one subnet.

    Attributes:
        ports: all that have a link, in the order of arrays.
        draw: by which all is drawn.
    """

    def __init__(self, topology: Clos, draw: np.random.Generator) -> None:
        self.draw = draw
        self._now_s = 0.0
        self._nodes = topology.nodes()
        self.ports: list[Port] = [(node, number) for node, of in self._nodes.items() for number in of]
        self._row = {port: row for row, port in enumerate(self.ports)}
        self._hosts = topology.leaves * topology.hosts
        self._there: list[Flows] = []
        self._takes: dict[int, float] = {}
        self._lasting: dict[int, Flows] = {}
        self._cut: list[int] = []
        self._free_s = np.zeros(self._hosts)

    def slow_down(self, name: str, waits: float) -> None:
        """Have a host take less than its link brings, and one to eight others send to it.

        Args:
            name: the host's.
            waits: the share of the time in which its leaf waits for it while something is sent.
        """
        host = _place(name)
        self._takes[host] = 1.0 - waits
        self._lasting[host] = self._flows(host, int(self.draw.integers(1, MOST_SENDERS + 1)), 0.0, inf)

    def mend(self, name: str) -> None:
        """Have a host take all again, and nobody send to it for long."""
        del self._takes[_place(name)], self._lasting[_place(name)]

    def cut(self, port: Port | None) -> None:
        """Have nothing sent over the link of a port, as switches drop what would leave by it; None for over all links again."""
        self._cut = [] if port is None else [self._row[port], self._row[self._nodes[port[0]][port[1]]]]

    def second(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Shares of the next second in which each port sends and waits, two arrays of shape (ports,)."""
        self._begin()
        count, begin_s, end_s = len(self.ports), self._now_s, self._now_s + 1.0
        sends = self.draw.uniform(0.0, MOST_LOAD, count)
        waits = self.draw.random(count) ** 8 * MOST_WAIT
        waits += (self.draw.random(count) < STRAYS) * self.draw.uniform(*STRAY_WAIT, count)
        self._there = [
            one for one in self._there if one.end_s > begin_s and not np.isin(self._cut, one.ports).any()
        ]
        for one in self._there:
            self._add(one, min(one.end_s, end_s) - max(one.begin_s, begin_s), sends, waits)
        for one in self._lasting.values():
            self._add(one, float(self.draw.uniform(*BUSY)), sends, waits)
        self._now_s = end_s
        most = np.maximum(sends + waits, 1.0)
        return sends / most, waits / most

    def _add(self, one: Flows, share: float, sends: NDArray[np.float64], waits: NDArray[np.float64]) -> None:
        each = one.parts * min(one.takes, self._takes.get(one.host, 1.0))
        sends[one.ports] += share * each
        waits[one.ports] += share * (1.0 - each)

    def _begin(self) -> None:
        """What begins in the next second."""
        draw, most = self.draw, min(MOST_SENDERS, self._hosts - 1)
        some = [
            *(self._some(int(draw.integers(2, most + 1)), BURST_S) for _ in self._times(BURSTS_A_HOST)),
            *(
                self._some(int(draw.integers(1, MOST_OF_A_PAUSE + 1)), PAUSE_S, takes=0.0)
                for _ in self._times(PAUSES_A_HOST)
            ),
            *(self._some(int(draw.integers(2, most + 1)), INCAST_S) for _ in self._times(INCASTS_A_HOST)),
        ]
        for one in some:
            if self._free_s[one.host] <= one.begin_s:
                self._free_s[one.host] = one.end_s + APART_S
                self._there.append(one)

    def _times(self, a_host: float) -> range:
        return range(int(self.draw.poisson(a_host * self._hosts)))

    def _some(self, senders: int, lasts_s: tuple[float, float], takes: float = 1.0) -> Flows:
        begin_s = self._now_s + float(self.draw.random())
        end_s = begin_s + float(self.draw.uniform(*lasts_s))
        return self._flows(int(self.draw.integers(self._hosts)), senders, begin_s, end_s, takes)

    def _flows(self, host: int, senders: int, begin_s: float, end_s: float, takes: float = 1.0) -> Flows:
        others = np.delete(np.arange(self._hosts), host)
        chosen = self.draw.choice(others, min(senders, len(others)), replace=False).tolist()
        rows = [row for other in chosen for row in self._way(other, host)]
        ports, times = np.unique(rows, return_counts=True)
        return Flows(host, ports, times / len(chosen), begin_s, end_s, takes)

    def _way(self, src: int, dst: int) -> Sequence[int]:
        """Rows of the ports by which packets of a host to another one leave, over a spine that is drawn."""
        here, there = f"h{src + 1}", f"h{dst + 1}"
        (leaf, _), (last, number) = self._nodes[here][1], self._nodes[there][1]
        ways = [(here, 1), (last, number)]
        if leaf != last:
            ups = [port for port, (far, _) in self._nodes[leaf].items() if far.startswith("s")]
            up = int(self.draw.choice(ups))
            spine = self._nodes[leaf][up][0]
            downs = [port for port, (far, _) in self._nodes[spine].items() if far == last]
            ways[1:1] = [(leaf, up), (spine, int(self.draw.choice(downs)))]
        return [self._row[port] for port in ways]


def _place(host: str) -> int:
    """From 0."""
    return int(host[1:]) - 1
