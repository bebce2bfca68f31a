"""Which source ports agents are to trace: those in use, and more until all links between two leaves are. Pure.

A pair's further ports come in a fixed order of its own, so a manager that starts anew asks for the same ones.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cwdp.shared.bus.messages import TraceOrder, nic_id
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import Pair, PathName
from manager.probing.schedule import draw_ports

BATCH = 8
SOON = 16
DEADLINE_UPDATES = 5
MOST_CANDIDATES = 512
MOST_IN_USE = 64
MOST_PORTS_A_HOST = 4_096
MOST_PORTS = 2_000_000

InUse = Mapping[Pair, Collection[int]]
_NO_PAIRS: Mapping[Pair, int] = {}


@dataclass
class _Plan:
    """What is traced of one pair; `granted` candidates beside the ports in use, and `waited` updates for more.

    `switches` are how many were known to be on the way when the pair was first ordered; `order` says all this to its host. `settled` is what it rested on that the pair lacked nothing, None where
    it may.
    """

    candidates: list[int] = field(default_factory=list)
    granted: int = 0
    waited: int = 0
    in_use: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    switches: int | None = None
    order: TraceOrder | None = None
    settled: "_RestsOn | None" = None

    def rests_on(
        self, ports: Collection[int], heard: Collection[int] | None, enough: int | None, left: int
    ) -> bool:
        """Whether all is as it was when it was seen last that the pair needs no more."""
        settled = self.settled
        return (
            settled is not None
            and settled[0] is ports
            and settled[1] is heard
            and settled[2] == enough
            and len(self.ports) <= left
        )


_RestsOn = tuple[Collection[int], Collection[int] | None, int | None]


class Orders:
    """The orders of all hosts.

    Attributes:
        by_host: what each is to trace.
        waits: whether some pair is still to be granted more ports, though nothing else changes.
        withdrawn: paths that are not to be traced any more since the last update.
    """

    def __init__(self) -> None:
        self.by_host: dict[str, list[TraceOrder]] = {}
        self.withdrawn: list[PathName] = []
        self.waits = False
        self._plans: dict[Pair, _Plan] = {}

    def is_ordered(self, path: PathName) -> bool:
        """Whether a path is to be traced."""
        plan = self._plans.get((path.src, path.dst_addr))
        return plan is not None and path.sport in plan.ports

    def take_up(self, host: str, told: Sequence[TraceOrder]) -> None:
        """Go on from what an earlier manager had a host trace; that holds until the next update."""
        if told:
            self.by_host[host] = list(told)
        for order in told:
            pair = nic_id(host, order.nic), order.dst_addr
            plan = self._plans.setdefault(pair, _Plan())
            plan.ports, plan.switches = tuple(order.sports), order.switches
            plan.order = plan.settled = None
            plan.candidates = candidates(pair, len(order.sports))
            granted = itertools.takewhile(set(order.sports).__contains__, plan.candidates)
            plan.granted = max(plan.granted, len(list(granted)))

    def update(
        self,
        in_use: InUse,
        path_counts: PathCounts,
        traced: Mapping[Pair, Collection[int]],
        *,
        owner: Mapping[str, str],
        enough: Mapping[Pair, int] = _NO_PAIRS,
        is_calm: bool = True,
        recounted: Collection[Pair] | None = None,
    ) -> bool:
        """Order what is missing; whether anything has changed.

        Args:
            in_use: the pairs to trace, with the ports that packets of theirs have, the more important pairs first.
            path_counts: what is known of the pairs' paths.
            traced: ports of each pair whose hops were told.
            owner: the NIC of each address.
            enough: of pairs that need no more than some different paths, how many; the others need every link.
            is_calm: whether paths have stopped changing: while they change, some are known as they were and others as
                they are, and a pair only seems to lack one.
            recounted: the pairs of which `path_counts` may say something else than before; None for all.
        """
        self.withdrawn = [
            PathName(*pair, port)
            for pair in self._plans.keys() - in_use.keys()
            for port in self._plans.pop(pair).ports
        ]
        self.waits = False
        of_host = {src: _host(src) for src in {src for src, _ in in_use}}
        left = _budgets(in_use, of_host)
        for pair, ports in in_use.items():
            host = of_host[pair[0]]
            plan, heard, wants = self._plans.get(pair), traced.get(pair), enough.get(pair)
            most = left[host].of(ports)
            is_settled = (
                plan is not None
                and recounted is not None
                and pair not in recounted
                and plan.rests_on(ports, heard, wants, most)
            )
            if plan is None:
                plan = self._plans[pair] = _Plan(
                    switches=path_counts.switches(pair[0], owner.get(pair[1], ""))
                )
            if not is_settled:
                self._look(plan, pair, path_counts, (ports, heard, wants), is_calm=is_calm)
                self._fill(pair, plan, most)
            left[host].spend(ports, len(plan.ports))
        orders = self._orders(in_use)
        changed = orders != self.by_host
        self.by_host = orders
        return changed

    def _look(self, plan: _Plan, pair: Pair, path_counts: PathCounts, of: _RestsOn, *, is_calm: bool) -> None:
        """See whether a pair is to have more ports."""
        ports, heard, enough = of
        plan.in_use = tuple(ports)[:MOST_IN_USE]
        lacks = False
        if not plan.ports or (heard is not None and all(map(heard.__contains__, plan.ports))):
            lacks = path_counts.lacks(pair, enough)
            self.waits |= _grow(plan, lacks=lacks, is_calm=is_calm)
        plan.settled = None if lacks or plan.waited else of

    def _fill(self, pair: Pair, plan: _Plan, left: int) -> None:
        """Give a pair its ports, at most `left`."""
        before = plan.ports
        granted = max(plan.granted, BATCH - len(plan.in_use))
        if len(plan.candidates) < granted:
            plan.candidates = candidates(pair, 2 * granted)
        plan.granted = granted
        wanted = tuple(dict.fromkeys((*plan.in_use, *plan.candidates[:granted])))
        plan.ports = wanted[: max(0, left)]
        if plan.ports != wanted or plan.ports != before:
            plan.settled = None
        if plan.ports != before:
            plan.order = None
            self.withdrawn += [PathName(*pair, port) for port in set(before).difference(plan.ports)]

    def _orders(self, in_use: InUse) -> dict[str, list[TraceOrder]]:
        orders: dict[str, list[TraceOrder]] = {}
        for pair in in_use:
            plan = self._plans[pair]
            if plan.ports:
                host, _, ifname = pair[0].rpartition("/")
                if plan.order is None:
                    plan.order = TraceOrder(
                        nic=ifname, dst_addr=pair[1], sports=list(plan.ports), switches=plan.switches
                    )
                orders.setdefault(host, []).append(plan.order)
        return orders


@dataclass
class _Budget:
    """How many more ports a host may trace: of those in use, and of others. The first come first."""

    used: int
    others: int

    def of(self, ports: Collection[int]) -> int:
        """How many a pair may have that uses some."""
        return min(self.used, len(ports), MOST_IN_USE) + self.others

    def spend(self, ports: Collection[int], count: int) -> None:
        """Such a pair has so many."""
        used = min(self.used, len(ports), MOST_IN_USE, count)
        self.used -= used
        self.others -= count - used


def _budgets(in_use: InUse, of_host: Mapping[str, str]) -> dict[str, _Budget]:
    """The budget of each host: no pair has further ports at the cost of those that another one has in use."""
    used: Counter[str] = Counter()
    for pair, ports in in_use.items():
        used[of_host[pair[0]]] += min(len(ports), MOST_IN_USE)
    most = min(MOST_PORTS_A_HOST, MOST_PORTS // max(1, len(used)))
    return {host: _Budget(most, max(0, most - count)) for host, count in used.items()}


def candidates(pair: Pair, count: int) -> list[int]:
    """The first ports in a pair's own order."""
    return draw_ports("\0".join(pair).encode(), count)


def _grow(plan: _Plan, *, lacks: bool, is_calm: bool) -> bool:
    """Grant a pair that lacks paths more ports; whether it does, and may be granted more."""
    if not lacks:
        plan.waited = 0
        return False
    plan.waited += 1
    if is_calm or plan.granted < SOON or plan.waited >= DEADLINE_UPDATES:
        plan.granted, plan.waited = min(plan.granted + BATCH, MOST_CANDIDATES), 0
    return plan.granted < MOST_CANDIDATES


def _host(nic: str) -> str:
    return nic.rpartition("/")[0]
