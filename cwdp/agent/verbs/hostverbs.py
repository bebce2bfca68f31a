"""Queue pairs of programs, as the verbs shim tells of them where it is configured, and as uprobes have seen them."""

import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol

from cwdp.agent.config import AgentConfig
from cwdp.agent.ud.orders import UdWatched, WatchPace
from cwdp.agent.verbs.keeper import VerbsKeeper
from cwdp.agent.verbs.migration.orders import MigrationOrders
from cwdp.agent.verbs.orders import VerbsPathChange, VerbsQp
from cwdp.agent.verbs.reports import verbs_reports
from cwdp.agent.verbs.shares import SentShares
from cwdp.agent.verbs.watched import watched_paths
from cwdp.rdma.sport import SPORT_MAX, SPORT_MIN
from cwdp.shared.addresses import IbPort
from cwdp.shared.bus.messages import (
    Desired,
    Event,
    FromAgent,
    NicQueuePairs,
    PathChange,
    ProbeEdge,
    RoceSettings,
    Spread,
    SteerQp,
    host_of,
)
from cwdp.shared.verbs import MigrationOrder, VerbsReport

MOST_SPORTS = 16
NS_PER_MS = 1_000_000


class Telling(Protocol):
    """See `cwdp.agent.ud.keeper.UdKeeper`."""

    def tell_by(self, descriptor: int) -> None:
        """Have it tell of paths that are down by this."""


class WatchingNic(Protocol):
    """See `cwdp.agent.ud.nic.UdNic`."""

    @property
    def ifname(self) -> str:
        """The NIC."""

    @property
    def keeper(self) -> Telling:
        """Of its process."""

    def watch(self, watched: list[UdWatched], pace: WatchPace) -> None:
        """Watch these paths from now on."""


class Seeing(Protocol):
    """See `cwdp.agent.uprobes.keeper.HostUprobes`; `on_change` is called when queue pairs have come or gone."""

    on_change: Callable[[], None]

    @property
    def queue_pairs(self) -> list[VerbsQp]:
        """Those that were seen to be connected."""


class Talking(Protocol):
    """See `cwdp.agent.hostbus.HostBus`."""

    def hear(self, kind: str, of: type[MigrationOrder], handler: Callable[[MigrationOrder], None]) -> None:
        """Call `handler` for each message of a kind to this host."""

    def say(self, kind: str, message: FromAgent) -> bool:
        """Publish a message; False when it was dropped."""


class HostVerbs:
    """Queue pairs of programs that have loaded the shim, and those that uprobes have seen.

    Args:
        bus: by which leaders order migrations.
        config: the agent's. Queue pairs of NICs with a dataplane are moved by that; those of others by the programs.
        ud: the others; their processes watch the paths.
        uprobes: what they have seen.
    """

    def __init__(self, bus: Talking, config: AgentConfig, ud: Sequence[WatchingNic], uprobes: Seeing) -> None:
        self._ud, self._uprobes = ud, uprobes
        self._host, self._observe_only = config.host, config.observe_only
        self._by_tc = frozenset(config.xdp_nics)
        self._moved = frozenset() if config.observe_only else frozenset(config.ud_nics)
        self._unseen = frozenset(config.ud_nics)
        self.keeper = None if config.verbs is None else VerbsKeeper(config.verbs, config.nics, self._moved)
        if self.keeper is not None:
            for nic in ud:
                nic.keeper.tell_by(self.keeper.watcher.fileno())
            uprobes.on_change = self.keeper.look_soon
        self._migrations = MigrationOrders(
            config.host, self.keeper, bus.say, observe_only=config.observe_only
        )
        bus.hear("migrate", MigrationOrder, self._migrations.order)
        self._shares = SentShares()
        self._steer: dict[tuple[str, str, int], SteerQp] = {}
        self._watched: dict[str, list[UdWatched]] = {}
        self._watched_of: tuple[int, list[Spread]] = (0, [])
        self._interval_ns = round(config.pulse_interval_ms * NS_PER_MS)
        self._pace = WatchPace(interval_ns=self._interval_ns)
        self._reported = 0
        self._has_told = False

    @property
    def is_running(self) -> bool:
        """Whether programs are served."""
        return self.keeper is not None and self.keeper.is_running

    @property
    def ib_ports(self) -> list[IbPort]:
        """Ports of InfiniBand whose LIDs programs take; they take none where the agent only observes."""
        return [] if self.keeper is None or not self.is_running else self.keeper.ib_ports

    @property
    def counters(self) -> Counter[str]:
        """Totals by name."""
        if self.keeper is None:
            return Counter()
        total = self.keeper.counters
        total.update(self._migrations.counters)
        return total

    def watch_paths(self) -> None:
        """Have the paths watched that queue pairs of NICs without a dataplane take or could take, as they are now."""
        if self.keeper is None or self._observe_only:
            return
        rests_on = self.keeper.changes, self.keeper.spreads
        if rests_on != self._watched_of:
            self._watched_of = rests_on
            self._watched = watched_paths(self.keeper.queue_pairs, self.keeper.spreads)
        for ud in self._ud:
            ud.watch(self._watched.get(ud.ifname, []), self._pace)

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run for as long as the agent does."""
        return [] if self.keeper is None else [self.keeper.run()]

    def want(self, desired: Desired) -> None:
        """Have queue pairs as the manager wants them; nothing of it where the agent only observes."""
        self._migrations.epoch = desired.epoch
        if self.keeper is None:
            return
        roce = desired.roce or RoceSettings()
        self._pace = WatchPace(
            interval_ns=self._interval_ns,
            dead_after_ns=round(roce.dead_after_ms * NS_PER_MS),
            hold_down_ns=round(roce.hold_down_ms * NS_PER_MS),
        )
        steer = [one for one in desired.steer if one.nic in self._moved]
        self._steer = {(one.nic, one.dst_addr, one.qpn): one for one in steer}
        spreads = [] if self._observe_only else with_probed(desired.spreads, desired.probes)
        self.keeper.order(spreads, steer)

    def parts(self) -> Iterator[NicQueuePairs]:
        """What queue pairs send that no dataplane sees."""
        if self.keeper is not None and self.is_running:
            keeper = self.keeper
            nics = self._unseen.union(port.nic for port in self.ib_ports)
            yield from self._shares.reports(keeper.queue_pairs, nics, keeper.ports, keeper.sent)

    def tell(self, say: Callable[[str, VerbsReport], object]) -> None:
        """Say all queue pairs that programs have told of."""
        for report in self.reports():
            say("verbs", report)

    def tell_events(self, say: Callable[[Event], None], local_ns: int) -> None:
        """Say which paths are down, or not any more, since the last time."""
        for change in [] if self.keeper is None else self.keeper.take_path_changes():
            say(self._event(change, local_ns))

    def _event(self, change: VerbsPathChange, local_ns: int) -> Event:
        path = PathChange(
            time_ns=None,
            bound_ns=None,
            dst_addr=change.dst_addr,
            sport=change.sport,
            lasted_ns=0,
            unanswered=0,
            hold_down_ns=self._pace.hold_down_ns,
            queue_pairs=change.queue_pairs,
        )
        where = f"to {change.dst_addr} from port {change.sport}"
        what = (
            f"silent; {change.queue_pairs} queue pairs are told to move"
            if change.is_down
            else "healthy again"
        )
        return Event(
            host=self._host,
            local_ns=local_ns,
            kind="path_down" if change.is_down else "path_up",
            nic=change.nic,
            detail=f"{where}: {what}",
            path=path,
        )

    def reports(self) -> Iterator[VerbsReport]:
        """All queue pairs that programs have told of, or were seen to make; once more where there are none any more."""
        queue_pairs = [] if self.keeper is None else self.keeper.queue_pairs
        told = {(qp.device, qp.lqpn) for qp in queue_pairs}
        queue_pairs += [qp for qp in self._uprobes.queue_pairs if (qp.device, qp.lqpn) not in told]
        if not (queue_pairs or self._has_told):
            return
        self._has_told, self._reported = bool(queue_pairs), self._reported + 1
        drains = self.keeper is not None and self.keeper.drains
        yield from verbs_reports(
            self._host,
            self._reported,
            queue_pairs,
            by_tc=self._by_tc,
            drains=drains,
            monotonic_ns=time.monotonic_ns(),
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
