"""What the manager knows of the network while hosts are audited: walks to make, and verdicts about links and paths."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial

import msgspec
import numpy as np

from cwdp.shared.audit.asks import Ask, Asked
from cwdp.shared.audit.facts import HostFacts, Walk
from cwdp.shared.bus.messages import host_of, nic_id
from manager.audit.checks.model import Checks
from manager.audit.judging.waivers import waived
from manager.audit.network import asks, pairs, planning, standing, subnets, walked
from manager.audit.network.dead import dead_paths
from manager.audit.network.pairs import REACHABLE
from manager.audit.network.standing import Known
from manager.audit.network.wired import wired
from manager.audit.results import Audit, Result
from manager.audit.throughput.ways import Ways, ways
from manager.fabric.routes import PathName, Routes
from manager.fabric.wiring import address_of_each
from manager.paths.owd import OwdStore
from manager.probing.schedule import Family, Member
from manager.state import FleetState

NOTHING = Audit(results=[], hosts={}, passed={}, not_applicable={})


class Network:
    """The network of one pod.

    Args:
        state: all that the manager knows.
        family: which addresses are probed.
    """

    def __init__(self, state: FleetState, family: Family) -> None:
        self._state, self._family = state, family
        self._routes, self._asks = Routes(), asks.Plan()

    def plan_asks(self, hosts: Collection[str], seed: int) -> Callable[[], Mapping[str, Ask]]:
        """Take down who is probed; what it returns says, in any thread, whom hosts are to ask so that all pairs of NICs are met."""
        state = self._state
        members = [each for each in state.probeable(time.monotonic()) if not state.members.is_lost(each[0])]
        return partial(
            self._plan_asks,
            members,
            frozenset(hosts),
            state.discovery.path_counts.most_paths,
            seed,
        )

    def _plan_asks(
        self, members: Sequence[Member], hosts: Collection[str], ways: int, seed: int
    ) -> Mapping[str, Ask]:
        leaf = {**self._routes.last_switch, **self._routes.first_switch}
        self._asks = asks.plan(members, hosts, family=self._family, ways=ways, leaf=leaf, seed=seed)
        return self._asks.orders

    def plan(self, facts: Sequence[HostFacts], seed: int) -> dict[str, list[Walk]]:
        """The walks that hosts are to make, by what they tell of their NICs' MTU."""
        self._routes = self._state.fabric.routes
        mtu_bytes = {
            nic_id(each.host, subject.name): mtu
            for each in facts
            for subject in each.subjects
            if subject.kind == "nic" and type(mtu := subject.facts.get("mtu_bytes")) is int
            if planning.SMALL_BYTES < mtu <= 65535
        }
        return planning.plan(self._routes, mtu_bytes, seed)

    def ways(self, facts: Sequence[HostFacts], seed: int) -> Ways:
        """The paths between NICs of hosts that have told their facts, those of the plan."""
        hosts = {each.host for each in facts}
        owners = self.owners()
        return ways(self._routes, owners, [nic for nic in owners.values() if host_of(nic) in hosts], seed)

    def owners(self) -> dict[str, str]:
        """The NIC of each address."""
        return dict(self._state.members.nics_by_address)

    def wire(self, facts: Sequence[HostFacts]) -> Callable[[], list[HostFacts]]:
        """Take down where NICs are now; what it returns adds that to facts, in any thread."""
        discovery = self._state.discovery
        nics = {
            nic_id(name, nic.ifname)
            for name, host in self._state.members.hosts.items()
            for nic in host.hello.nics
        }
        return partial(wired, facts, discovery.model(), discovery.miswired(), nics)

    def look(self, facts: Sequence[HostFacts], hosts: Collection[str]) -> Callable[[], Audit]:
        """Take down what is known of the network now; what it returns judges that, and the walks, in any thread."""
        state, now_s = self._state, time.monotonic()
        state.subnets.step(now_s)
        members = {name: host for name, host in state.members.hosts.items() if name in hosts}
        known = Known(
            findings=list(state.faults.current.values()),
            miswired=state.discovery.miswired(),
            nics={
                nic_id(name, nic.ifname): state.members.reason(host, nic, now_s)
                for name, host in members.items()
                for nic in host.hello.nics
            },
            routes=self._routes,
            subnets=state.subnets.now,
        )
        return partial(
            _judged, known, state.owd, dict(state.members.nics_by_address), facts=facts, plan=self._asks
        )


def _judged(
    known: Known,
    owd: OwdStore,
    nics: Mapping[str, str],
    *,
    facts: Sequence[HostFacts],
    plan: asks.Plan,
) -> Audit:
    """Of the mesh, the walks, the asks, and subnets of InfiniBand."""
    paths, routes = owd.snapshot(time.monotonic()), known.routes
    known = replace(
        known,
        paths=[(src, dst, sport) for src, dst, sport, _ in paths.keys],
        sent=paths.sent,
        lost=paths.lost,
        rtt_ns=paths.delays["rtt_min_ns"],
        crossed=_crossed(paths.keys, routes, address_of_each(nics)),
    )
    results, passed = standing.judged(known)
    of_asks, passed[REACHABLE] = _reachable(known, plan, {each.host: each.asked for each in facts})
    results += of_asks
    of_subnets, passed_of_subnets = subnets.judged(known.subnets)
    of_walks, crossed = walked.judged(((each.host, one) for each in facts for one in each.walks), routes)
    of_walks += walked.untold(crossed, of_walks, routes.links)
    return Audit(
        results=[*results, *of_subnets, *of_walks],
        hosts={},
        passed={**passed, **passed_of_subnets, **crossed},
        not_applicable={},
    )


def _reachable(known: Known, plan: asks.Plan, told: Mapping[str, Asked | None]) -> tuple[list[Result], int]:
    """By asks, and by the mesh; how many pairs answer, or paths of the mesh where no host has asked."""
    found = pairs.reached(plan, told)
    dead = dead_paths(known, found.named, {pair.ends for pair in found.pairs})
    untold = sum(host in plan.orders and asked is None for host, asked in told.items())
    results, answer = pairs.judged(plan, found, dead, untold)
    return [*results, *dead.results], answer if found.told else dead.alive


def _crossed(
    keys: Sequence[tuple[str, str, int, int]], routes: Routes, addresses: Mapping[str, str]
) -> "np.ndarray[tuple[int, int], np.dtype[np.int32]]":
    """The links of round trips, there and back; none of those of which one way is not known; shape (paths, most links)."""
    there = routes.crossed([PathName(src, addresses.get(dst, ""), sport) for src, dst, sport, _ in keys])
    back = routes.crossed([PathName(dst, addresses.get(src, ""), port) for src, dst, _, port in keys])
    both = np.concatenate([there, back], axis=1)
    if both.size:
        both[(there < 0).all(axis=1) | (back < 0).all(axis=1)] = -1
    return both


def joined(facts: Audit, *others: Audit) -> Audit:
    """The verdicts of all; those of facts come last."""
    results: list[Result] = [*(one for other in others for one in other.results), *facts.results]
    passed = {check: count for other in others for check, count in other.passed.items()}
    return Audit(
        results=results,
        hosts=facts.hosts,
        passed={**passed, **facts.passed},
        not_applicable=facts.not_applicable,
    )


def borne_with(network: Audit, checks: Checks, day: date) -> Audit:
    """Verdicts about the network, those that a waiver of that day is about as `waived`."""
    return msgspec.structs.replace(network, results=waived(network.results, checks.waivers, day))


def speeds_of(facts: Sequence[HostFacts]) -> dict[str, int]:
    """What NICs say that their links carry, in bit/s; those that are no devices make it up."""
    return {
        nic_id(each.host, subject.name): speed
        for each in facts
        for subject in each.subjects
        if subject.kind == "nic" and "device" in subject.facts
        if type(speed := subject.facts.get("speed_bps")) is int and speed > 0
    }
