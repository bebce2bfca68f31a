"""Every host's clock over time, on one timeline.

A two-state Kalman filter per host, offset and drift, fed by graph solutions. The graph leaves one
constant open; it is chosen so that hosts that go on are, in the mean, where they were predicted, so
the timeline is an ensemble timescale that hosts may join and leave without moving it.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, U8, WANDER, Bool, split_ns
from cwdp.shared.clocksync.edge.floors import QUEUED_SIGMAS
from cwdp.shared.clocksync.graph.pairs import PairFloors
from cwdp.shared.clocksync.graph.solve import GraphEdges, OwnFits, Prediction, Solution, solve_graph
from cwdp.shared.clocksync.timeline.changes import Changes
from cwdp.shared.clocksync.timeline.hostfilter import HostFilter
from cwdp.shared.clocksync.timeline.hostlines import HostLines
from cwdp.shared.clocksync.timeline.pastchanges import PastChanges

BOUND_SIGMAS = 5.0
_DRIFT_AT_START = 100e-6
_LEAST_BOUND_NS = 1.0
_STEP_SIGMAS = 8.0
_ROUNDS_TO_READMIT = 3
_WINDOW_S = 2.0
_LEARNING_SURCHARGE, _SURE_DRIFT_SIGMA = 1.25, 10e-9
_LEAD_S = 1.3
"""From the middle of the window to when a line is gone by."""

_SETTLED_DRIFT_SIGMA = 20e-9


class HostState(IntEnum):
    """What a host's clock is worth."""

    UNSYNCED = 0  # never tied to the main component
    SYNCED = 1
    HOLDOVER = 2  # was synced, has no usable edge now, or is measured a little elsewhere; its bound is wider
    SET_ASIDE = 3  # lies, or its clock stepped far


@dataclass(frozen=True, slots=True)
class HostClocks:
    """Per host: global = local + g at its reference, and d(global)/d(local) - 1.

    Attributes:
        instant_ns: global time of the solution; hosts whose clocks have just changed have later references.
        ref_local_ns: int64 [hosts], each host's local time at its reference.
        offset_ns, offset_frac_ns: int64 and float64 [hosts], their sum is global - local.
        drift: float64 [hosts], d(global - local) / d(local).
        bound_ns: float64 [hosts], holds with 99.9 % up to the reference; inf where nothing is known.
        bound_growth: float64 [hosts], ns of bound per second out of touch.
        allowance_ns: float64 [hosts], what of the bound is for changes not seen yet, by how the clock has wandered of
            late; 0 for what any clock wanders.
        settled: bool [hosts], the drift is followed by offsets alone; no fitted slope is drawn upon any more.
        changed_ns: int64 [hosts], global time since when a clock that has changed goes otherwise; LONG_AGO for others.
        changing: bool [hosts], that was so lately that the clock is found anew each time.
        state: uint8 [hosts], a `HostState`.
    """

    instant_ns: int
    ref_local_ns: I64
    offset_ns: I64
    offset_frac_ns: F64
    drift: F64
    bound_ns: F64
    bound_growth: F64
    allowance_ns: F64
    settled: Bool
    changed_ns: I64
    changing: Bool
    state: U8


class Tracks:
    """The clocks of `n_hosts` slots. The owner maps hosts to slots and clears a slot before reuse.

    Args:
        n_hosts: how many slots.
        window_s: span of the edge fits; solutions closer than that share data.
    """

    def __init__(self, n_hosts: int, window_s: float = _WINDOW_S) -> None:
        self._window_s = window_s
        self._instant_ns: int | None = None
        self._floors = PairFloors()
        self._filter = HostFilter(n_hosts)
        self._locked, self._known_drift = np.zeros(n_hosts, bool), np.zeros(n_hosts, bool)
        self._suspect_rounds, self._believed_rounds = np.zeros((2, n_hosts), np.int64)
        self._astray_ns = np.zeros(n_hosts)
        self._state = np.zeros(n_hosts, np.uint8)
        self._changes = Changes(n_hosts)
        self._past_changes = PastChanges(n_hosts)

    @property
    def n_hosts(self) -> int:
        """How many slots there are."""
        return len(self._locked)

    def resize(self, n_hosts: int) -> None:
        """Add empty slots at the end, or drop the last ones."""
        fresh = Tracks(n_hosts)
        kept = min(n_hosts, self.n_hosts)
        for name, array in vars(fresh).items():
            if isinstance(array, np.ndarray):
                array[:kept] = getattr(self, name)[:kept]
                setattr(self, name, array)
        self._filter = self._filter.resized(n_hosts)
        self._past_changes = self._past_changes.resized(n_hosts)
        self._changes.resize(n_hosts)

    def clear(self, slots: I64) -> None:
        """Forget the hosts of some slots."""
        self._locked[slots] = self._known_drift[slots] = False
        self._suspect_rounds[slots] = self._believed_rounds[slots] = 0
        self._astray_ns[slots] = 0.0
        self._state[slots] = HostState.UNSYNCED
        self._filter.wander[slots] = WANDER
        self._changes.clear(slots)
        self._past_changes.clear(slots)

    def expect_steps(self, slots: I64) -> None:
        """Of the next solutions that reach these hosts, believe at once where they find their clocks.

        Nobody has looked after the clock of a host whose agent was away.
        """
        self._believed_rounds[slots] = _ROUNDS_TO_READMIT

    def step(self, edges: GraphEdges, own: OwnFits | None = None) -> Solution | None:
        """Solve the graph for the newest fits and move every clock on to their common instant.

        Args:
            edges: the newest fit of each directed edge; drop those older than a few seconds first.
            own: what hosts whose clocks have changed say of themselves; None for nothing.

        Returns:
            The solution, on the timeline, or None where no fit is valid (nothing moves then).
        """
        instant = self._instant_of(edges)
        changes, tracks = self._changes, self._lines()
        self._go_on(changes.note(edges, tracks, self._locked))
        tracks = self._lines()
        changes.begin(edges, tracks)
        steady = ~changes.touches(edges) & ~changes.rests_on_before(edges, tracks)
        solution = self._step_steady(edges.where(steady), instant)
        if changes.now.any():
            changes.place(
                edges,
                own or OwnFits.nothing(),
                self._lines(),
                self._locked,
                wander=self._filter.wander,
                floors=self._floors,
            )
            out_of_touch = np.where(changes.found, HostState.SYNCED, HostState.HOLDOVER)
            self._state = np.where(changes.now, out_of_touch, self._state).astype(np.uint8)
        return self._whole(solution, steady)

    def _lines(self) -> HostLines:
        return self._filter.lines(0 if self._instant_ns is None else self._instant_ns)

    def _present(self, instant_ns: int) -> HostLines:
        """All lines at a time of the timeline, those of clocks that have changed as they were found since."""
        lines = self._lines().at(instant_ns, self._filter.wander)
        return self._changes.lines.at(instant_ns, self._filter.wander).where(self._changes.now, lines)

    def _go_on(self, settled: Bool) -> None:
        """Have hosts whose clocks had changed go on as all others, from where they were found."""
        if settled.any() and self._instant_ns is not None:
            lines = self._changes.lines.at(self._instant_ns, self._filter.wander)
            self._past_changes.note(settled, lines.drift_ns - self._filter.drift_ns, self._instant_ns)
            self._known_drift[settled] = False
            self._filter.take(settled, lines)

    def _whole(self, solution: Solution | None, steady: Bool) -> Solution | None:
        """The solution with all edges, those left out of it neither rejected nor measured."""
        if solution is None:
            if not self._changes.found.any() or self._instant_ns is None:
                return None
            solution = Solution.nothing(self._instant_ns, self._filter.g_ns, int(steady.sum()))
        rejected, residual = np.zeros(len(steady), bool), np.full(len(steady), np.nan)
        rejected[steady], residual[steady] = solution.rejected, solution.residual_ns
        return replace(solution, rejected=rejected, residual_ns=residual)

    def _step_steady(self, edges: GraphEdges, instant: int | None) -> Solution | None:
        """Those whose clocks go on as before. The timeline is not begun anew while some wait for being found again."""
        prediction = self._predict(instant)
        carried = self._locked & ~self._changes.now
        if self._changes.now.any() and not carried[edges.src[edges.fits.valid]].any():
            if instant is not None:
                self._advance(instant)
            return None
        unsettled = self._unsettled() & ~self._changes.now
        touched = np.zeros(self.n_hosts, bool)
        touched[edges.src] = touched[edges.dst] = True
        solution = solve_graph(
            edges,
            prediction,
            wander=self._filter.wander,
            with_drift=bool((unsettled & touched).any()),
            floors=self._floors,
        )
        if solution is None:
            return None
        self._advance(solution.instant_ns)
        return self._absorb(solution, unsettled)

    def clocks(self) -> HostClocks | None:
        """All clocks at the last solution's instant; None before the first."""
        if self._instant_ns is None:
            return None
        ahead = self._filter.lines(self._instant_ns, _LEAD_S)
        lines = self._changes.lines.where(self._changes.now, ahead)
        drift = lines.drift_ns / NS_PER_S
        growth = np.sqrt(np.where(self._locked, lines.var_drift, np.inf))
        sigma = np.sqrt(np.where(self._locked, lines.var, np.inf))
        # Errors of a drift that is poorly known are not independent of the offset's.
        learning = _LEARNING_SURCHARGE * (np.sqrt(self._filter.var) + growth * _LEAD_S)
        poorly_known = self._unsettled() | (growth > _SURE_DRIFT_SIGMA * NS_PER_S)
        sigma = np.where(poorly_known, learning, sigma)
        sigma = np.where(self._changes.now, np.sqrt(lines.var), sigma)
        expected_ns = self._past_changes.expected_ns(self._instant_ns)
        return HostClocks(
            instant_ns=self._instant_ns,
            ref_local_ns=lines.ref_ns - lines.g_ns,
            offset_ns=lines.g_ns.copy(),
            offset_frac_ns=lines.frac_ns + 0.0,
            drift=drift / (1 - drift),
            bound_ns=np.hypot(BOUND_SIGMAS * sigma, expected_ns) + self._astray_ns + _LEAST_BOUND_NS,
            bound_growth=BOUND_SIGMAS * growth,
            allowance_ns=np.hypot(BOUND_SIGMAS * self._filter.wanders_ns(_LEAD_S), expected_ns),
            settled=~self._unsettled() & ~self._changes.now,
            changed_ns=self._changes.since_ns.copy(),
            changing=self._changes.now.copy(),
            state=self._state.copy(),
        )

    def _unsettled(self) -> Bool:
        """Whose drift is still learnt from slopes; once it is known, offsets alone tell it, however much it wanders."""
        self._known_drift |= self._filter.var_drift <= (_SETTLED_DRIFT_SIGMA * NS_PER_S) ** 2
        return ~self._locked | (self._suspect_rounds > 0) | ~self._known_drift

    def _instant_of(self, edges: GraphEdges) -> int | None:
        """Median global time of the fits' references, by the hosts that are known; never backwards."""
        if self._instant_ns is None:
            return None
        rows = np.flatnonzero(edges.fits.valid & self._locked[edges.src])
        if rows.size == 0:
            return None if not self._locked.any() else self._instant_ns
        globals_ns = edges.fits.ref_ns[rows] + self._filter.g_ns[edges.src[rows]]
        return max(self._instant_ns, int(np.partition(globals_ns, rows.size // 2)[rows.size // 2]))

    def _predict(self, instant: int | None) -> Prediction:
        if instant is None or self._instant_ns is None:
            return Prediction.nothing(self.n_hosts)
        whole, _, drift_ns, _ = self._filter.after((instant - self._instant_ns) / NS_PER_S)
        sigma_drift = np.where(self._locked, np.sqrt(self._filter.var_drift), np.inf)
        return Prediction(instant, whole, self._locked, drift_ns / NS_PER_S, sigma_drift / NS_PER_S)

    def _advance(self, instant: int) -> None:
        """Predict every clock to the instant."""
        dt = (instant - self._instant_ns) / NS_PER_S if self._instant_ns is not None else 0.0
        self._instant_ns = instant
        self._filter.advance(dt)
        self._overlap = max(1.0, self._window_s / dt) if dt > 0 else self._window_s * NS_PER_S

    def _absorb(self, solution: Solution, unsettled: Bool) -> Solution:
        usable = solution.reached & np.isfinite(solution.sigma_ns)
        going_on = self._carriers(solution, usable)
        ahead = (solution.g_ns - self._filter.g_ns) + (solution.g_frac_ns - self._filter.frac_ns)
        first = not going_on.any()
        if first and self._changes.now.any():
            # Those that have changed carry the timeline on: it is not begun anew without them.
            return solution
        if first:
            # A moment keeps its place on every local clock, so its global name moves along with g.
            middle = _middle(solution, usable)
            self._instant_ns = solution.instant_ns - middle
            whole, frac = solution.g_ns - middle, solution.g_frac_ns
        else:
            lead = _mean_lead(solution, ahead, going_on, self._filter.var)
            whole, frac = split_ns(solution.g_ns, solution.g_frac_ns - lead)
        innovation = (whole - self._filter.g_ns) + (frac - self._filter.frac_ns)
        stepped = self._stepped(solution, usable, innovation)
        believed = (self._suspect_rounds >= _ROUNDS_TO_READMIT) | (self._believed_rounds > 0)
        begin = usable & (~self._locked | (stepped & believed))
        go_on = usable & self._locked & ~stepped
        unexplained = np.maximum(np.abs(innovation) - solution.queued_ns, 0.0)
        self._filter.learn_wander(go_on & ~unsettled, unexplained, solution.sigma_ns**2)
        lasting_ns = solution.queued_ns / QUEUED_SIGMAS
        self._filter.update(go_on, innovation, solution.sigma_ns**2 * self._overlap, lasting_ns)
        self._learn_drift(go_on & unsettled, solution)
        self._begin(begin, whole, frac, solution, first=first)
        self._suspect_rounds = np.where(stepped & ~begin, self._suspect_rounds + 1, 0)
        self._believed_rounds -= usable & (self._believed_rounds > 0)
        suspect = stepped & ~begin
        self._astray_ns = np.where(suspect, np.abs(innovation), 0.0)
        self._set_states(solution, usable, suspect)
        return solution

    def _carriers(self, solution: Solution, usable: Bool) -> Bool:
        """Whose predictions the timeline goes on by: suspects' too, where there is nobody else."""
        there = usable & self._locked & ~solution.restarted
        unsuspected = there & (self._suspect_rounds == 0)
        return unsuspected if unsuspected.any() else there

    def _stepped(self, solution: Solution, usable: Bool, innovation: F64) -> Bool:
        allowed = _STEP_SIGMAS**2 * (self._filter.var + solution.sigma_ns**2)
        return usable & self._locked & (innovation**2 > allowed)

    def _learn_drift(self, rows: Bool, solution: Solution) -> None:
        """While drift is poorly known, take it from the fitted slopes where those know it better."""
        if solution.drift is None or solution.sigma_drift is None:
            return
        common = self._drift_gauge(solution)
        variance = (solution.sigma_drift * NS_PER_S) ** 2
        better = rows & (variance < self._filter.var_drift / 2)
        self._filter.put_drift(better, solution.drift * NS_PER_S + common, variance)

    def _drift_gauge(self, solution: Solution) -> float:
        """What to add to solved drifts, ns/s, so that the timeline keeps its rate.

        The hosts that are followed already carry it, the settled ones where there are any; on a new
        timeline the median host's rate is right.
        """
        assert solution.drift is not None
        assert solution.sigma_drift is not None
        solved, reached = solution.drift * NS_PER_S, solution.reached & np.isfinite(solution.sigma_drift)
        followed = reached & self._locked & (self._filter.var_drift < (_DRIFT_AT_START * NS_PER_S) ** 2)
        settled = followed & (self._filter.var_drift < (_SETTLED_DRIFT_SIGMA * NS_PER_S) ** 2)
        if followed.any():
            carriers = settled if settled.any() else followed
            return float(np.median((self._filter.drift_ns - solved)[carriers]))
        return -float(np.median(solved[reached])) if reached.any() else 0.0

    def _begin(self, rows: Bool, whole: I64, frac: F64, solution: Solution, *, first: bool) -> None:
        if not rows.any():
            return
        n = self.n_hosts
        self._known_drift[rows] = False
        # All that a host sends may wait in one queue: its edges do not err each for itself.
        self._filter.put(
            rows, whole, frac, np.hypot(solution.sigma_ns, solution.queued_ns / QUEUED_SIGMAS) ** 2
        )
        self._filter.put_drift(rows, np.zeros(n), np.full(n, (_DRIFT_AT_START * NS_PER_S) ** 2))
        if first:
            self._locked[:] = False
        self._learn_drift(rows, solution)
        self._locked[rows] = True

    def _set_states(self, solution: Solution, usable: Bool, suspect: Bool) -> None:
        """A suspect that is not far off goes on by what was known, with a bound that holds both places."""
        out_of_touch = np.where(self._locked, HostState.HOLDOVER, HostState.UNSYNCED)
        state = np.where(usable & self._locked & ~suspect, HostState.SYNCED, out_of_touch)
        aside = solution.liar | (suspect & solution.restarted)
        self._state = np.where(aside, HostState.SET_ASIDE, state).astype(np.uint8)


def _middle(solution: Solution, usable: Bool) -> int:
    """What the first timeline takes off: the median host's clock is right."""
    g_ns = solution.g_ns[usable]
    return int(np.partition(g_ns, g_ns.size // 2)[g_ns.size // 2]) if g_ns.size else 0


def _mean_lead(solution: Solution, ahead: F64, going_on: Bool, var: F64) -> float:
    """By how much hosts that go on are ahead of their predictions in the mean, outliers left out.

    One that is known far worse than the median host counts for less.
    """
    lead = ahead[going_on]
    median = float(np.median(lead))
    sigma = np.sqrt(var + solution.sigma_ns**2)[going_on]
    scale = max(1.0, float(np.median(np.abs(lead - median) / sigma)) * 1.4826)
    believed = np.abs(lead - median) <= _STEP_SIGMAS * scale * sigma
    variance = np.square(sigma[believed])
    return float(np.average(lead[believed], weights=1 / (np.median(variance) + variance)))
