"""Which source ports agents are to trace: those in use, and more until all links between two leaves are. Pure.

A pair's further ports come in a fixed order of its own, so a manager that starts anew asks for the same ones.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cwdp.shared.bus.messages import TraceOrder, nic_id
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import Pair, PathName
from manager.probing.schedule import draw_ports

BATCH = 8
SOUGHT = 2
"""Times as many ports as a pair needs different paths are traced at first, where that is less than a batch."""

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
    it may. Of one that `is_taken_up` nothing is known but its ports.
    """

    candidates: list[int] = field(default_factory=list)
    granted: int = 0
    waited: int = 0
    in_use: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    switches: int | None = None
    order: TraceOrder | None = None
    settled: "_RestsOn | None" = None
    is_taken_up: bool = False

    def go_on(self, pair: Pair) -> None:
        """Find out how many candidates an earlier manager had granted, which takes too long to be done while one takes over."""
        self.is_taken_up = False
        self.candidates = candidates(pair, len(self.ports))
        granted = itertools.takewhile(set(self.ports).__contains__, self.candidates)
        self.granted = max(self.granted, len(list(granted)))

    def rests_on(self, of: "_RestsOn", left: int) -> bool:
        """Whether all is as it was when it was seen last that the pair needs no more."""
        settled = self.settled
        return (
            settled is not None
            and settled[0] is of[0]
            and settled[1] is of[1]
            and settled[2:] == of[2:]
            and len(self.ports) <= left
        )


_RestsOn = tuple[Collection[int], Collection[int] | None, int | None, bool]


@dataclass(frozen=True)
class _Facts:
    """What orders rest on beside the ports in use; see `Orders.update`."""

    path_counts: PathCounts
    traced: Mapping[Pair, Collection[int]]
    owner: Mapping[str, str]
    enough: Mapping[Pair, int]
    far: Collection[Pair]
    is_calm: bool
    anew: Collection[Pair] | None


class Orders:
    """The orders of all hosts.

    Attributes:
        by_host: what each is to trace; a list is never changed, but replaced.
        waits: whether some pair is still to be granted more ports, though nothing else changes.
        withdrawn: paths that are not to be traced any more since the last update.
    """

    def __init__(self) -> None:
        self.by_host: dict[str, list[TraceOrder]] = {}
        self.withdrawn: list[PathName] = []
        self.waits = False
        self._plans: dict[Pair, _Plan] = {}
        self._planned: defaultdict[str, set[Pair]] = defaultdict(set)
        self._in_use: Mapping[str, InUse] = {}
        self._unsettled: set[str] = set()
        self._budget = 0

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
            self._planned[host].add(pair)
            self._unsettled.add(host)
            plan.ports, plan.switches = tuple(order.sports), order.switches
            plan.order = plan.settled = None
            plan.is_taken_up = True

    def update(
        self,
        in_use: Mapping[str, InUse],
        path_counts: PathCounts,
        traced: Mapping[Pair, Collection[int]],
        *,
        owner: Mapping[str, str],
        enough: Mapping[Pair, int] = _NO_PAIRS,
        far: Collection[Pair] = frozenset(),
        is_calm: bool = True,
        anew: Collection[Pair] | None = None,
    ) -> bool:
        """Order what is missing; whether anything has changed.

        Args:
            in_use: the pairs to trace of each host, with the ports that packets of theirs have, the more important pairs
                first; while nothing of that is different, nor in `enough`, a host's are the same object.
            path_counts: what is known of the pairs' paths.
            traced: ports of each pair whose hops were told.
            owner: the NIC of each address.
            enough: of pairs that need no more than some different paths, how many; the others need every link.
            far: those of them that lead to other pods: of the links between these leaves some may stay unknown.
            is_calm: whether paths have stopped changing: while they change, some are known as they were and others as
                they are, and a pair only seems to lack one.
            anew: the pairs of which `path_counts` or `traced` may say something else than before; None for all.
        """
        facts = _Facts(path_counts, traced, owner, enough, far, is_calm, anew)
        in_use = {host: pairs for host, pairs in in_use.items() if pairs}
        budget = min(MOST_PORTS_A_HOST, MOST_PORTS // max(1, len(in_use)))
        stale = self._stale(in_use, budget, anew)
        self._in_use, self._budget = in_use, budget
        self.withdrawn, self.waits = [], False
        for host in self._planned.keys() - in_use.keys():
            self._withdraw(host, self._planned.pop(host))
        orders = {host: told for host, told in self.by_host.items() if host in in_use}
        for host in stale:
            orders[host] = self._update_host(host, in_use[host], facts)
        orders = {host: told for host, told in orders.items() if told}
        changed = orders != self.by_host
        self.by_host = orders
        return changed

    def _stale(self, in_use: Mapping[str, InUse], budget: int, anew: Collection[Pair] | None) -> list[str]:
        """Hosts of which something is different, or that are to be looked at again anyway."""
        if anew is None or budget != self._budget:
            return list(in_use)
        others = self._unsettled | {_host(src) for src, _ in anew}
        return [host for host in in_use if host in others or self._in_use.get(host) is not in_use[host]]

    def _withdraw(self, host: str, pairs: Iterable[Pair]) -> None:
        self._unsettled.discard(host)
        self.withdrawn += [PathName(*pair, port) for pair in pairs for port in self._plans.pop(pair).ports]

    def _update_host(self, host: str, in_use: InUse, facts: _Facts) -> list[TraceOrder]:
        """What a host is to trace now."""
        self._withdraw(host, self._planned[host] - in_use.keys())
        self._planned[host] = set(in_use)
        left = _Budget.of_host(self._budget, in_use)
        for pair, ports in in_use.items():
            plan, most = self._plans.get(pair), left.of(ports)
            rests_on = ports, facts.traced.get(pair), facts.enough.get(pair), pair in facts.far
            is_known = facts.anew is not None and pair not in facts.anew
            is_settled = plan is not None and is_known and plan.rests_on(rests_on, most)
            if plan is None:
                switches = facts.path_counts.switches(pair[0], facts.owner.get(pair[1], ""))
                plan = self._plans[pair] = _Plan(switches=switches)
            if plan.is_taken_up:
                plan.go_on(pair)
            if not is_settled:
                self._look(plan, pair, facts.path_counts, rests_on, is_calm=facts.is_calm)
                self._fill(pair, plan, most, _batch(rests_on[2]))
            if plan.settled is None:
                self._unsettled.add(host)
            left.spend(ports, len(plan.ports))
        return [order for pair in in_use if (order := _order(pair, self._plans[pair])) is not None]

    def _look(self, plan: _Plan, pair: Pair, path_counts: PathCounts, of: _RestsOn, *, is_calm: bool) -> None:
        """See whether a pair is to have more ports."""
        ports, heard, enough, is_far = of
        plan.in_use = tuple(ports)[:MOST_IN_USE]
        lacks = False
        if not plan.ports or (heard is not None and all(map(heard.__contains__, plan.ports))):
            lacks = path_counts.lacks(pair, enough, is_far=is_far)
            self.waits |= _grow(plan, lacks=lacks, is_calm=is_calm)
        plan.settled = None if lacks or plan.waited else of

    def _fill(self, pair: Pair, plan: _Plan, left: int, batch: int) -> None:
        """Give a pair its ports, at most `left`, with those in use at least `batch` if there is room."""
        before = plan.ports
        granted = max(plan.granted, batch - len(plan.in_use))
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


def _order(pair: Pair, plan: _Plan) -> TraceOrder | None:
    """What a host is told of a pair."""
    if plan.order is None and plan.ports:
        ifname = pair[0].rpartition("/")[2]
        plan.order = TraceOrder(nic=ifname, dst_addr=pair[1], sports=list(plan.ports), switches=plan.switches)
    return plan.order if plan.ports else None


@dataclass
class _Budget:
    """How many more ports a host may trace: of those in use, and of others. The first come first."""

    used: int
    others: int

    @classmethod
    def of_host(cls, most: int, in_use: InUse) -> "_Budget":
        """Of one that may trace so many: no pair has further ports at the cost of those that another one has in use."""
        return cls(most, max(0, most - sum(min(len(ports), MOST_IN_USE) for ports in in_use.values())))

    def of(self, ports: Collection[int]) -> int:
        """How many a pair may have that uses some."""
        return min(self.used, len(ports), MOST_IN_USE) + self.others

    def spend(self, ports: Collection[int], count: int) -> None:
        """Such a pair has so many."""
        used = min(self.used, len(ports), MOST_IN_USE, count)
        self.used -= used
        self.others -= count - used


def candidates(pair: Pair, count: int) -> list[int]:
    """The first ports in a pair's own order."""
    return draw_ports("\0".join(pair).encode(), count)


def _batch(enough: int | None) -> int:
    """How many ports a pair begins with, of which so many different paths are enough."""
    return BATCH if enough is None else min(BATCH, SOUGHT * enough)


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
