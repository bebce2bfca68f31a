"""The edges of a host: their slots, their window, their memory, and the fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.clock.window import Samples, Window
from cwdp.shared.bus.clocks import OwnChange
from cwdp.shared.bus.edges import EdgeFit
from cwdp.shared.bus.messages import DriftPrior, host_of
from cwdp.shared.clocksync import (
    BEFORE_FLOOR_NS,
    LONG_AGO,
    NOTICED_WITHIN_NS,
    EdgeFits,
    EdgeMemory,
    EdgePrior,
    FitReason,
    Lines,
    against_before,
    any_early,
    find_bent,
    fit_edges,
    young_lines,
)

EdgeName = tuple[str, str]
LEAST_SLOTS = 64
LOOK_NS = 1_000_000_000
YOUNG_NS = 3_000_000_000
"""For so long after a clock has changed a fit rests on what came since, and nothing that was known of the rate."""

OWN_NS = 1_500_000_000
"""For so long a change of the own clock is told of as a whole: later each edge for itself knows more."""

LEAST_YOUNG_NS = 200_000_000
SAME_NS = 300_000_000
"""An edge that was cut so short a time before the others was cut for the same change."""

BELIEVED_NS = 2_000_000_000
"""For so long the manager's word of the peers' rates is worth what it claims; nobody follows them once it is silent."""

TOLD_NS = 12_000_000_000
"""For so long the manager is told since when the clocks have been as they are: windows remember 8 s."""


@dataclass(frozen=True)
class LeftLine:
    """This host's own clock has changed: it leaves the line that it was on.

    Attributes:
        since_ns: when that began to show, on its clock.
        rate: how fast it leaves its line at least, dimensionless, above 0.
    """

    since_ns: int
    rate: float


class HostEdges:
    """Every edge that this host initiates; one keeps its slot for as long as it is probed."""

    def __init__(self) -> None:
        self._slot: dict[EdgeName, int] = {}
        self._free = list(range(LEAST_SLOTS))
        self._size = LEAST_SLOTS
        self._memory = EdgeMemory(LEAST_SLOTS)
        self._window = Window()
        self._cut_ns, self._rate = np.full(LEAST_SLOTS, LONG_AGO), np.zeros(LEAST_SLOTS)
        self._bent, self._held = np.zeros((2, LEAST_SLOTS), bool), np.zeros(LEAST_SLOTS, bool)
        self._own = np.zeros(LEAST_SLOTS, bool)
        self._priors: dict[str, DriftPrior] = {}
        self._priors_came_ns = LONG_AGO
        self._before: Lines | None = None
        self._young: Lines | None = None
        self._fresh: list[Samples] = []
        self._is_suspicious = False
        self._own_since_ns = LONG_AGO

    def assign(self, edges: Sequence[EdgeName]) -> None:
        """Have exactly these edges: new ones get a slot, those that are gone leave theirs."""
        gone = set(self._slot) - set(edges)
        freed = {self._slot.pop(edge) for edge in gone}
        self._free += sorted(freed)
        new = [edge for edge in dict.fromkeys(edges) if edge not in self._slot]
        if len(new) > len(self._free):
            self._grow(max(2 * self._size, len(self._slot) + len(new)))
        self._window.forget(freed)
        forgotten = np.zeros(self._size, dtype=bool)
        for edge in new:
            slot = self._free.pop(0)
            self._slot[edge] = slot
            forgotten[slot] = True
        self._memory.forget(forgotten)
        self._cut_ns[forgotten] = LONG_AGO

    def _grow(self, size: int) -> None:
        """Make room; what is remembered of rates is learnt anew, within seconds."""
        self._free += range(self._size, size)
        self._cut_ns = np.concatenate([self._cut_ns, np.full(size - self._size, LONG_AGO)])
        self._rate = np.concatenate([self._rate, np.zeros(size - self._size)])
        self._bent = np.concatenate([self._bent, np.zeros((2, size - self._size), bool)], axis=1)
        self._held = np.concatenate([self._held, np.zeros(size - self._size, bool)])
        self._own = np.concatenate([self._own, np.zeros(size - self._size, bool)])
        self._memory = EdgeMemory(size)
        self._size = size

    def slots(self, edges: Sequence[EdgeName]) -> NDArray[np.intp]:
        """The slots of some edges."""
        return np.array([self._slot[edge] for edge in edges], dtype=np.intp)

    def believe(self, priors: list[DriftPrior], now_local_ns: int) -> None:
        """Take in what the manager knows of the peers' rates, at a time of this host's clock."""
        self._priors = {prior.dst: prior for prior in priors}
        self._priors_came_ns = now_local_ns

    def add(self, now_ns: int, samples: Samples) -> None:
        """Take in samples."""
        self._window.add(now_ns, samples)
        self._fresh.append(samples)
        self._window.age(now_ns, self._memory.slope)

    def drop_between(self, from_local_ns: int, to_local_ns: int) -> None:
        """Drop samples of a stretch in which this host's stamps were off."""
        self._window.drop_between(from_local_ns, to_local_ns)

    def is_young(self, now_local_ns: int) -> bool:
        """Whether some edge has been cut of late."""
        return bool((now_local_ns - self._cut_ns < YOUNG_NS).any())

    def look(self, now_ns: int, now_local_ns: int) -> LeftLine | None:
        """See whether clocks have changed: let go of what was known of their edges, and say so if it was the own clock.

        Args:
            now_ns: as in `add`.
            now_local_ns: on this host's clock.
        """
        since_ns = now_ns - LOOK_NS
        samples = self._window.recent(since_ns) if self._is_worth_a_look() else None
        self._held[:] = False
        if samples is None:
            return None
        lately = self._bent & (now_local_ns - self._cut_ns < LOOK_NS)
        lines = self._lines()
        bent = find_bent(samples.edge, samples.stamps_ns, lines, lately)
        self._is_suspicious = bool((bent.suspect_out | bent.suspect_back).any())
        if bent.lone.any():
            self._window.drop_recent(since_ns, bent.lone)
        if bent.own:
            self._before, self._own_since_ns = lines, bent.own_since_ns
            everywhere = np.full(self._size, bent.own_since_ns)
            self._cut(self._cut_ns < bent.own_since_ns - SAME_NS, everywhere, bent.rate)
            self._own[:] = True
            self._bent[:] = False
            return LeftLine(bent.own_since_ns, bent.rate)
        self._cut(bent.out | bent.back, bent.since_ns, bent.rate)
        self._bent = np.where(bent.out | bent.back, (bent.out, bent.back), self._bent)
        self._memory.forget(bent.out & bent.back)
        self._own[bent.out | bent.back] = False
        decided = bent.out | bent.back | lately.any(axis=0)
        self._held = (bent.suspect_out | bent.suspect_back) & ~decided
        alone = np.flatnonzero((bent.out ^ bent.back) & lines.known)
        if len(alone) == 1 and lines.known.sum() == 1:
            # One edge does not tell whose clock it was.
            return LeftLine(int(bent.since_ns[alone[0]]), bent.rate)
        return None

    def _is_worth_a_look(self) -> bool:
        """Whether a probe of the last second came too early; those before the last look are known."""
        lines, fresh = self._lines(), self._fresh
        self._fresh = []
        return self._is_suspicious or any(any_early(some.edge, some.stamps_ns, lines) for some in fresh)

    def _lines(self) -> Lines:
        """What is known of the edges; of young ones by their last fit alone."""
        lines = self._memory.lines()
        if self._young is None or len(self._young.known) != self._size or not self._young.known.any():
            return lines
        return self._young.where(self._young.known & ~lines.known, lines)

    def own_change(self, now_ns: int, now_local_ns: int) -> OwnChange | None:
        """What this host's clock does since it has changed; None if it has not for seconds, or too little was measured.

        Args:
            now_ns: as in `add`.
            now_local_ns: on this host's clock.
        """
        age_ns = now_local_ns - self._own_since_ns
        samples = self._window.recent(now_ns - age_ns) if age_ns < OWN_NS else None
        if samples is None or self._before is None or len(self._before.known) != self._size:
            return None
        since = samples.where(samples.stamps_ns[0] >= self._own_since_ns)
        since = since.where(np.argsort(since.stamps_ns[0], kind="stable"))
        exchanges = against_before(
            since.edge, since.stamps_ns, since.weight_out, since.weight_back, self._before
        )
        fit = fit_edges(exchanges, EdgePrior.of_floor(BEFORE_FLOOR_NS))
        if fit.reason[0] != FitReason.OK:
            return None
        of_lines_ns = float(np.sqrt(np.median(self._before.var_offset[self._before.known])))
        return OwnChange(
            since_local_ns=self._own_since_ns,
            ref_local_ns=int(fit.ref_ns[0]),
            ahead_ns=-float(fit.offset_ns[0] + fit.offset_frac_ns[0]),
            rate=-float(fit.slope[0]),
            sigma_ns=float(np.hypot(fit.sigma_offset_ns[0], of_lines_ns)),
            sigma_rate=float(fit.sigma_slope[0]),
        )

    def hear_of_change(self, host: str, since_local_ns: int) -> None:
        """Let go of what was measured with a host, or by this one, before its clock changed."""
        mine = np.zeros(self._size, bool)
        for (src, dst), slot in self._slot.items():
            mine[slot] = host in (host_of(src), host_of(dst))
        late = mine & (self._cut_ns < since_local_ns - NOTICED_WITHIN_NS)
        self._cut(late, np.full(self._size, since_local_ns), 0.0)

    def _cut(self, edges: NDArray[np.bool_], since_ns: NDArray[np.int64], rate: float) -> None:
        """Have some edges begin anew at a time of this host's clock; their ways are as long as before."""
        if edges.any():
            self._cut_ns[edges], self._rate[edges] = since_ns[edges], rate
            self._window.cut(np.where(edges, since_ns, LONG_AGO))
            self._young = None
            self._memory.let_go(edges)

    def fit(self, now_local_ns: int) -> list[EdgeFit]:
        """Fit every edge over the window; edges without enough to go on are left out."""
        exchanges = self._window.exchanges(self._size)
        probed = np.flatnonzero(np.diff(exchanges.starts))
        starts = np.append(exchanges.starts[probed], exchanges.starts[-1])
        some = fit_edges(replace(exchanges, starts=starts), self._prior(now_local_ns, probed))
        fits = _of_all(some, probed, self._size)
        age_ns = now_local_ns - self._cut_ns
        young = age_ns < YOUNG_NS
        self._memory.update(fits, ~young & ~self._held)
        self._young = young_lines(fits, self._memory.lines(), young & (age_ns >= 2 * LEAST_YOUNG_NS))
        again = young & (age_ns >= 2 * LEAST_YOUNG_NS) & (fits.reason == FitReason.TORN)
        if again.any():
            self._cut_ns[again] = now_local_ns - LEAST_YOUNG_NS
            self._window.cut(np.where(again, self._cut_ns, LONG_AGO))
        self._window.forget_remembered(set(np.flatnonzero(fits.reason == FitReason.TORN).tolist()))
        out = []
        for (src, dst), slot in self._slot.items():
            cut = young[slot] and (age_ns[slot] < LEAST_YOUNG_NS or fits.reason[slot] != FitReason.OK)
            if self._held[slot] or not (cut or fits.reason[slot] in (FitReason.OK, FitReason.TORN)):
                continue
            out.append(
                EdgeFit(
                    src=src,
                    dst=dst,
                    ref_local_ns=int(fits.ref_ns[slot]),
                    offset_base_ns=int(fits.offset_ns[slot]),
                    offset_ns=float(fits.offset_frac_ns[slot]),
                    slope=float(fits.slope[slot]),
                    margin_ns=float(fits.margin_ns[slot]),
                    sigma_offset_ns=float(fits.sigma_offset_ns[slot]),
                    sigma_out_ns=float(fits.sigma_out_ns[slot]),
                    sigma_back_ns=float(fits.sigma_back_ns[slot]),
                    sigma_slope=float(fits.sigma_slope[slot]),
                    points=float(fits.points[slot]),
                    pure_share=float(fits.pure_share[slot]),
                    torn=bool(fits.reason[slot] == FitReason.TORN),
                    cut=bool(cut),
                    young=bool(young[slot]),
                    own=bool(young[slot] and self._own[slot]),
                    apart=float(self._rate[slot]) if young[slot] else 0.0,
                    since_local_ns=int(self._cut_ns[slot]) if age_ns[slot] < TOLD_NS else None,
                )
            )
        return out

    def _prior(self, now_local_ns: int, slots: NDArray[np.intp]) -> EdgePrior:
        """What is known of some slots: the surer of the manager's word and this host's own memory."""
        prior = self._memory.prior(now_local_ns)
        young = now_local_ns - self._cut_ns < YOUNG_NS
        if now_local_ns - self._priors_came_ns > BELIEVED_NS:
            return prior.of(slots)
        for (_, dst), slot in self._slot.items():
            known = self._priors.get(dst)
            if known is not None and not young[slot] and known.sigma < prior.sigma_slope[slot]:
                prior.slope[slot], prior.sigma_slope[slot] = known.slope, known.sigma
        return prior.of(slots)


def _of_all(fits: EdgeFits, slots: NDArray[np.intp], size: int) -> EdgeFits:
    """The fits of some slots as those of all: the others had nothing to go on."""
    whole = {}
    for name in EdgeFits.__slots__:
        some = getattr(fits, name)
        fill = FitReason.TOO_FEW if name == "reason" else 0
        whole[name] = np.full(size, fill, some.dtype)
        whole[name][slots] = some
    return EdgeFits(**whole)
