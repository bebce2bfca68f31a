"""Facts of this host, read in a process of their own when the manager asks for them."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from cwdp.shared.audit.facts import HostFacts
from cwdp.shared.bus.audits import AuditOrder, AuditReport, audit_reports

COUNTERS = ("audits_told", "audits_failed")

Collect = Callable[[], Coroutine[Any, Any, HostFacts]]


class Audits:
    """Does as the manager orders: one audit at a time, an order that comes again begins nothing.

    Args:
        collect: reads all facts.
        report: tells the manager.

    Attributes:
        counters: totals by name (`COUNTERS`).
    """

    def __init__(self, collect: Collect, report: Callable[[AuditReport], object]) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._collect, self._report = collect, report
        self._ordered: asyncio.Queue[AuditOrder] = asyncio.Queue(maxsize=1)
        self._number = 0

    def order(self, order: AuditOrder) -> None:
        """Take an order; while one is waiting, another is not."""
        if order.number != self._number:
            with contextlib.suppress(asyncio.QueueFull):
                self._ordered.put_nowait(order)
                self._number = order.number

    async def run(self) -> None:
        """Follow orders, for ever."""
        while True:
            order = await self._ordered.get()
            await asyncio.sleep(random.uniform(0.0, order.within_s))
            try:
                reports = audit_reports(order.number, await self._collect())
            except (OSError, ValueError):
                self.counters["audits_failed"] += 1
            else:
                for report in reports:
                    self._report(report)
                self.counters["audits_told"] += 1
            self._number = 0  # who asks again has not heard
