"""What the manager knows of the network while hosts are audited: walks to make, and verdicts about links and paths."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cwdp.shared.audit.facts import HostFacts, Walk
from cwdp.shared.bus.messages import nic_id
from manager.audit.network import planning, standing, walked
from manager.audit.network.standing import Known
from manager.audit.network.wired import wired
from manager.audit.results import Audit, Result
from manager.fabric.routes import PathName, Routes
from manager.fabric.wiring import address_of_each
from manager.paths.owd import OwdStore
from manager.state import FleetState

NOTHING = Audit(results=[], hosts={}, passed={}, not_applicable={})


class Network:
    """The network of one pod.

    Args:
        state: all that the manager knows.
    """

    def __init__(self, state: FleetState) -> None:
        self._state = state
        self._routes = Routes()

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
        )
        return partial(_judged, known, state.owd, dict(state.members.nics_by_address), facts)


def _judged(known: Known, owd: OwdStore, nics: Mapping[str, str], facts: Sequence[HostFacts]) -> Audit:
    """Of the mesh and the walks."""
    paths, routes = owd.snapshot(time.monotonic()), known.routes
    results, passed = standing.judged(
        replace(
            known,
            paths=[(src, dst, sport) for src, dst, sport, _ in paths.keys],
            sent=paths.sent,
            lost=paths.lost,
            rtt_ns=paths.delays["rtt_min_ns"],
            crossed=_crossed(paths.keys, routes, address_of_each(nics)),
        )
    )
    of_walks, crossed = walked.judged(((each.host, one) for each in facts for one in each.walks), routes)
    of_walks += walked.untold(crossed, of_walks, routes.links)
    return Audit(results=[*results, *of_walks], hosts={}, passed={**passed, **crossed}, not_applicable={})


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


def joined(facts: Audit, network: Audit) -> Audit:
    """The verdicts of both."""
    results: list[Result] = [*network.results, *facts.results]
    return Audit(
        results=results,
        hosts=facts.hosts,
        passed={**network.passed, **facts.passed},
        not_applicable=facts.not_applicable,
    )
