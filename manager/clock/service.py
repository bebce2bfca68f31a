"""The clock service: fits come in, the graph is solved a few times a second, a line per host goes out.

Only `solve_edges` is heavy and touches nothing but the tracks, so a thread may run it.
"""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.clocks import ChangedClock, Discipline, short_id
from cwdp.shared.bus.messages import (
    ClockLine,
    ClockState,
    ClockUpdate,
    DriftPrior,
    Leader,
    Report,
    host_of,
)
from cwdp.shared.clocksync.graph.solve import GraphEdges, OwnFits, Solution
from cwdp.shared.clocksync.ranks import value_at_rank
from cwdp.shared.clocksync.timeline.track import BOUND_SIGMAS, HostClocks, HostState
from manager.clock.fits import FitTable
from manager.clock.timeline import NS_PER_S, ContinuedTracks, Identity, is_running
from manager.clock.unfollowed import Unfollowed

START_AFTER_S = 1.0
START_LATEST_S = 6.0
PRIORS_EVERY = 4

STATES: dict[int, ClockState] = {
    HostState.UNSYNCED: "unsynced",
    HostState.SYNCED: "synced",
    HostState.HOLDOVER: "holdover",
    HostState.SET_ASIDE: "set_aside",
}
assert set(STATES.values()) == set(get_args(ClockState))

_log = logging.getLogger("cwdp.manager.clock")


@dataclass(frozen=True, kw_only=True)
class HostClock:
    """One host's clock for people: `offset_ns` is timeline minus local when local shows `ref_local_ns`."""

    host: str
    state: ClockState
    ref_local_ns: int
    offset_ns: int
    drift_ppb: float
    bound_ns: float | None
    edges_used: int
    edges_rejected: int
    residual_p99_ns: float | None
    age_s: float | None


@dataclass(frozen=True, kw_only=True)
class _Solved:
    edges: GraphEdges
    solution: Solution
    clocks: HostClocks
    now_s: float


class ClockService:
    """All clocks. Times ending in `now_s` are seconds of the manager's monotonic clock.

    The clocks start when whoever is measured has measured too: hosts find the bus one by one, and a pair seen
    from one end only is off by what its stamping points differ by. A manager that has `continued` an earlier
    one's work also waits for hosts that carry its timeline on.

    Attributes:
        leader: who leads, for what is told to hosts.
        unfollowed: hosts whose clocks nobody followed for a while.
        allowance_ns: what bounds hold, in the median, for changes not seen yet, by what clocks did of late; 0 for nothing.
    """

    def __init__(self, identity: Identity, *, continued: bool) -> None:
        self.timeline = identity.timeline
        self.fits = FitTable()
        self.unfollowed = Unfollowed()
        self.changes: list[tuple[str, ClockState]] = []
        self.allowance_ns = 0.0
        self.leader = Leader()
        self._seq = identity.first_seq
        self._tracks = ContinuedTracks(0)
        self._continued = continued
        self._seeds: dict[str, tuple[int, ClockLine]] = {}
        self._measured: set[str] = set()
        self._measuring: set[str] = set()
        self._new_agents: set[str] = set()
        self._agents: dict[str, str] = {}
        self._fresh: dict[str, str] = {}
        self._words: dict[str, tuple[int, ClockLine]] = {}
        self._first_report_s: float | None = None
        self._running = False
        self._begun_s = -math.inf
        self._is_urgent = False
        self._own = OwnFits.nothing()
        self._solved: _Solved | None = None
        self._states: dict[str, ClockState] = {}
        self._synced_s: dict[str, float] = {}

    def hear(
        self, report: Report, known: Collection[str], now_s: float, elsewhere: Collection[str] = ()
    ) -> None:
        """Take in a report's fits, but for those to hosts elsewhere, and the line that its host follows now."""
        if self._first_report_s is None:
            self._first_report_s = now_s
        if not self._running:
            self._prepare(report, elsewhere)
        if self.unfollowed.hear(report):
            self._new_agents.add(report.host)
        if report.discipline is not None and self._agents.get(report.host) != report.boot_id:
            self._hear_word(report, report.discipline)
        says_changed = self.fits.add(report.host, report.fits, known, now_s, elsewhere)
        self.fits.hear_own(report.host, report.own_change)
        self._is_urgent |= says_changed or report.own_change is not None

    def is_due(self, now_s: float, interval_s: float) -> bool:
        """Whether to solve: so long after the last time, or at once where a clock is said to have changed.

        A large fleet's fits come in so seldom that most of them would be solved again and again.
        """
        return self._is_urgent or not self._running or now_s - self._begun_s >= interval_s

    def begin(self, now_s: float) -> GraphEdges | None:
        """The edges to solve now, with a slot for each of their hosts; None while there is nothing to do."""
        self._begun_s, self._is_urgent = now_s, False
        edges = self.fits.edges(now_s)
        if len(edges.src) == 0:
            self._lapse()
            return None
        if not (self._running or self._may_start(now_s)):
            return None
        if not self._running:
            self._start()
        if self._tracks.n_hosts < self.fits.slot_count:
            self._tracks.resize(self.fits.slot_count)
        new = [self.fits.slots[host] for host in self._new_agents if host in self.fits.slots]
        self._tracks.expect_steps(np.array(new, np.int64))
        self._new_agents.clear()
        self._tracks.take_word(
            {self.fits.slots[host]: word for host, word in self._words.items() if host in self.fits.slots}
        )
        self._words.clear()
        self._agents |= self._fresh
        self._fresh.clear()
        self._own = self.fits.own()
        return edges

    def solve_edges(self, edges: GraphEdges) -> tuple[Solution, HostClocks] | None:
        """Solve and move the tracks on; None when no fit was of use."""
        solution = self._tracks.step(edges, self._own)
        clocks = self._tracks.clocks()
        return None if solution is None or clocks is None else (solution, clocks)

    def finish(self, edges: GraphEdges, solved: tuple[Solution, HostClocks], now_s: float) -> None:
        """Take over a solution, and note whose state changed (in `changes`)."""
        solution, clocks = solved
        self._solved = _Solved(edges=edges, solution=solution, clocks=clocks, now_s=now_s)
        self.allowance_ns = float(np.median(clocks.allowance_ns)) if len(clocks.allowance_ns) else 0.0
        self._seq += 1
        for host, slot in self.fits.slots.items():
            state = self._state(slot)
            if state == "synced":
                self._synced_s[host] = now_s
            self._set_state(host, state)

    def updates(self) -> Iterator[ClockUpdate]:
        """What to tell each host of the last solution; drift priors go along now and then.

        Each is made when it is asked for; hosts may come meanwhile, but none may be forgotten.
        """
        probed = self._probed() if self._seq % PRIORS_EVERY == 0 else {}
        changes = self._changes()
        for host, slot in list(self.fits.slots.items()):
            line = self._line(slot)
            if line is not None:
                yield ClockUpdate(
                    host=host,
                    timeline=self.timeline,
                    epoch=self.leader.epoch,
                    led_since_s=self.leader.since_s,
                    seq=self._seq,
                    line=line,
                    priors=self._priors(host, probed.get(host, [])),
                    changes=changes.get(host, []),
                    agent=short_id(self._agents.get(host, "")),
                )

    def forget(self, host: str) -> None:
        """Drop a host that is gone for good, or whose clock began anew."""
        slot = self.fits.forget_host(host)
        if slot is not None and slot < self._tracks.n_hosts:
            self._tracks.clear(np.array([slot]))
        self._seeds.pop(host, None)
        self.unfollowed.forget(host)
        self._new_agents.discard(host)
        self._agents.pop(host, None)
        self._fresh.pop(host, None)
        self._words.pop(host, None)
        self._states.pop(host, None)
        self._synced_s.pop(host, None)
        self._solved = None

    def view(self, now_s: float) -> list[HostClock]:
        """Every host that has probed or been probed, in order of name; before the first solution as hosts report."""
        solved = self._solved
        if solved is None:
            return [_as_reported(host, line) for host, (_, line) in sorted(self._seeds.items())]
        n = len(solved.clocks.state)
        ends = np.concatenate([solved.edges.src, solved.edges.dst])
        rejected = np.tile(solved.solution.rejected, 2)
        used = np.tile(solved.edges.fits.valid, 2) & ~rejected
        used_count = np.bincount(ends[used], minlength=n)
        rejected_count = np.bincount(ends[rejected], minlength=n)
        residual = _p99_by_group(ends[used], np.tile(np.abs(solved.solution.residual_ns), 2)[used], n)
        clocks = solved.clocks
        bound_ns = clocks.bound_ns + clocks.bound_growth * (now_s - solved.now_s)
        return [
            HostClock(
                host=host,
                state=self.state_of(host),
                ref_local_ns=int(clocks.ref_local_ns[slot]),
                offset_ns=int(clocks.offset_ns[slot]) + round(float(clocks.offset_frac_ns[slot])),
                drift_ppb=round(float(clocks.drift[slot]) * 1e9, 3),
                bound_ns=_finite(bound_ns[slot]),
                edges_used=int(used_count[slot]),
                edges_rejected=int(rejected_count[slot]),
                residual_p99_ns=_finite(residual[slot]),
                age_s=round(now_s - self._synced_s[host], 3) if host in self._synced_s else None,
            )
            for host, slot in sorted(self.fits.slots.items())
            if slot < n
        ]

    def bounds_ns(self, now_s: float) -> NDArray[np.float64]:
        """The bounds of all clocks that have one, in no order."""
        if self._solved is None:
            return np.empty(0)
        clocks = self._solved.clocks
        bounds = clocks.bound_ns + clocks.bound_growth * (now_s - self._solved.now_s)
        return bounds[np.isfinite(bounds)]

    @property
    def runs(self) -> bool:
        """Whether it has begun to solve."""
        return self._running

    @property
    def clocks(self) -> HostClocks | None:
        """The last solution, by slot; None while there is none."""
        return None if self._solved is None else self._solved.clocks

    def state_of(self, host: str) -> ClockState:
        """What a host's clock is worth."""
        return self._states.get(host, "unsynced")

    def states(self) -> Counter[str]:
        """How many hosts are in each state."""
        counts = Counter[str](dict.fromkeys(STATES.values(), 0))
        counts.update(self._states.values())
        return counts

    def changed(self) -> dict[str, int]:
        """Since when clocks that are being found anew have gone otherwise, in ns of the timeline, by host."""
        if self._solved is None or not self._solved.clocks.changing.any():
            return {}
        clocks = self._solved.clocks
        return {
            host: int(clocks.changed_ns[slot])
            for host, slot in self.fits.slots.items()
            if slot < len(clocks.changing) and clocks.changing[slot]
        }

    def edge_counts(self) -> tuple[int, int]:
        """Fits of the last solution: used and rejected."""
        if self._solved is None:
            return 0, 0
        rejected = int(self._solved.solution.rejected.sum())
        return int(self._solved.edges.fits.valid.sum()) - rejected, rejected

    def _hear_word(self, report: Report, discipline: Discipline) -> None:
        """A new agent says of its host's clock whether it goes on as the one before had it."""
        self._fresh[report.host] = report.boot_id
        if discipline.kept and report.clock is not None and is_running(report.local_ns, report.clock):
            self._words[report.host] = report.local_ns, report.clock

    def _prepare(self, report: Report, elsewhere: Collection[str]) -> None:
        """Note what a host can carry on, and whom to wait for."""
        if report.fits.rows:
            self._measuring.add(report.host)
        self._measured.update({host_of(dst) for dst in report.fits.dsts}.difference(elsewhere))
        if report.clock is not None and is_running(report.local_ns, report.clock):
            self._seeds[report.host] = (report.local_ns, report.clock)

    def _may_start(self, now_s: float) -> bool:
        """Whether all was waited for that the first solution should rest on."""
        if self._first_report_s is None:
            return False
        complete = self._measured <= self._measuring and (self._seeds or not self._continued)
        wait_s = START_AFTER_S if complete else START_LATEST_S
        return now_s - self._first_report_s >= wait_s

    def _set_state(self, host: str, state: ClockState) -> None:
        if self.state_of(host) != state:
            self.changes.append((host, state))
            if state == "set_aside":
                self.unfollowed.set_aside(host)
        self._states[host] = state

    def _lapse(self) -> None:
        """No fit is fresh: whoever was synced goes on by what was known."""
        for host, state in list(self._states.items()):
            if state == "synced":
                self._set_state(host, "holdover")

    def _start(self) -> None:
        self._running = True
        seeds = {self.fits.slot(host): seed for host, seed in self._seeds.items()}
        self._tracks.resize(self.fits.slot_count)
        if seeds:
            self._tracks.adopt(seeds)
        _log.info("clocks start timeline=%s taken_up_from=%d", self.timeline, len(seeds))
        for done_with in (self._seeds, self._measured, self._measuring):
            done_with.clear()

    def _state(self, slot: int) -> ClockState:
        if self._solved is None or slot >= len(self._solved.clocks.state):
            return "unsynced"
        return STATES[int(self._solved.clocks.state[slot])]

    def _line(self, slot: int) -> ClockLine | None:
        if self._solved is None or slot >= len(self._solved.clocks.state):
            return None
        clocks = self._solved.clocks
        bound_ns, bound_drift = float(clocks.bound_ns[slot]), float(clocks.bound_growth[slot]) / NS_PER_S
        if not (math.isfinite(bound_ns) and math.isfinite(bound_drift)):
            return None
        return ClockLine(
            ref_local_ns=int(clocks.ref_local_ns[slot]),
            offset_base_ns=int(clocks.offset_ns[slot]),
            offset_ns=float(clocks.offset_frac_ns[slot]),
            drift=float(clocks.drift[slot]),
            bound_ns=bound_ns,
            bound_drift=bound_drift,
            state=self._state(slot),
            found_anew=bool(clocks.changing[slot]),
        )

    def line_of(self, host: str) -> ClockLine | None:
        """How a host's clock leads to the timeline; None where that is not known."""
        slot = self.fits.slots.get(host)
        known = slot is not None and self.state_of(host) in ("synced", "holdover")
        return self._line(slot) if slot is not None and known else None

    def _changes(self) -> dict[str, list[ChangedClock]]:
        """Whose clocks are being found anew, by the hosts that have measured with them: themselves and their peers."""
        since_ns = self.changed()
        if self._solved is None or not since_ns:
            return {}
        told = defaultdict[str, dict[str, ChangedClock]](dict)
        for pair in self.fits.peers(self._solved.now_s):
            ends = host_of(pair[0]), host_of(pair[1])
            for host in ends:
                if host in since_ns:
                    changed = ChangedClock(host=host, since_ns=since_ns[host])
                    for end in ends:
                        told[end][host] = changed
        return {host: list(changed.values()) for host, changed in told.items()}

    def _probed(self) -> dict[str, list[str]]:
        """The NICs that each host probes."""
        probed = defaultdict[str, list[str]](list)
        for src, dst in self.fits.peers(self._solved.now_s) if self._solved is not None else ():
            probed[host_of(src)].append(dst)
        return probed

    def _priors(self, host: str, probed: Iterable[str]) -> list[DriftPrior]:
        """The rate of each probed NIC's clock against its prober's; of settled clocks only.

        A slope fitted with such a prior says again what the prior said, so no clock whose drift is still learnt from
        slopes may be told of: it would take its own word for news, and its error for ever smaller.
        """
        if self._solved is None:
            return []
        clocks, priors, a = self._solved.clocks, [], self.fits.slots[host]
        for dst in probed:
            b = self.fits.slots[host_of(dst)]
            if max(a, b) < len(clocks.settled) and clocks.settled[a] and clocks.settled[b]:
                slope = (1 + clocks.drift[a]) / (1 + clocks.drift[b]) - 1
                spread = math.hypot(clocks.bound_growth[a], clocks.bound_growth[b]) / BOUND_SIGMAS / NS_PER_S
                priors.append(DriftPrior(dst=dst, slope=float(slope), sigma=spread))
        return priors


def _as_reported(host: str, line: ClockLine) -> HostClock:
    return HostClock(
        host=host,
        state=line.state,
        ref_local_ns=line.ref_local_ns,
        offset_ns=line.offset_base_ns + round(line.offset_ns),
        drift_ppb=round(line.drift * 1e9, 3),
        bound_ns=_finite(line.bound_ns),
        edges_used=0,
        edges_rejected=0,
        residual_p99_ns=None,
        age_s=None,
    )


def _p99_by_group(group: NDArray[np.int64], values: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    """The value at rank ceil(0.99 count) of each group, NaN for one without values: float64 [groups]."""
    count = np.bincount(group, minlength=groups)
    rank = np.ceil(0.99 * count).astype(np.int64) - 1
    result = np.full(groups, np.nan)
    result[count > 0] = value_at_rank(group, values, count, rank)
    return result


def _finite(value: float) -> float | None:
    return round(float(value), 1) if math.isfinite(value) else None
