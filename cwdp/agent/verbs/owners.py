"""Whose queue pairs are, by the kernel's list, so that no program's word about another's reaches the manager."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable

from cwdp.agent.verbs.orders import VerbsQp
from cwdp.errors import RdmaError
from cwdp.rdma import netlink

LOOK_S, SOON_S, LOOK_SHARE = 5.0, 0.1, 20
"""Between two looks, also where there is news; a twentieth of the time at most."""

Listed = dict[tuple[str, int], int | None]


class Owners:
    """What the kernel last said, where it has such a list.

    Args:
        read: the queue pairs of all devices.

    Attributes:
        counters: `verbs_others_queue_pairs`, those that a program told of and that are another's, or of nobody.
    """

    def __init__(self, read: Callable[[], list[netlink.QueuePair]] = netlink.queue_pairs) -> None:
        self.counters: Counter[str] = Counter(verbs_others_queue_pairs=0)
        self._read = read
        self._listed: Listed | None = None
        self._listed_s = 0.0
        self._heard_s: dict[int, float] = {}
        self._refused: set[int] = set()
        self._soon = asyncio.Event()

    def admit(self, qp: VerbsQp) -> bool:
        """Whether a queue pair may be a program's that says so: it is younger than the list, or the list does not gainsay."""
        heard_s = self._heard_s.setdefault(qp.number, time.monotonic())
        if self._listed is None or heard_s >= self._listed_s:
            return True
        owner = self._listed.get((qp.device, qp.lqpn), -1)
        if owner in (None, qp.pid):
            return True
        if qp.number not in self._refused:
            self._refused.add(qp.number)
            self.counters["verbs_others_queue_pairs"] += 1
        return False

    def look_soon(self) -> None:
        """Have the list read without waiting for the next time: there is news."""
        self._soon.set()

    async def follow(self, is_needed: Callable[[], bool]) -> None:
        """Read the list now and then, and soon after news, for ever."""
        while True:
            began_s = time.monotonic()
            if is_needed():
                await self.look()
            else:
                self._heard_s.clear()
                self._refused.clear()
            least_s = max(SOON_S, LOOK_SHARE * (time.monotonic() - began_s))
            await asyncio.sleep(least_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, LOOK_S - least_s)):
                    await self._soon.wait()
            self._soon.clear()

    async def look(self) -> None:
        """Read the list, in a thread; where there is none nothing is gainsaid."""
        began_s = time.monotonic()
        try:
            found = await asyncio.to_thread(self._read)
        except (RdmaError, OSError):
            self._listed = None
            return
        self._listed = {(qp.device, qp.lqpn): qp.pid for qp in found}
        self._listed_s = began_s
