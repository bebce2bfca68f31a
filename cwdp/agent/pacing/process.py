"""`python -m cwdp.agent.pacing.process`: controls congestion on a host's NICs, apart from what else the agent does.

The agent (`cwdp.agent.pacing.keeper`) writes its orders to standard input, and reads what it says from standard output.
When its input ends, since the agent has, it lets go of all that it holds back.
"""

import gc
import os
import sys
import time
from collections import Counter
from contextlib import suppress

import msgspec

from cwdp.agent.orders import Orders
from cwdp.congestion.interface import COUNTERS, CongestionNic
from cwdp.congestion.order import Happened, Order, Word
from cwdp.errors import CwdpError
from cwdp.shared.bus.messages import PacedQp

STEP_NS = 20_000_000
REST_NS = 50_000_000
"""Between steps while nobody sends much."""

SAY_NS = 1_000_000_000
NICER = -10

_NS_PER_S = 1_000_000_000


class CongestionHost:
    """Congestion control on all NICs of this host."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys((*COUNTERS, "congestion_failed"), 0))
        self._nics: dict[Order, CongestionNic] = {}
        self._orders: list[Order] = []
        self._happened: list[Happened] = []
        self._troubles: dict[str, str] = {}

    def follow(self, orders: list[Order]) -> None:
        """Have exactly these NICs looked after."""
        for order in set(self._nics) - set(orders):
            self._drop(order)
        self._orders = orders

    def look_after(self) -> None:
        """Take up NICs that are new, and have each one's queue pairs be held apart."""
        for order in self._orders:
            try:
                if order not in self._nics:
                    self._nics[order] = CongestionNic(order)
                self._nics[order].look_after()
            except (CwdpError, OSError) as error:
                self._fail(order, error)

    def step(self, now_ns: int) -> bool:
        """One step of each; whether any has queue pairs to follow."""
        for order, nic in list(self._nics.items()):
            try:
                self._happened += nic.step(now_ns)
            except OSError as error:
                self._fail(order, error)
        return any(nic.following for nic in self._nics.values())

    @property
    def has_news(self) -> bool:
        """Whether something has happened since the last word."""
        return bool(self._happened)

    def word(self) -> Word:
        """What there is to say."""
        total = self.counters.copy()
        for nic in self._nics.values():
            total.update(nic.counters)
        paced = {
            order.ifname: [PacedQp(one.dst, one.qpn, round(one.rate_bps)) for one in nic.held]
            for order, nic in self._nics.items()
        }
        happened, self._happened = self._happened, []
        return Word(dict(total), paced, happened)

    def close(self) -> None:
        """Hold nothing back any more."""
        for order in list(self._nics):
            self._drop(order)

    def _fail(self, order: Order, error: CwdpError | OSError) -> None:
        """Go on without an interface; it is tried again."""
        self.counters["congestion_failed"] += 1
        if self._troubles.get(order.ifname) != str(error):
            self._troubles[order.ifname] = str(error)
            sys.stderr.write(f"congestion of {order.ifname} is not controlled: {error}\n")
        self._drop(order)

    def _drop(self, order: Order) -> None:
        nic = self._nics.pop(order, None)
        if nic is not None:
            self.counters.update(nic.counters)
            nic.close()


def run(orders: Orders[list[Order]], host: CongestionHost) -> None:
    """Step until the agent is gone."""
    due_ns = say_ns = time.monotonic_ns()
    with suppress(EOFError, BrokenPipeError):
        while True:
            now_ns = time.monotonic_ns()
            wanted = orders.take()
            if wanted is not None:
                host.follow(wanted)
            if wanted is not None or now_ns >= say_ns:
                host.look_after()
            following = host.step(time.monotonic_ns())
            if host.has_news or now_ns >= say_ns:
                os.write(sys.stdout.fileno(), msgspec.json.encode(host.word()) + b"\n")
                say_ns = now_ns + SAY_NS
            due_ns = max(due_ns + (STEP_NS if following else REST_NS), now_ns)
            time.sleep(max(0, due_ns - time.monotonic_ns()) / _NS_PER_S)


def main() -> None:
    """Run, and let go at the end."""
    with suppress(PermissionError):
        os.nice(NICER)  # a step that is late lets a queue grow
    gc.disable()  # nothing here makes cycles
    host = CongestionHost()
    try:
        run(Orders(sys.stdin.fileno(), list[Order]), host)
    finally:
        host.close()


if __name__ == "__main__":
    main()
