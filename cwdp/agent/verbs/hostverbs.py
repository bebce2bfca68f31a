"""The verbs shim as the agent has it: nothing where it is not configured, and no process before the first program."""

from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

from cwdp.agent.config import AgentConfig
from cwdp.agent.verbs.keeper import VerbsKeeper
from cwdp.agent.verbs.reports import SentShares, verbs_reports
from cwdp.rdma.sport import SPORT_MAX, SPORT_MIN
from cwdp.shared.bus.messages import Desired, NicQueuePairs, ProbeEdge, Spread, SteerQp, VerbsReport, host_of

MOST_SPORTS = 16


class HostVerbs:
    """Queue pairs of programs that have loaded the shim.

    Args:
        config: the agent's. Queue pairs of NICs with a dataplane are moved by that; those of others by the programs.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._host, self._observe_only = config.host, config.observe_only
        self._by_tc = frozenset(config.xdp_nics)
        self._moved = frozenset() if config.observe_only else frozenset(config.ud_nics)
        self._unseen = frozenset(config.ud_nics)
        self.keeper = None if config.verbs is None else VerbsKeeper(config.verbs, config.nics, self._moved)
        self._shares = SentShares()
        self._steer: dict[tuple[str, str, int], SteerQp] = {}
        self._reported = 0
        self._has_told = False

    @property
    def is_running(self) -> bool:
        """Whether programs have connected."""
        return self.keeper is not None and self.keeper.is_running

    @property
    def counters(self) -> Counter[str]:
        """Totals by name."""
        return Counter() if self.keeper is None else self.keeper.counters

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run for as long as the agent does."""
        return [] if self.keeper is None else [self.keeper.run()]

    def want(self, desired: Desired) -> None:
        """Have queue pairs as the manager wants them; nothing of it where the agent only observes."""
        if self.keeper is None:
            return
        steer = [one for one in desired.steer if one.nic in self._moved]
        self._steer = {(one.nic, one.dst_addr, one.qpn): one for one in steer}
        spreads = [] if self._observe_only else with_probed(desired.spreads, desired.probes)
        self.keeper.order(spreads, steer)

    def parts(self) -> Iterator[NicQueuePairs]:
        """What queue pairs send that no dataplane sees."""
        if self.keeper is not None and self.is_running:
            yield from self._shares.reports(self.keeper.queue_pairs, self._unseen, self.keeper.ports)

    def reports(self) -> Iterator[VerbsReport]:
        """All queue pairs that programs have told of; once more where there are none any more."""
        queue_pairs = [] if self.keeper is None else self.keeper.queue_pairs
        if self.keeper is None or not (queue_pairs or self._has_told):
            return
        self._has_told, self._reported = bool(queue_pairs), self._reported + 1
        yield from verbs_reports(
            self._host, self._reported, queue_pairs, by_tc=self._by_tc, drains=self.keeper.drains
        )

    def steered(self) -> list[SteerQp]:
        """What the manager wanted and is done: the queue pair is there, and did not refuse."""
        if self.keeper is None or not self._steer:
            return []
        willing = {(qp.nic, qp.dst_addr, qp.qpn) for qp in self.keeper.queue_pairs if not qp.refused}
        return [steer for name, steer in self._steer.items() if name in willing]


def with_probed(spreads: list[Spread], probes: Iterable[ProbeEdge]) -> list[Spread]:
    """Spreads, and for those pairs of which the manager says nothing the ports that are probed, in equal parts."""
    found = {(spread.nic, spread.dst_addr): spread for spread in spreads}
    for edge in probes:
        nic = edge.src.removeprefix(f"{host_of(edge.src)}/")
        sports = [port for port in edge.sports if SPORT_MIN <= port <= SPORT_MAX][:MOST_SPORTS]
        if sports:
            probed = Spread(nic=nic, dst_addr=edge.dst_addr, sports=sports, dst_ud=edge.dst_ud)
            found.setdefault((nic, edge.dst_addr), probed)
    return list(found.values())
