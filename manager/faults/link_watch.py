"""The links of the fabric as the manager sees them: windows in, queues, loads and faults out. No I/O."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import BounceOrder, WindowReport, nic_id
from cwdp.shared.bus.records import WINDOW_NS
from manager.fabric.routes import DirectedLink, Routes
from manager.faults.dead_links import avoided
from manager.faults.finding import Findings
from manager.faults.link_model import LinkModel, ModelInputs
from manager.faults.loss_watch import WINDOWS_PER_S
from manager.faults.watch import FaultWatch, Note
from manager.hosts.members import Host, Members
from manager.hosts.refusals import LATE_WINDOWS, Refusals
from manager.links.connections import ConnectionLoads
from manager.links.inference import shared_links
from manager.links.loads import Capacities, LinkLoads, likely_bps
from manager.links.meter import LoadMeter
from manager.links.row_places import Nics
from manager.paths.far import FarPaths
from manager.paths.told import ToldPaths
from manager.paths.windows import FWD, KEPT, MOST_AHEAD, REV, Window, WindowStore
from manager.queue_pairs.counters import NicTable

REPORT_DEADLINE_WINDOWS = 10
"""Windows for which the reports of a slow host are waited for."""

REPORTS = ("ok", "unknown_nic", "unknown_paths", "not_sane", "unsynced")
SILENT_S = 1.5
STANDS_WINDOWS = 5
LOSS_WINDOWS = 30
LOADS_EVERY = 2
QUEUES_SHARE = 0.6
"""Of the windows that agents tell of at once; hosts do not all speak at once, so that windows become complete one by one."""

MOST_AT_ONCE = 8
"""Windows that are worked off before others have their turn: a manager that is behind hears all the same.

Where several are worked off together, the fleet is so large that one look at them is enough.
"""

MOST_BEHIND = 24
"""A manager that is further behind leaves out what came before; what it works off is still kept."""

assert MOST_AHEAD + REPORT_DEADLINE_WINDOWS + MOST_BEHIND < KEPT

CHANGED_SOONER = 3
"""Windows by which a clock may have changed before the probe that showed it."""


Tables = Iterable[tuple[tuple[str, str], NicTable]]


class LinkWatch:
    """Works windows off in order, some at once, as soon as all hosts have said what they saw.

    A new model is made by the caller, in a thread if that takes long: `take(due(routes).make(), now_s)`.

    Attributes:
        windows: what hosts said.
        loads: what is known of each link.
        connections: the TCP connections whose loads count beside those of queue pairs.
        loads_every: windows from one measurement of loads to the next.
        queues_every: windows that are worked off together: fewer than agents tell of at once.
        reports: messages by outcome (`REPORTS`).
    """

    def __init__(self, members: Members, note: Note) -> None:
        self.windows = WindowStore()
        self.loads = LinkLoads()
        self.connections = ConnectionLoads()
        self.faults = FaultWatch(note)
        self.loads_every = LOADS_EVERY
        self.queues_every = 1
        self.reports: Counter[str] = Counter(dict.fromkeys(REPORTS, 0))
        self._members = members
        self._told = ToldPaths()
        self._nics = Nics()
        self._far = FarPaths(members)
        self._members_version = self._carriers_version = -1
        self._carriers: dict[str, bool] = {}
        self._last: int | None = None
        self._model: LinkModel | None = None
        self._capacities = Capacities()
        self._losses: NDArray[np.float64] = np.zeros((0, 2, 0))
        self._changed: dict[str, int] = {}
        self._refusals = Refusals()

    @property
    def findings(self) -> Findings:
        """What is wrong."""
        return self.faults.findings

    @property
    def meter(self) -> LoadMeter | None:
        """What adds up the loads of links; None before the first model."""
        return None if self._model is None else self._model.meter

    def avoided(self, routes: Routes, losing: Collection[DirectedLink]) -> set[DirectedLink]:
        """Links that nothing is to be sent over, of some routes, with those that lose packets of jobs though probes pass."""
        return avoided(self.findings, self.faults.dead_elsewhere, routes, losing)

    def hear(self, report: WindowReport, timeline_ns: int | None) -> None:
        """A host's probes; `timeline_ns` is the time now, None where it is not known."""
        host = self._members.hosts.get(report.host)
        if host is None or not {nic.ifname for nic in host.hello.nics}.issuperset(report.nics):
            self.reports["unknown_nic"] += 1
            return
        if timeline_ns is None:
            self.reports["unsynced"] += 1
            return
        try:
            told = self._told.read(report)
        except ValueError:
            self.reports["not_sane"] += 1
            return
        if told is None:
            self.reports["unknown_paths"] += 1
            return
        self.reports["ok"] += 1
        table, rows = told
        self.windows.hear(table, self._far.on_our_timeline(table, rows), timeline_ns // WINDOW_NS)

    def keep_pace(self, report_interval_s: float) -> None:
        """Look as often as agents make it worth while that report at an interval: they tell of windows twice in it."""
        told_at_once = round(report_interval_s / 2 * WINDOWS_PER_S)
        self.queues_every = max(1, round(QUEUES_SHARE * told_at_once))
        self.loads_every = max(LOADS_EVERY, told_at_once)

    def due(self, routes: Routes) -> ModelInputs | None:
        """What a new model is to be made of; None where the present one holds."""
        version = (routes.version, self.windows.version, self._members.version)
        if self._model is not None and version == self._model.version:
            return None
        if self._members.version != self._members_version:
            self._members_version = self._members.version
            self._nics = _nics(self._members)
        return ModelInputs(version, tuple(self.windows.names), routes, self._nics, self._model)

    def take(self, model: LinkModel, now_s: float) -> None:
        """Work windows off by a model from now on; it was made with the present one as the one before."""
        before, self._model = self._model, model
        if before is not None and before.queues is model.queues:
            model.queues.matrix = model.matrix
            return
        if before is not None:
            model.queues.carry_on(before.queues)
            if before.matrix.routes.version != model.matrix.routes.version:
                self.faults.follow_routes(before.matrix, model.matrix, now_s)
            for way, rows in zip((FWD, REV), model.rebased, strict=True):
                self.windows.forget_base(rows, way)
        losses, self._losses = self._losses, np.zeros((LOSS_WINDOWS, 2, len(model.matrix.routes.links)))
        if before is not None:
            mine, theirs = shared_links(model.matrix.routes.links, before.queues.number)
            self._losses[:, :, mine] = losses[:, :, theirs]
        self.faults.use(model.matrix, model.causes, model.moved)

    def doubt_clocks(
        self, changed: Mapping[str, int], unfollowed: Mapping[str, int], timeline_ns: int | None
    ) -> None:
        """Take back the delays of hosts whose clocks went otherwise than they claimed, from then until they are told.

        Args:
            changed: since when, by the timeline, of every host whose clock is being found anew.
            unfollowed: the same of those whose clocks nobody followed, and which are told of once.
            timeline_ns: the timeline now.
        """
        fresh = {host: since_ns for host, since_ns in changed.items() if self._changed.get(host) != since_ns}
        for host, since_ns in unfollowed.items():
            fresh[host] = min(since_ns, fresh.get(host, since_ns))
        self._changed = dict(changed)
        if not fresh or timeline_ns is None:
            return
        now = timeline_ns // WINDOW_NS
        spans = {host: (since_ns // WINDOW_NS - CHANGED_SOONER, now + 1) for host, since_ns in fresh.items()}
        known = {name: host for name, host in self._members.hosts.items() if name in spans}
        self.windows.distrust({end: spans[name] for end, name in _ends(known).items()})

    def step(self, now_s: float, timeline_ns: int | None, tables: Tables) -> int:
        """Work off the windows that are complete; returns how many. None before the first model.

        Args:
            now_s: the manager's monotonic clock.
            timeline_ns: the timeline now.
            tables: the queue pairs of each NIC.
        """
        if timeline_ns is None or self._model is None:
            return 0
        now = timeline_ns // WINDOW_NS
        self._follow_refusals(now)
        end = min(self.windows.complete_to(now, REPORT_DEADLINE_WINDOWS), now)
        if self._last is None or not end - MOST_BEHIND < self._last <= now:
            self._last = end
        end = min(end, self._last + (MOST_AT_ONCE if self.queues_every == 1 else self.queues_every))
        if end < self._last + self.queues_every:
            return 0
        numbers = range(self._last + 1, end + 1)
        for first in numbers[:: self.queues_every]:
            some = range(first, min(first + self.queues_every, end + 1))
            lag_s = (timeline_ns - some.stop * WINDOW_NS) * 1e-9
            self._step(self._model, some, now_s, tables, lag_s)
        self._last = end
        return len(numbers)

    def echo_orders(self, now_s: float) -> list[BounceOrder]:
        """Echoes that hosts are to send now."""
        return self.faults.echo_orders(self.loads.routes.links, now_s)

    def queues_of(self, links: Sequence[DirectedLink]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The queues of some links of late.

        Returns:
            The numbers of the windows, rising, shape (windows,), and the mean queueing delay of each link in each of them in ns,
            NaN where nothing is known, shape (windows, links).
        """
        if self._model is None or not self._model.queues.number:
            return np.zeros(0, np.int64), np.zeros((0, len(links)))
        queues = self._model.queues
        there = queues.windows >= 0
        columns = np.array([queues.number.get(link, -1) for link in links], np.intp)
        found = queues.queue_ns[np.ix_(there, columns)]
        found[:, columns < 0] = np.nan
        return queues.windows[there], found

    def expire(self, now_s: float, timeline_ns: int | None) -> None:
        """Let go of what is gone, and see who is silent."""
        if timeline_ns is not None:
            self.windows.expire(timeline_ns // WINDOW_NS)
        self.faults.expire(now_s)
        self._told.keep(self._members.hosts)

    def follow_members(self, now_s: float, set_aside: Iterable[str]) -> None:
        """See which NICs have a carrier, which hosts are silent, and whose clocks are wrong."""
        hosts = self._members.hosts.items()
        if self._carriers_version != self._members.version:
            self._carriers_version, self._carriers = self._members.version, _carriers(self._members)
        self.faults.note_silent_hosts(name for name, host in hosts if now_s - host.last_seen_s > SILENT_S)
        self.faults.follow_carriers(self._carriers, self.loads.routes.links)
        self.faults.follow_clocks(set_aside, now_s)
        self.faults.look_for_reroutes(now_s)

    def _step(
        self, model: LinkModel, numbers: Sequence[int], now_s: float, tables: Tables, lag_s: float
    ) -> None:
        windows = [self._worked_off(model, number) for number in numbers]
        model.queues.step(*windows)
        self._count_losses(model, windows)
        is_due = any(number % self.loads_every == 0 for number in numbers)
        if is_due or self.loads.routes is not model.matrix.routes:
            self.loads = self._measure(model, now_s, tables, lag_s)
        self.faults.step(windows, model.queues, self.loads, now_s=now_s, lag_s=lag_s)

    def _measure(self, model: LinkModel, now_s: float, tables: Tables, lag_s: float) -> LinkLoads:
        routes = model.matrix.routes
        load_bps, is_sure = model.meter.measure(tables, now_s, lag_s)
        load_bps, is_sure = self.connections.added(routes, load_bps, is_sure, now_s)
        stands = model.queues.stands(STANDS_WINDOWS)
        self._capacities.learn(routes.links, load_bps, stands=stands, is_sure=is_sure)
        known_bps = self._capacities.known_bps(routes.links)
        history = model.queues.queue_ns
        p50, p99 = _quantiles(history)
        sent, lost = self._losses.sum(axis=0)
        return LinkLoads(
            routes=routes,
            time_s=now_s,
            queue_ns=history[-1].copy(),
            queue_p50_ns=p50,
            queue_p99_ns=p99,
            load_bps=load_bps,
            is_sure=is_sure,
            capacity_bps=known_bps,
            likely_capacity_bps=likely_bps(known_bps, load_bps, model.meter.kinds),
            stands=stands,
            loss=np.divide(lost, sent, out=np.full(len(sent), np.nan), where=sent > 0),
        )

    def _count_losses(self, model: LinkModel, windows: Sequence[Window]) -> None:
        """What windows that are worked off together have lost counts as lost in the last of them."""
        round_trip = model.matrix.round_trip
        sent, lost = (sum(getattr(window, of) for window in windows) for of in ("sent", "lost"))
        losing = np.flatnonzero(lost)
        self._losses = np.roll(self._losses, -len(windows), axis=0)
        self._losses[-len(windows) :] = 0.0
        self._losses[-1] = round_trip.T @ sent, round_trip[losing].T @ lost[losing]

    def _follow_refusals(self, now: int) -> None:
        """See who has no key that the others sign with: what was lost of its probes of late blames nobody."""
        new = self._refusals.follow(self._members.without_keys(), now)
        if new:
            self.faults.excuse(new, self._rows_of(new), LATE_WINDOWS / WINDOWS_PER_S)

    def _rows_of(self, hosts: Iterable[str]) -> NDArray[np.intp]:
        """The rows that start or end at some hosts."""
        known = {name: host for name in hosts if (host := self._members.hosts.get(name)) is not None}
        return self.windows.rows_at(_ends(known))

    def _worked_off(self, model: LinkModel, number: int) -> Window:
        """What is known of a window of the model's rows; the others wait for the next model."""
        rows = np.zeros(len(model.matrix.known), bool)
        named = self.windows.named_by(model.names_version)[: len(rows)]
        rows[: len(named)] = named
        refusing = self._refusals.at(number)
        if refusing:
            refused = self._rows_of(refusing)
            rows[refused[refused < len(rows)]] = False
        return self.windows.window(number).of(rows)


def _ends(hosts: Mapping[str, Host]) -> dict[str, str]:
    """The NICs and addresses of some hosts, each with its host."""
    return {
        end: name
        for name, host in hosts.items()
        for nic in host.hello.nics
        for end in (nic_id(name, nic.ifname), nic.ipv4, nic.ipv6)
        if end is not None
    }


def _nics(members: Members) -> Nics:
    addresses = {
        nic_id(name, nic.ifname): [address for address in (nic.ipv4, nic.ipv6) if address is not None]
        for name, host in members.hosts.items()
        for nic in host.hello.nics
    }
    return Nics(members.nics_by_address, addresses)


def _carriers(members: Members) -> dict[str, bool]:
    """Whether each NIC has a carrier, of hosts that are up."""
    return {
        nic_id(name, nic.ifname): nic.carrier
        for name, host in members.hosts.items()
        if host.state == "up"
        for nic in host.hello.nics
    }


def _quantiles(history: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median and 99th percentile of each link's windows; NaN where there are none."""
    seen = np.isfinite(history)
    filled = np.sort(np.where(seen, history, np.inf), axis=0)
    count = seen.sum(axis=0)
    columns = np.arange(history.shape[1])
    found = []
    for q in (0.5, 0.99):
        row = np.maximum(np.ceil(q * count).astype(int) - 1, 0)
        value = filled[row, columns] if len(columns) else np.zeros(0)
        found.append(np.where(count > 0, value, np.nan))
    return found[0], found[1]
