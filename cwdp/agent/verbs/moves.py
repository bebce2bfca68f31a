"""Which source port each queue pair is to have, and having it take it.

A queue pair takes the port that the manager wants, or its backup while that path is down. One of which the manager has said
nothing stays where it is, unless its path is down, or its device chose it and nobody knows it: then it takes the living port
that the fewest take. Nothing is moved where no other path is known to live. What only draining can move is moved when the
manager wants it, never for a failure: what a dead path has swallowed never drains.
"""

import errno
import random
import time
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import groupby

from cwdp.agent.verbs.clients import Clients
from cwdp.agent.verbs.orders import VerbsOrder
from cwdp.agent.verbs.queuepairs import Pair, Qp, QueuePairs
from cwdp.agent.verbs.routes import living, spreads_by_pair
from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import Moved
from cwdp.shared.bus.messages import Spread, SteerQp

DEADLINE_NS = 2_000_000_000
"""Later an order is not begun any more. A queue pair goes on trying for seconds, so late is better than never."""

BUSY_NS, RESTS_NS, RESTS_LONG_NS = 5_000_000, 1_000_000_000, 30_000_000_000
"""After an order that came to nothing: as the program was calling, else; and where the device cannot do it at all."""

COUNTERS = ("moves", "moves_for_failure", "moves_done", "moves_refused", "moves_unanswered", "moves_unasked")
TIMES = ("move_took_us_max",)

_CANNOT = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM)


def _rests_ns(error: int) -> int:
    """How long to wait before the next order, after one that came to this errno."""
    if error == errno.EBUSY:
        return BUSY_NS
    return RESTS_LONG_NS if error in _CANNOT else RESTS_NS


class Moves:
    """Orders to queue pairs, and what comes of them.

    Args:
        queue_pairs: all of them.
        counters: of COUNTERS and TIMES.
    """

    def __init__(self, queue_pairs: QueuePairs, counters: Counter[str]) -> None:
        self._queue_pairs, self._counters = queue_pairs, counters
        self._order = VerbsOrder()
        self._steer: dict[tuple[str, str, int], SteerQp] = {}
        self._spreads: dict[Pair, Spread] = {}
        self._down: dict[str, frozenset[tuple[str, int]]] = {}
        self._moved: frozenset[str] = frozenset()
        self._numbers = 0
        self._unsettled: dict[int, Qp] = {}

    @property
    def down(self) -> dict[str, frozenset[tuple[str, int]]]:
        """Of each NIC the paths that are down."""
        return self._down

    def follow(self, order: VerbsOrder) -> set[Pair]:
        """Have queue pairs be as ordered; those between whom something is wanted otherwise."""
        before, steer, spreads = self._order, self._steer, self._spreads
        self._order = order
        self._steer = {(one.nic, one.dst_addr, one.qpn): one for one in order.steer}
        self._spreads = spreads_by_pair(order.spreads)
        self._moved = frozenset(order.moved)
        if (before.drains, before.moved) != (order.drains, order.moved):
            return set(self._queue_pairs.pairs())
        keys = steer.keys() | self._steer.keys()
        changed = {key[:2] for key in keys if steer.get(key) != self._steer.get(key)}
        pairs = spreads.keys() | self._spreads.keys()
        return changed | {pair for pair in pairs if spreads.get(pair) != self._spreads.get(pair)}

    def hear_down(self, nic: str, paths: Iterable[tuple[str, int]]) -> set[Pair]:
        """These of a NIC's paths are down, and no others; those between whom that has changed."""
        before, now = self._down.get(nic, frozenset()), frozenset(paths)
        self._down[nic] = now
        return {(nic, address) for address, _ in before ^ now}

    def decide(self, qps: Iterable[Qp], clients: Clients) -> None:
        """Order those to move that are not where they should be; those of a pair come one after the other."""
        for pair, those in groupby(qps, key=lambda qp: qp.pair):
            if pair[0] in self._moved:
                self._decide_between(pair, list(those), clients)

    def _decide_between(self, pair: Pair, qps: list[Qp], clients: Clients) -> None:
        dead = self._down.get(pair[0], frozenset())
        used: Counter[int] = Counter()
        if len(qps) > 1 and any(not _heading(qp) or (pair[1], _heading(qp)) in dead for qp in qps):
            used.update(_heading(qp) for qp in self._queue_pairs.between(pair))
        for qp in qps:
            wanted = self._wanted(qp, dead, used) if qp.sends else None
            if wanted is not None and wanted != _heading(qp):
                self._send(qp, wanted, clients, used)

    def hear_moved(self, qp: Qp, moved: Moved) -> bool:
        """A program says what came of an order; whether it was asked."""
        if not qp.order or moved.number != qp.order:
            self._counters["moves_unasked"] += not 0 < moved.number <= self._numbers
            return False
        qp.order = 0
        if not moved.error:
            self._counters["moves_done"] += 1
            took_us = min(moved.took_ns // 1_000, 1_000_000_000)
            self._counters["move_took_us_max"] = max(self._counters["move_took_us_max"], took_us)
            qp.sport, qp.refused = qp.ordered_sport, 0
            self._unsettled.pop(qp.number, None)
        else:
            self._counters["moves_refused"] += 1
            qp.refused = min(moved.error, 4_095)
            rests_ns = _rests_ns(moved.error)
            qp.rests_until_ns = time.monotonic_ns() + rests_ns
        self._queue_pairs.change(qp)
        return True

    def tidy(self, clients: Clients, now_ns: int) -> None:
        """Give up orders that nobody has answered, and try again what may be by now."""
        for qp in list(self._unsettled.values()):
            if self._queue_pairs.of(qp.client, qp.name) is not qp:
                del self._unsettled[qp.number]
            elif qp.order and now_ns - qp.ordered_ns > 2 * DEADLINE_NS:
                clients.forget(qp.client, qp.name)
                qp.order, qp.refused, qp.rests_until_ns = 0, errno.ETIMEDOUT, now_ns + RESTS_NS
                self._counters["moves_unanswered"] += 1
                self._queue_pairs.change(qp)
        due = [qp for qp in self._unsettled.values() if not qp.order and now_ns >= qp.rests_until_ns]
        self.decide(sorted(due, key=lambda qp: qp.pair), clients)

    def _wanted(self, qp: Qp, dead: Collection[tuple[str, int]], used: Counter[int]) -> int | None:
        """The port that it should have; None for any that it has."""
        steer = self._steer.get((qp.nic, qp.dst_addr, qp.dest_qpn))
        if steer is not None:
            for sport in (steer.sport, steer.backup_sport):
                if sport is not None and (qp.dst_addr, sport) not in dead:
                    return sport
        heading = _heading(qp)
        if qp.actuator == "create_only" or (heading and (qp.dst_addr, heading) not in dead):
            return None
        spread = self._spreads.get(qp.pair)
        shares = living(spread, self._down) if spread else ()
        ports = [sport for sport, _ in shares if (qp.dst_addr, sport) not in dead]
        return min(ports, key=lambda sport: (used[sport], random.random()), default=None)  # noqa: S311 - not a secret

    def _send(self, qp: Qp, sport: int, clients: Clients, used: Counter[int]) -> None:
        now_ns = time.monotonic_ns()
        dead = self._down.get(qp.nic, frozenset())
        is_failure = (qp.dst_addr, qp.sport) in dead or (qp.dst_addr, _heading(qp)) in dead
        with_sqd = self._order.drains and not is_failure
        if (qp.actuator == "create_only" and not with_sqd) or now_ns < qp.rests_until_ns:
            return
        used[_heading(qp)] -= 1
        used[sport] += 1
        self._numbers += 1
        qp.order, qp.ordered_sport, qp.ordered_ns = self._numbers, sport, now_ns
        self._unsettled[qp.number] = qp
        self._counters["moves"] += 1
        self._counters["moves_for_failure"] += is_failure
        data = shimwire.move(*qp.name, self._numbers, now_ns + DEADLINE_NS, sport, with_sqd=with_sqd)
        clients.send(qp.client, qp.name, data)


def _heading(qp: Qp) -> int:
    """The port that it has or will have; 0 where that is not known."""
    return qp.ordered_sport if qp.order else qp.sport or 0
