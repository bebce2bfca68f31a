"""`python -m cwdp.agent.pulse INTERVAL_MS`: sends the pulses of a host's NICs, in time.

A process of its own, so that nothing else that the agent does makes a pulse late, and at real-time priority where
that is permitted. The agent (`cwdp.agent.pulsekeeper`) writes its orders to standard input, one line of JSON each,
and reads totals from standard output, once a second. Its end is the end of standard input.
"""

import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import numpy as np

from cwdp.agent.orders import Orders
from cwdp.agent.pulses import COUNTERS, PulseOrder, Pulses
from cwdp.dataplane import tree
from cwdp.dataplane.maps import Maps

REFRESH_NS = 50_000_000
SAY_NS = 1_000_000_000
MOST_PER_S = 50_000
"""Pulses of a host in all; with more paths than that allows for, each path's interval grows."""

_NS_PER_S = 1_000_000_000


class PulseHost:
    """The pulses of all NICs of this host."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys((*COUNTERS, "pulses_late", "pulses_failed"), 0))
        self._nics: dict[PulseOrder, tuple[Maps, Pulses]] = {}
        self._orders: list[PulseOrder] = []

    def follow(self, orders: list[PulseOrder]) -> None:
        """Have the NICs be as ordered."""
        for order in set(self._nics) - set(orders):
            self._drop(order)
        self._orders = orders

    def refresh(self, now_ns: int) -> None:
        """Take up changes; a NIC that cannot be sent from is tried again at the next call."""
        for order in self._orders:
            try:
                if order not in self._nics:
                    self._open(order)
                self._nics[order][1].refresh(now_ns)
            except OSError:
                self.counters["pulses_failed"] += 1
                self._drop(order)

    def interval_ns(self, wanted_ns: int) -> int:
        """How often every path may have a pulse."""
        count = sum(pulses.count for _, pulses in self._nics.values())
        return max(wanted_ns, count * _NS_PER_S // MOST_PER_S) if count else REFRESH_NS

    def send(self) -> bool:
        """Send a pulse over every path; whether more are wanted in between."""
        for pulses in self._pulses():
            pulses.send()
        return any(pulses.is_urgent() for pulses in self._pulses())

    def send_urgent(self) -> None:
        """Send one over each path that may be found dead."""
        for pulses in self._pulses():
            pulses.send_urgent()

    def _pulses(self) -> Iterator[Pulses]:
        return (pulses for _, pulses in self._nics.values())

    def _open(self, order: PulseOrder) -> None:
        maps = Maps(tree.here(order.ifname))
        self._nics[order] = maps, Pulses(order, maps, np.random.default_rng(), self.counters)

    def _drop(self, order: PulseOrder) -> None:
        if order in self._nics:
            maps, pulses = self._nics.pop(order)
            pulses.close()
            maps.close()


def run(interval_ns: int, orders: Orders[list[PulseOrder]], host: PulseHost) -> None:
    """Send pulses every so often until the agent is gone."""
    due_ns = time.monotonic_ns()
    refresh_ns = say_ns = due_ns
    with suppress(EOFError, BrokenPipeError):
        while True:
            now_ns = time.monotonic_ns()
            if now_ns >= refresh_ns:
                wanted = orders.take()
                if wanted is not None:
                    host.follow(wanted)
                host.refresh(now_ns)
                refresh_ns = now_ns + REFRESH_NS
            if now_ns >= say_ns:
                os.write(sys.stdout.fileno(), msgspec.json.encode(host.counters) + b"\n")
                say_ns = now_ns + SAY_NS
            step_ns = host.interval_ns(interval_ns)
            if host.send():
                _sleep_until(due_ns + step_ns // 2)
                host.send_urgent()
            due_ns += step_ns
            _sleep_until(due_ns)
            late_ns = time.monotonic_ns() - due_ns
            if late_ns > step_ns:
                host.counters["pulses_late"] += 1
                due_ns += late_ns


def _sleep_until(when_ns: int) -> None:
    time.sleep(max(0, when_ns - time.monotonic_ns()) / _NS_PER_S)


def main() -> None:
    """Run with the interval given on the command line."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    gc.disable()  # nothing here makes cycles
    run(round(float(sys.argv[1]) * 1e6), Orders(sys.stdin.fileno(), list[PulseOrder]), PulseHost())


if __name__ == "__main__":
    main()
