"""What is read of a subnet, as messages for the manager: whole when its structure changes, else what has changed of it."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cwdp.agent.ib.orders import IbOrder
from cwdp.ib.asking import Asker
from cwdp.ib.counters import Reading, growth
from cwdp.ib.doubts import doubts
from cwdp.ib.polling import Change, Polled, moved
from cwdp.ib.sweep import End
from cwdp.shared.ib.counters import Growth
from cwdp.shared.ib.reports import (
    AGAIN_S,
    MOST_ROWS,
    IbGrowth,
    IbSubnet,
    IbTables,
    pack_growth,
    pack_tables,
    subnet_pieces,
)

COUNTERS = ("ib_sweeps", "ib_table_changes", "ib_port_changes", "ib_too_large")
COUNT_S, TABLES_S = 1.0, 1.0
SWEEP_S, UNSURE_SWEEP_S = 60.0, 10.0
"""A new sweep is due after so long anyway; sooner while something does not answer."""

Message = IbSubnet | IbTables | IbGrowth


class SubnetReader:
    """Reads one subnet.

    Args:
        asker: by which it is asked.
        order: in whose name.
        number: of the first reading.
        clock_s: monotonic.

    Attributes:
        counters: totals by name (`COUNTERS`).
        waiting: messages that are to be said, in order.
    """

    def __init__(
        self, asker: Asker, order: IbOrder, number: int, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.waiting: deque[Message] = deque()
        self._asker, self._host, self._number, self._clock_s = asker, order.host, number, clock_s
        self._polled: Polled | None = None
        self._managers: dict[str, int] = {}
        self._doubts_of = (0, 0)
        self._before: tuple[Reading, Sequence[End]] | None = None
        self._swept_s = self._counted_s = self._tables_s = self._told_s = float("-inf")

    def step(self) -> None:
        """Look once; a sweep where one is due.

        Raises:
            RdmaError: the port cannot send or receive.
        """
        now_s = self._clock_s()
        polled = self._polled
        if polled is None or now_s - self._swept_s >= self._sweep_again_s(polled):
            self._sweep()
            return
        change = polled.look_at_ports()
        if change is not Change.LINKS and now_s - self._tables_s >= TABLES_S:
            self._tables_s = now_s
            change = max(change, polled.look_at_tables(), key=lambda one: one.value)
        match change:
            case Change.LINKS:
                self._sweep()
                return
            case Change.PORTS:
                self.counters["ib_port_changes"] += 1
                self.tell()
            case Change.TABLES:
                self._tell_tables(polled)
        if now_s - self._counted_s >= COUNT_S:
            self._counted_s = now_s
            self._count()
        if now_s - self._told_s >= AGAIN_S:
            self.tell(is_news=False)

    def doubts(self) -> list[str]:
        """What is amiss with the subnet.

        Raises:
            RdmaError: the port cannot send or receive.
        """
        if self._polled is None:
            return []
        if self._doubts_of != (self._number, self.counters["ib_sweeps"]):
            self._doubts_of = self._number, self.counters["ib_sweeps"]
            self._managers = self._polled.ask_managers()
        doubled = ", ".join(f"{guid:#018x}" for guid in sorted(self._polled.fabric.doubled))
        told = [f"two nodes have one GUID: {doubled}"] if doubled else []
        return [*told, *doubts(self._polled.subnet, self._managers)]

    def tell(self, *, is_news: bool = True) -> None:
        """Say the subnet whole, under a new number if it is another one."""
        if self._polled is None:
            return
        self._number += is_news
        self._told_s = self._clock_s()
        try:
            pieces = subnet_pieces(self._host, self._number, self._polled.subnet)
        except ValueError:
            self.counters["ib_too_large"] += 1
            return
        self.waiting = deque(one for one in self.waiting if isinstance(one, IbGrowth) and not is_news)
        self.waiting.extend(pieces)

    def _sweep_again_s(self, polled: Polled) -> float:
        is_unsure = bool(polled.fabric.silent or polled.fabric.doubled)
        return UNSURE_SWEEP_S if is_unsure else SWEEP_S

    def _sweep(self) -> None:
        before = self._polled
        self._polled = Polled(self._asker, before)
        self.counters["ib_sweeps"] += 1
        self._swept_s = self._clock_s()
        if before is None or not _is_same(before, self._polled):
            self.tell()

    def _tell_tables(self, polled: Polled) -> None:
        self.counters["ib_table_changes"] += 1
        after, self._number = self._number, self._number + 1
        data = pack_tables(polled.subnet.tables, polled.changed)
        self.waiting.append(IbTables(host=self._host, after=after, number=self._number, data=data))

    def _count(self) -> None:
        assert self._polled is not None
        ends, read = self._polled.ends, self._polled.read_counters(self._clock_s())
        if self._before is not None:
            before, ends_before = self._before
            grown = growth(before if ends is ends_before else moved(before, ends_before, ends), read)
            self.waiting.extend(self._growth(grown))
        else:
            self.waiting.append(IbGrowth(host=self._host, number=self._number))
        self._before = read, ends

    def _growth(self, grown: Growth) -> Iterator[IbGrowth]:
        for first in range(0, len(grown.per_s), MOST_ROWS):
            part = Growth(grown.per_s[first : first + MOST_ROWS], grown.stuck[first : first + MOST_ROWS])
            yield IbGrowth(
                host=self._host,
                number=self._number,
                first=first,
                ports=len(part.per_s),
                data=pack_growth(part),
            )


def _is_same(before: Polled, after: Polled) -> bool:
    a, b = before.subnet, after.subnet
    return (a.names, a.silent, a.sm) == (b.names, b.silent, b.sm) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("guids", "ports", "tables", "keys")
    )
