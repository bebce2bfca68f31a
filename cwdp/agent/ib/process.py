"""`python -m cwdp.agent.ib.process`: reads an InfiniBand subnet and tells the agent.

A process of its own, as it waits for answers. It takes at most `SHARE` of a processor, and for sweeps `BURST_S` at once: beyond that the
next look is later. It is over when standard input is.
"""

import os
import select
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress

from cwdp.agent.ib.budget import Budget
from cwdp.agent.ib.orders import IbOrder, IbWord
from cwdp.agent.ib.reading import COUNTERS, Message, SubnetReader
from cwdp.agent.orders import Orders, Words
from cwdp.errors import RdmaError
from cwdp.ib.asking import COUNTERS as ASKING
from cwdp.ib.asking import Asker
from cwdp.ib.umad import Umad
from cwdp.shared.ib.reports import IbGrowth, IbSubnet, IbTables

LOOK_S, AGAIN_S, SAY_S = 0.5, 10.0, 0.01
SHARE, BURST_S = 0.2, 2.0
MOST_WAITING = 1_024
NICE = 5


class Process:
    """What runs for as long as the agent does.

    Args:
        orders: of the agent.
        words: to it.
    """

    def __init__(self, orders: Orders[IbOrder], words: Words) -> None:
        self._orders, self._words = orders, words
        self._order: IbOrder | None = None
        self._tell = 0
        self._queue: deque[IbWord] = deque(maxlen=MOST_WAITING)
        self._totals: Counter[str] = Counter(
            dict.fromkeys((*COUNTERS, *(f"ib_{name}" for name in ASKING)), 0)
        )

    def run(self) -> None:
        """Read, and begin anew where that fails, until the agent is gone.

        Raises:
            EOFError, BrokenPipeError: it is.
        """
        while self._order is None:
            self._wait(AGAIN_S)
        while True:
            try:
                with Umad(self._order.device, self._order.port) as opened:
                    self._read(Asker(opened), self._order)
            except RdmaError as error:
                growth = IbGrowth(host=self._order.host, trouble=error.message[:400])
                self._queue.append(IbWord(growth=growth, trouble=error.message, counters=self._totals))
                self._wait(AGAIN_S)

    def _read(self, asker: Asker, order: IbOrder) -> None:
        reader = SubnetReader(asker, order, time.time_ns() // 1_000_000)
        told, budget = Counter[str](), Budget(SHARE, BURST_S)
        while self._order == order:
            began_s, used_s, sweeps = time.monotonic(), time.thread_time(), reader.counters["ib_sweeps"]
            try:
                reader.step()
            finally:
                now = Counter(reader.counters) + Counter(
                    {f"ib_{name}": n for name, n in asker.counters.items()}
                )
                self._totals.update(now - told)
                told = now
            self._say(reader)
            now_s, took_s = time.monotonic(), time.thread_time() - used_s
            pace_s = LOOK_S if reader.counters["ib_sweeps"] > sweeps else max(LOOK_S, took_s / SHARE)
            self._wait(max(began_s + pace_s - now_s, budget.wait_s(now_s, used_s + took_s), SAY_S))
            if self._tell:
                self._tell = 0
                reader.tell(is_news=False)

    def _say(self, reader: SubnetReader) -> None:
        doubts = reader.doubts()
        while reader.waiting:
            self._queue.append(_word(reader.waiting.popleft(), doubts, self._totals))

    def _wait(self, most_s: float) -> None:
        """Say what is to be said, for so long, or until there are orders."""
        until_s = time.monotonic() + most_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._queue and self._words.is_free():
                self._words.say(self._queue.popleft())
                continue
            select.select([self._orders.fileno()], [], [], min(left_s, SAY_S) if self._queue else left_s)
            order = self._orders.take()
            if order is not None:
                self._take(order)
                return

    def _take(self, order: IbOrder) -> None:
        before = self._order
        if before is not None and order.tell != before.tell:
            self._tell = order.tell
        where = order.host, order.device, order.port
        if before is None or where != (before.host, before.device, before.port):
            self._order = order


def _word(message: Message, doubts: list[str], counters: Mapping[str, int]) -> IbWord:
    totals = dict(counters)
    match message:
        case IbSubnet():
            return IbWord(subnet=message, doubts=doubts, counters=totals)
        case IbTables():
            return IbWord(tables=message, doubts=doubts, counters=totals)
        case IbGrowth():
            return IbWord(growth=message, doubts=doubts, counters=totals)


def main() -> None:
    """Run, out of the way of programs."""
    os.nice(NICE)
    with suppress(EOFError, BrokenPipeError):
        Process(Orders(sys.stdin.fileno(), IbOrder), Words(sys.stdout.fileno())).run()


if __name__ == "__main__":
    main()
