"""A fleet from its cold start: the agents' own fits, the manager's own clocks, and their talk; only packets are drawn.

Errors are taken as the lab takes them: each host's published line against the median of all, again and again.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cwdp.agent.clock.hostclock import HostClock, LocalClock
from cwdp.agent.clock.hostsync import HostSync
from cwdp.agent.clock.window import Samples
from cwdp.dataplane.loading.loader import Settings
from cwdp.shared.bus.edges import fit_rows
from cwdp.shared.bus.messages import Report
from cwdp.shared.clocksync import pair_purity
from cwdp.shared.clocksync._types import NS_PER_S
from manager.clock.service import ClockService
from manager.clock.timeline import Identity
from tools.sim.clocks.clos import random_pairs
from tools.sim.clocks.disciplined import Disciplined, as_stamped
from tools.sim.clocks.manoeuvres import Manoeuvre
from tools.sim.clocks.oscillators import Oscillators
from tools.sim.fleet.probes import Bools, FleetOptions, Floats, Probes, draw_probes

TICK_S = 0.25
LOOK_S = 0.125
SAMPLE_S = 0.05
ANSWERED_AFTER_S = 0.02
START_WITHIN_S = 0.5


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """Of all hosts that claimed to be synced between two times; absolute errors.

    `outside` is the share of claims that the truth was outside of, `synced` that of hosts and moments with a claim.
    """

    from_s: float
    to_s: float
    p50_ns: float
    p99_ns: float
    max_ns: float
    bound_p50_ns: float
    outside: float
    synced: float


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What was sampled.

    Attributes:
        time_s: since the first probe, shape (samples,).
        error_ns: distance from the median of the hosts that have a clock, shape (samples, hosts); NaN without one.
        bound_ns: the bound claimed, shape (samples, hosts); NaN without a clock.
        synced, set_aside: whether the host says that it is, shape (samples, hosts).
        changed_s: since when, as the manager knows by then, a clock that is being found anew has gone otherwise, shape
            (samples, hosts); NaN for others.
    """

    time_s: Floats
    error_ns: Floats
    bound_ns: Floats
    synced: Bools
    set_aside: Bools
    changed_s: Floats

    def between(self, from_s: float, to_s: float) -> FleetFigures:
        """Figures of a stretch of time in which at least one host was synced."""
        rows = (self.time_s >= from_s) & (self.time_s < to_s)
        synced = self.synced[rows]
        error, bound = np.abs(self.error_ns[rows][synced]), self.bound_ns[rows][synced]
        p50, p99 = np.quantile(error, (0.5, 0.99))
        return FleetFigures(
            from_s,
            to_s,
            float(p50),
            float(p99),
            float(error.max()),
            float(np.median(bound)),
            float(np.mean(error > bound)),
            float(np.mean(synced)),
        )


class SimulatedClock(LocalClock):
    """A host's clock at the simulation's time, `true_ns`."""

    def __init__(self, clocks: Oscillators, host: int) -> None:
        super().__init__(Settings())
        self._clocks, self._host = clocks, np.array([host])
        self.true_ns = 0.0

    def now_ns(self) -> int:
        """As stamped now."""
        return int(self._clocks.stamp(self._host, np.array([self.true_ns]))[0])


class FleetSimulation:
    """State of one run.

    Args:
        options: the fleet.
        manoeuvre: what its clocks do.
        takeovers_s: when another manager takes over, which knows what hosts tell it and no more.
        silent_s: for so long before that nobody leads.
        stood_by: whether the other one has heard the hosts meanwhile; else it begins to when it leads.
    """

    def __init__(
        self,
        options: FleetOptions,
        manoeuvre: Manoeuvre | None = None,
        takeovers_s: Sequence[float] = (),
        *,
        silent_s: float = 0.0,
        stood_by: bool = False,
    ) -> None:
        self._seconds = options.seconds
        self._rng = rng = np.random.default_rng(options.seed)
        n = options.hosts
        self._names = [f"h{i}" for i in range(n)]
        clocks = Oscillators.random(
            n, options.seconds + 1, rng, drift_ppm=options.drift_ppm, wander=options.wander
        )
        self._clocks = as_stamped(clocks, manoeuvre, options.seed, rng)
        self._start_s = np.append(0.0, rng.uniform(0, START_WITHIN_S, n - 1))
        a, b = random_pairs(n, options.peers, rng)
        peers = [np.concatenate((b[a == i], a[b == i])) for i in range(n)]
        self._probes = [
            draw_probes(options, self._clocks, i, peers[i], start_s=float(self._start_s[i]), rng=rng)
            for i in range(n)
        ]
        self._heard, self._looks, self._changes_seen = np.zeros((3, n), np.int64)
        self._takeovers_s, self._managers = deque(sorted(takeovers_s)), 1
        self._silent_s, self._stood_by, self._is_silent = silent_s, stood_by, False
        self._service = self._manager()
        self._since_s: dict[tuple[str, int], float] = {}
        self._local = [SimulatedClock(self._clocks, i) for i in range(n)]
        self._syncs = [HostSync(HostClock(local, ""), local.now_ns) for local in self._local]
        for sync, name, mine in zip(self._syncs, self._names, peers, strict=True):
            sync.edges.assign([(f"{name}/nic0", f"{self._names[j]}/nic0") for j in mine])

    def run(self) -> FleetResult:
        """All of it, from the first host that has a clock."""
        rows = []
        for now_s, who in self._ticks():
            for local in self._local:
                local.true_ns = now_s * NS_PER_S
            if who < len(self._names):
                self._look(who, now_s)
            elif who == len(self._names):
                self._solve(now_s)
            else:
                rows.append((now_s, *self._read(now_s)))
        time_s, error_ns, bound_ns, *rest = (np.array(column) for column in zip(*rows, strict=True))
        some = ~np.isnan(bound_ns).all(axis=1)
        synced, set_aside, changed_s = (column[some] for column in rest)
        return FleetResult(time_s[some], error_ns[some], bound_ns[some], synced, set_aside, changed_s)

    def _ticks(self) -> Iterator[tuple[float, int]]:
        """Who acts when: a host, the manager (one past the last host), or the reader of all clocks."""
        starts_s = [*self._start_s, self._rng.uniform(0, TICK_S), 0.0]
        intervals_s = [LOOK_S] * len(self._names) + [TICK_S, SAMPLE_S]
        for_each = [
            [(at_s, who) for at_s in np.arange(start_s, self._seconds, interval_s).tolist()]
            for who, (start_s, interval_s) in enumerate(zip(starts_s, intervals_s, strict=True))
        ]
        return iter(sorted(tick for ticks in for_each for tick in ticks))

    def _look(self, host: int, now_s: float) -> None:
        """What an agent does eight times a second; every other time it measures, unless clocks have changed."""
        probes, begin = self._probes[host], int(self._heard[host])
        end = int(np.searchsorted(probes.sent_s, now_s - ANSWERED_AFTER_S)) & ~1
        self._heard[host] = end
        sync, now_ns = self._syncs[host], round(now_s * NS_PER_S)
        if end > begin:
            sync.add(now_ns, weighed(probes, slice(begin, end)))
        self._drop_what_was_off(host, now_s)
        changing = sync.look(now_ns)
        self._looks[host] += 1
        if self._looks[host] % 2 and not changing:
            return
        sync.line.write([])
        report = Report(
            host=self._names[host],
            boot_id="",
            seq=0,
            local_ns=self._local[host].now_ns(),
            fits=fit_rows(sync.fits()),
            counters={},
            clock=sync.line.report(),
            own_change=sync.own_change(now_ns),
        )
        self._service.hear(report, self._names, now_s)

    def _drop_what_was_off(self, host: int, now_s: float) -> None:
        """What an agent does when it finds that the discipline has changed its clock."""
        if not isinstance(self._clocks, Disciplined):
            return
        changes, seen = self._clocks.changes[host], int(self._changes_seen[host])
        while seen < len(changes) and changes[seen][0] <= now_s:
            begin_ns, end_ns = changes[seen][1]
            self._syncs[host].distrust(begin_ns, end_ns)
            seen += 1
        self._changes_seen[host] = seen

    def _manager(self) -> ClockService:
        return ClockService(
            Identity(timeline="simulated", starts=self._managers), continued=self._managers > 1
        )

    def _solve(self, now_s: float) -> None:
        """What the manager does four times a second, and the agents with its updates."""
        if not self._is_led(now_s):
            return
        edges = self._service.begin(now_s)
        solved = None if edges is None else self._service.solve_edges(edges)
        if edges is None or solved is None:
            return
        self._service.finish(edges, solved, now_s)
        for update in self._service.updates():
            host = self._names.index(update.host)
            self._syncs[host].follow(update)
            self._syncs[host].line.write([])

    def _is_led(self, now_s: float) -> bool:
        """Whether a manager leads; where one has just gone, or come, the next is put in its place."""
        if not self._takeovers_s or now_s < self._takeovers_s[0] - self._silent_s:
            return True
        comes = now_s >= self._takeovers_s[0]
        if not self._is_silent or (comes and not self._stood_by):
            self._managers += 1
            self._service = self._manager()
        self._is_silent = not comes
        if comes:
            self._takeovers_s.popleft()
        return comes

    def _read(self, now_s: float) -> tuple[Floats, Floats, Bools, Bools, Floats]:
        """Of every published clock the distance from their median and the bound, NaN where there is none; the states.

        Last, since when clocks that are being found anew have gone otherwise.
        """
        n = len(self._names)
        whole, rest = self._clocks.local(np.arange(n), np.full(n, now_s * NS_PER_S))
        local_ns, rest = whole + np.rint(rest).astype(np.int64), rest - np.rint(rest)
        shown, bound, changed_s = (np.full(n, np.nan) for _ in range(3))
        for i, clock in enumerate(sync.line for sync in self._syncs):
            if clock.published is None:
                continue
            here_ns = int(local_ns[i])
            line = clock.published.at(here_ns)
            shown[i] = here_ns - int(local_ns[0]) + line.offset_ns + line.offset_frac_ns + rest[i]
            age_ns = abs(here_ns - clock.published.line.ref_local_ns)
            bound[i] = clock.published.bound_ns + clock.published.bound_drift * age_ns
        states = [sync.line.state for sync in self._syncs]
        synced, set_aside = (
            np.array([each == state for each in states]) for state in ("synced", "set_aside")
        )
        if not np.isnan(shown).all():
            middle = float(np.nanmedian(shown))
            shown -= middle
            for change in self._service.changed().items():
                ago_ns = int(local_ns[0]) - change[1] + middle
                since_s = self._since_s.setdefault(change, now_s - ago_ns / NS_PER_S)
                changed_s[self._names.index(change[0])] = since_s
        return shown, bound, synced, set_aside, changed_s


def weighed(probes: Probes, rows: slice) -> Samples:
    """With the purity of pairs, as an agent weighs what it drained."""
    stamps_ns = probes.stamps_ns[:, rows]
    spacing_ns = stamps_ns[:, 1::2] - stamps_ns[:, ::2]
    out, back = (pair_purity(spacing_ns[tx], spacing_ns[rx]).weight for tx, rx in ((0, 1), (2, 3)))
    return Samples(probes.edge[rows], stamps_ns, np.repeat(out, 2), np.repeat(back, 2))
