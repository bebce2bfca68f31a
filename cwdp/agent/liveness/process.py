"""`python -m cwdp.agent.liveness.process INTERVAL_MS`: sends the pulses of a host's NICs, in time.

A process of its own, so that nothing else that the agent does makes a pulse late, and at real-time priority where
that is permitted. The agent (`cwdp.agent.liveness.keeper`) writes its orders to standard input, one line of JSON each,
and reads totals from standard output, once a second. Its end is the end of standard input.
"""

import gc
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import numpy as np

from cwdp.agent.liveness import announcements
from cwdp.agent.liveness.acknowledged import Acknowledged
from cwdp.agent.liveness.announcements import Announcements
from cwdp.agent.liveness.coveredpaths import CoveredPaths
from cwdp.agent.liveness.everypath import BURST_TURNS, CALM_TURNS, EveryPath
from cwdp.agent.liveness.plan import BURST_PULSES, Plan, Rows, TokenBucket, parted
from cwdp.agent.liveness.pulses import COUNTERS, PulseOrder, Pulses
from cwdp.agent.liveness.watchedpaths import HostPaths, NicPaths, Way, WayKey
from cwdp.agent.orders import Orders
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.steering import Steering
from cwdp.dataplane.steering.tcp import TcpSteering

REFRESH_NS = 50_000_000
SAY_NS = 1_000_000_000
GAP_TURNS = 4
"""Turns without a pulse of a path after which its silence is counted anew."""

NAMES = (*COUNTERS, *announcements.COUNTERS, "pulses_late", "pulses_failed")

_NS_PER_S = 1_000_000_000


class PulseOrders(msgspec.Struct, frozen=True):
    """All that the agent orders.

    Attributes:
        ways: of the paths whose links are known.
    """

    nics: list[PulseOrder]
    ways: list[Way]


@dataclass(frozen=True)
class _Nic:
    order: PulseOrder
    maps: Maps
    pulses: Pulses
    acknowledged: Acknowledged
    announcements: Announcements

    def paths(self) -> NicPaths:
        """Its watched paths as they are now."""
        pairs = np.concatenate([Steering(self.maps).path_pairs(), TcpSteering(self.maps).path_pairs()])
        return NicPaths(self.order.ifname, self.pulses.numbers, self.maps.paths, pairs, self.acknowledged)

    def generation(self) -> int:
        """Changes with every change of the steering."""
        return int(self.maps.control["generation"][0])


class PulseHost:
    """The pulses of all NICs of this host.

    Args:
        turn_ns: between two pulses of a path, where the rate allows for it.
    """

    def __init__(self, turn_ns: int) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(NAMES, 0))
        self._turn_ns = turn_ns
        self._nics: dict[PulseOrder, _Nic] = {}
        self._orders = PulseOrders([], [])
        self._ways: dict[WayKey, tuple[int, ...]] = {}
        self._turn_bucket, self._pulse_bucket = (
            TokenBucket(BURST_TURNS * CALM_TURNS),
            TokenBucket(BURST_PULSES),
        )
        self._dead_after_ns, self._seen = 0, (0, list[int]())
        self._plan: Plan | None = None
        self._starts = [0]

    @property
    def has_paths(self) -> bool:
        """Whether any path is watched."""
        return self._plan is not None

    def follow(self, orders: PulseOrders) -> None:
        """Have the NICs be as ordered."""
        for order in set(self._nics) - set(orders.nics):
            self._drop(order)
        if orders.ways != self._orders.ways:
            self._ways = {(way.ifname, way.dst, way.sport, way.protocol): way.links for way in orders.ways}
            self._plan = None
        self._orders = orders

    def refresh(self, now_ns: int) -> None:
        """Take up changes; a NIC that cannot be sent from is tried again at the next call."""
        changed = False
        for order in self._orders.nics:
            try:
                changed |= self._refresh(order, now_ns)
            except OSError:
                self.counters["pulses_failed"] += 1
                self._drop(order)
        dead_after_ns = min(
            (int(nic.maps.control["dead_after_ns"][0]) for nic in self._nics.values()), default=0
        )
        seen = dead_after_ns, [nic.generation() for nic in self._nics.values()]
        if changed or self._plan is None or seen != self._seen:
            self._seen, self._dead_after_ns = seen, dead_after_ns
            self._plan = self._plan_anew()

    def send(self, now_ns: int) -> bool:
        """Send the pulses of a turn; whether some may be wanted in the middle before the next one."""
        if self._plan is None:
            return False
        rows, wants_more = self._plan.turn(now_ns)
        self._send(rows)
        return wants_more

    def send_between(self, now_ns: int) -> None:
        """Send those of the middle between two turns."""
        if self._plan is not None:
            self._send(self._plan.between(now_ns))

    def _send(self, rows: Rows) -> None:
        pulses = [nic.pulses for nic in self._nics.values() if len(nic.pulses.numbers)]
        for each, chosen in zip(pulses, parted(rows, self._starts), strict=True):
            each.send(chosen)

    def _refresh(self, order: PulseOrder, now_ns: int) -> bool:
        if order not in self._nics:
            maps = Maps(tree.here(order.ifname))
            pulses = Pulses(order, maps, np.random.default_rng(), self.counters)
            announced = Announcements(order, maps, maps.tcp_conns, pulses, self.counters)
            self._nics[order] = _Nic(order, maps, pulses, Acknowledged(maps), announced)
        nic = self._nics[order]
        nic.maps.control["pulse_gap_ns"] = GAP_TURNS * self._turn_ns
        nic.acknowledged.search()
        nic.announcements.refresh(now_ns)
        return nic.pulses.refresh(now_ns)

    def _plan_anew(self) -> Plan | None:
        paths = HostPaths([nic.paths() for nic in self._nics.values()])
        self._starts = paths.starts.tolist()
        if not self._starts[-1]:
            return None
        watched = paths.watched(self._ways)
        if watched.fits(self._turn_ns):
            return EveryPath(watched, paths, self._turn_bucket)
        return CoveredPaths(watched, paths, self._pulse_bucket, self._turn_ns, self._dead_after_ns)

    def _drop(self, order: PulseOrder) -> None:
        nic = self._nics.pop(order, None)
        if nic is not None:
            nic.announcements.close()
            nic.pulses.close()
            nic.maps.close()
            self._plan = None


def run(turn_ns: int, orders: Orders[PulseOrders], host: PulseHost) -> None:
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
            step_ns = turn_ns if host.has_paths else REFRESH_NS
            if host.send(time.monotonic_ns()):
                _sleep_until(due_ns + step_ns // 2)
                host.send_between(time.monotonic_ns())
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
    turn_ns = round(float(sys.argv[1]) * 1e6)
    run(turn_ns, Orders(sys.stdin.fileno(), PulseOrders), PulseHost(turn_ns))


if __name__ == "__main__":
    main()
