"""Which source ports agents are to trace: those in use, and more until all links between two leaves are. Pure.

A pair's further ports come in a fixed order of its own, so a manager that starts anew asks for the same ones.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cwdp.shared.bus.messages import TraceOrder, host_of, nic_id
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

    `wanted` are the ports that it is to have, `made_of` those in use and the grant; `ports` are those for which its host has room.
    `switches` are how many were known to be on the way when the pair was first ordered; `order` says all this to its host.
    `settled` is what it rested on when it was seen that to look again would change nothing, None where it may. Of one that
    `is_taken_up` nothing is known but its ports.
    """

    candidates: list[int] = field(default_factory=list)
    granted: int = 0
    waited: int = 0
    made_of: tuple[Collection[int], int] | None = None
    wanted: tuple[int, ...] = ()
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

    def want(self, pair: Pair, in_use: Collection[int]) -> bool:
        """Want the ports in use, and those that are granted; whether these are others than before."""
        if self.made_of is not None and self.made_of[0] is in_use and self.made_of[1] == self.granted:
            return False
        before, self.made_of = self.wanted, (in_use, self.granted)
        if len(self.candidates) < self.granted:
            self.candidates = candidates(pair, 2 * self.granted)
        self.wanted = tuple(dict.fromkeys((*tuple(in_use)[:MOST_IN_USE], *self.candidates[: self.granted])))
        return self.wanted != before

    def is_settled(self, of: "_RestsOn") -> bool:
        """Whether all is as it was when it was seen that to look again would change nothing."""
        settled = self.settled
        return settled is not None and settled[0] is of[0] and settled[1:] == of[1:]


_RestsOn = tuple[Collection[int], int | None, bool, int]
"""The ports that a pair uses, how many different paths are enough for it, whether it leads to another pod, how many it may be granted."""


@dataclass(frozen=True)
class _Facts:
    """What orders rest on beside the ports in use; see `Orders.update`. `anew` is by host."""

    path_counts: PathCounts
    traced: Mapping[Pair, Collection[int]]
    owner: Mapping[str, str]
    enough: Mapping[Pair, int]
    far: Collection[Pair]
    is_calm: bool
    anew: Mapping[str, Collection[Pair]] | None

    def of(self, pair: Pair, ports: Collection[int], most: int) -> _RestsOn:
        """What a pair rests on that may be granted so many."""
        return ports, self.enough.get(pair), pair in self.far, most


@dataclass(frozen=True)
class _Shared:
    """Among which pairs a host's room was shared out, how many ports that was, how many they want, and how many each might be granted."""

    in_use: InUse
    budget: int
    wanted: int
    most: int

    def holds(self, in_use: InUse, budget: int) -> bool:
        """Whether it is so for these pairs and so many ports too, while the pairs want the same."""
        is_shared = self.budget == budget or self.wanted <= min(self.budget, budget)
        return self.in_use is in_use and is_shared and self.most == _most(self, in_use, budget)


class Orders:
    """The orders of all hosts.

    From one update to the next only those pairs are looked at of which something is different or that may be granted more, and only
    the room of those hosts is shared out whose pairs are others or want others.

    Attributes:
        by_host: what each is to trace; a list is never changed, but replaced.
        waits: whether some pair is still to be granted more ports, though nothing else changes.
        withdrawn: paths that are not to be traced any more since the last update.
        are_taken_up: whether what an earlier manager ordered still holds somewhere.
    """

    def __init__(self) -> None:
        self.by_host: dict[str, list[TraceOrder]] = {}
        self.withdrawn: list[PathName] = []
        self.waits = self.are_taken_up = False
        self._plans: dict[Pair, _Plan] = {}
        self._planned: defaultdict[str, set[Pair]] = defaultdict(set)
        self._unsettled: dict[str, set[Pair]] = {}
        self._shared: dict[str, _Shared] = {}

    def is_ordered(self, path: PathName) -> bool:
        """Whether a path is to be traced."""
        plan = self._plans.get((path.src, path.dst_addr))
        return plan is not None and path.sport in plan.ports

    def take_up(self, host: str, told: Sequence[TraceOrder]) -> None:
        """Go on from what an earlier manager had a host trace; that holds until the next update."""
        if told:
            self.by_host[host], self.are_taken_up = list(told), True
        for order in told:
            pair = nic_id(host, order.nic), order.dst_addr
            plan = self._plans.setdefault(pair, _Plan())
            self._planned[host].add(pair)
            self._unsettled.setdefault(host, set()).add(pair)
            plan.ports, plan.switches = tuple(order.sports), order.switches
            plan.order = plan.settled = plan.made_of = None
            plan.is_taken_up = True
        self._shared.pop(host, None)

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
        by_host = None if anew is None else _by_host(anew)
        facts = _Facts(path_counts, traced, owner, enough, far, is_calm, by_host)
        in_use = {host: pairs for host, pairs in in_use.items() if pairs}
        budget = min(MOST_PORTS_A_HOST, MOST_PORTS // max(1, len(in_use)))
        self.withdrawn, self.waits, self.are_taken_up = [], False, False
        for host in self._planned.keys() - in_use.keys():
            self._withdraw(self._planned.pop(host))
            self._unsettled.pop(host, None)
            self._shared.pop(host, None)
        orders = {host: told for host, told in self.by_host.items() if host in in_use}
        for host, pairs in in_use.items():
            if self._is_stale(host, pairs, budget, by_host) and self._update_host(host, pairs, budget, facts):
                told = (_order(pair, self._plans[pair]) for pair in pairs)
                orders[host] = [order for order in told if order is not None]
        orders = {host: told for host, told in orders.items() if told}
        changed = orders != self.by_host
        self.by_host = orders
        return changed

    def _is_stale(
        self, host: str, in_use: InUse, budget: int, anew: Mapping[str, Collection[Pair]] | None
    ) -> bool:
        """Whether something of a host is different, or some pair is to be looked at again anyway."""
        shared = self._shared.get(host)
        return (
            anew is None
            or host in anew
            or host in self._unsettled
            or shared is None
            or not shared.holds(in_use, budget)
        )

    def _withdraw(self, pairs: Iterable[Pair]) -> None:
        self.withdrawn += [PathName(*pair, port) for pair in pairs for port in self._plans.pop(pair).ports]

    def _update_host(self, host: str, in_use: InUse, budget: int, facts: _Facts) -> bool:
        """Work out what a host is to trace now; whether its pairs are others, or may have other ports."""
        self._withdraw(self._planned[host] - in_use.keys())
        self._planned[host] = set(in_use)
        shared = self._shared.get(host)
        most = _most(shared, in_use, budget)
        seen = self._to_look_at(host, in_use, facts, most)
        wants_others = [self._look(pair, in_use[pair], facts, most) for pair in seen]
        has_others: list[Pair] = []
        is_shared_anew = any(wants_others) or shared is None or not shared.holds(in_use, budget)
        if is_shared_anew:
            wanted = sum(len(self._plans[pair].wanted) for pair in in_use)
            self._shared[host] = _Shared(in_use, budget, wanted, most)
            has_others = self._share(in_use, budget)
        unsettled = {pair for pair in (*seen, *has_others) if self._plans[pair].settled is None}
        if unsettled:
            self._unsettled[host] = unsettled
        else:
            self._unsettled.pop(host, None)
        return is_shared_anew

    def _to_look_at(self, host: str, in_use: InUse, facts: _Facts, most: int) -> Collection[Pair]:
        """The pairs of a host that may be granted more, or of which something is different."""
        if facts.anew is None:
            return in_use.keys()
        found = {*self._unsettled.get(host, ()), *facts.anew.get(host, ())} & in_use.keys()
        shared = self._shared.get(host)
        if shared is None or shared.in_use is not in_use or shared.most != most:
            for pair, ports in in_use.items():
                plan = self._plans.get(pair)
                if plan is None or not plan.is_settled(facts.of(pair, ports, most)):
                    found.add(pair)
        return found

    def _look(self, pair: Pair, ports: Collection[int], facts: _Facts, most: int) -> bool:
        """See which ports a pair is to have; whether others than before."""
        plan = self._plans.get(pair)
        if plan is None:
            switches = facts.path_counts.switches(pair[0], facts.owner.get(pair[1], ""))
            plan = self._plans[pair] = _Plan(switches=switches)
        if plan.is_taken_up:
            plan.go_on(pair)
        of, heard, lacks = facts.of(pair, ports, most), facts.traced.get(pair), False
        if not plan.ports or (heard is not None and all(map(heard.__contains__, plan.ports))):
            lacks = facts.path_counts.lacks(pair, of[1], is_far=of[2])
            self.waits |= _grow(plan, most if lacks else 0, is_calm=facts.is_calm)
        may_grow = (lacks or plan.waited > 0) and plan.granted < most
        plan.settled = None if may_grow else of
        plan.granted = max(plan.granted, _batch(of[1]) - min(len(ports), MOST_IN_USE))
        return plan.want(pair, ports)

    def _share(self, in_use: InUse, budget: int) -> list[Pair]:
        """Give a host's pairs the ports that they want, as far as there is room; those that have others now."""
        left, changed = _Budget.of_host(budget, in_use), []
        for pair, ports in in_use.items():
            plan = self._plans[pair]
            before, plan.ports = plan.ports, plan.wanted[: max(0, left.of(ports))]
            if plan.ports != before:
                plan.order = plan.settled = None
                changed.append(pair)
                self.withdrawn += [PathName(*pair, port) for port in set(before).difference(plan.ports)]
            left.spend(ports, len(plan.ports))
        return changed


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


def _most(shared: _Shared | None, in_use: InUse, budget: int) -> int:
    """How many candidates a pair of a host may be granted: once all room is taken, what it would get if all got as many.

    Else pairs would go on taking from each other, for ever, what has been traced.
    """
    if shared is None or shared.wanted < budget:
        return MOST_CANDIDATES
    return min(MOST_CANDIDATES, budget // len(in_use))


def _grow(plan: _Plan, most: int, *, is_calm: bool) -> bool:
    """Grant a pair more ports, if it has less than `most`; whether it may be granted still more."""
    if plan.granted >= most:
        plan.waited = 0
        return False
    plan.waited += 1
    if is_calm or plan.granted < SOON or plan.waited >= DEADLINE_UPDATES:
        plan.granted, plan.waited = min(plan.granted + BATCH, most), 0
    return plan.granted < most


def _by_host(pairs: Iterable[Pair]) -> dict[str, set[Pair]]:
    found: defaultdict[str, set[Pair]] = defaultdict(set)
    for pair in pairs:
        found[host_of(pair[0])].add(pair)
    return found
