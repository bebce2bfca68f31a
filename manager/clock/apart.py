"""How far another pod's timeline is ahead of this one's, by fits between hosts of both, at one instant. Pure.

A fit tells how far the other host's clock is ahead of this host's, and the lines of both lead from there to the timelines. All
fits towards a pod measure the same thing, so what disagrees with most of them is set aside: a clock that has changed since
its line was told, a queue, a lie.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from msgspec import Struct

from cwdp.shared.bus.messages import ClockLine
from cwdp.shared.clocksync import EdgeFits
from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, Bool
from cwdp.shared.clocksync.edge.floors import QUEUED_SIGMAS
from cwdp.shared.clocksync.graph.pairs import surely_queued
from cwdp.shared.clocksync.timeline.track import BOUND_SIGMAS, HostClocks

REJECT_SIGMAS = 6.0
MOST_INFLATION = 30.0
"""Values that are further apart than so many times what they claim do not agree."""

MOST_ROUNDS = 6
_HALF_OF_NORMAL = 0.6745
_LEAST_SIGMA_NS = 0.5
OURS = 0, 0.0
"""How far this timeline is ahead of itself, and the bound of that."""


class SeenAhead(Struct, frozen=True, kw_only=True):
    """What a leader tells of another pod's timeline, as fits from its own hosts alone show it.

    What stamping points of hosts differ by is in it; it is in what the other leader sees with the same sign.

    Attributes:
        timeline: the name of the other timeline.
        ref_ns: time of the teller's timeline at which it is so.
        ahead_ns, ahead_frac_ns: their sum is the other timeline less the teller's.
        rate: what it grows by, per ns.
        sigma_ns: standard error.
    """

    timeline: str
    ref_ns: int
    ahead_ns: int
    ahead_frac_ns: float
    rate: float
    sigma_ns: float


@dataclass(frozen=True, kw_only=True)
class Apart:
    """How far a pod's timeline is ahead of this one's.

    Attributes:
        ref_ns: time of this timeline at which it is so.
        ahead_ns, frac_ns: their sum is the other timeline less this one.
        rate: what it grows by, per ns.
        bound_ns: how far off it may be at `ref_ns`.
        bound_rate: what that grows by, per ns before or after.
    """

    ref_ns: int
    ahead_ns: int
    frac_ns: float
    rate: float
    bound_ns: float
    bound_rate: float

    def during(self, middle_ns: I64, half_ns: I64) -> tuple[I64, F64]:
        """What it is in the middle of spans of this timeline, and how far off that may be all through them.

        Args:
            middle_ns: int64, any shape.
            half_ns: half of how long each lasts, the same shape.
        """
        age_ns = (middle_ns - self.ref_ns).astype(np.float64)
        ahead_ns = self.ahead_ns + np.rint(self.frac_ns + self.rate * age_ns).astype(np.int64)
        bound_ns = self.bound_ns + self.bound_rate * np.abs(age_ns) + abs(self.rate) * half_ns
        return ahead_ns, bound_ns


@dataclass(frozen=True, slots=True)
class Lines:
    """Clocks' lines to their timeline, one for each fit: int64 and float64 [fits], as in `ClockLine`."""

    ref_ns: I64
    offset_ns: I64
    frac_ns: F64
    drift: F64
    bound_ns: F64
    bound_drift: F64

    @classmethod
    def of_clocks(cls, clocks: HostClocks, slots: I64) -> "Lines":
        """Of solved clocks, by slot."""
        return cls(
            clocks.ref_local_ns[slots],
            clocks.offset_ns[slots],
            clocks.offset_frac_ns[slots],
            clocks.drift[slots],
            clocks.bound_ns[slots],
            clocks.bound_growth[slots] / NS_PER_S,
        )

    @classmethod
    def told(cls, lines: Sequence[ClockLine]) -> "Lines":
        """As another leader tells them."""
        return cls(
            np.array([line.ref_local_ns for line in lines], np.int64),
            np.array([line.offset_base_ns for line in lines], np.int64),
            np.array([line.offset_ns for line in lines], np.float64),
            np.array([line.drift for line in lines], np.float64),
            np.array([line.bound_ns for line in lines], np.float64),
            np.array([line.bound_drift for line in lines], np.float64),
        )

    def where(self, places: I64) -> "Lines":
        """Some of them, or one several times."""
        return Lines(*(getattr(self, field.name)[places] for field in fields(self)))

    def at(self, local_ns: I64) -> tuple[I64, F64, F64]:
        """Timeline less local time, whole and rest, and its standard error, when clocks show int64 [fits]."""
        age_ns = (local_ns - self.ref_ns).astype(np.float64)
        sigma_ns = (self.bound_ns + self.bound_drift * np.abs(age_ns)) / BOUND_SIGMAS
        return self.offset_ns, self.frac_ns + self.drift * age_ns, sigma_ns


@dataclass(frozen=True, slots=True)
class Measured:
    """Another timeline less this one, as seen from this side.

    Attributes:
        ref_ns: time of this timeline at which it is so.
        ahead_ns, frac_ns: their sum.
        sigma_ns: its standard error.
        common_ns: standard error of one line here and one there: those of a pod may err together.
        rate, sigma_rate: what it grows by, per ns.
    """

    ref_ns: int
    ahead_ns: int
    frac_ns: float
    sigma_ns: float
    common_ns: float
    rate: float
    sigma_rate: float


def measure(src: I64, dst: I64, edge_fits: EdgeFits, own: Lines, far: Lines) -> Measured | None:
    """Combine fits towards one pod; None where no more than half of them agree.

    Args:
        src: int64 [fits], hosts here; fits of one host share the error of its line.
        dst: int64 [fits], hosts there.
        edge_fits: the valid ones, at least one.
        own: the lines of hosts here.
        far: the lines of hosts there.
    """
    own_ns, own_rest, own_sigma = own.at(edge_fits.ref_ns)
    there_ns = edge_fits.ref_ns + edge_fits.offset_ns + np.rint(edge_fits.offset_frac_ns).astype(np.int64)
    far_ns, far_rest, far_sigma = far.at(there_ns)
    whole = edge_fits.offset_ns + far_ns - own_ns
    rest = edge_fits.offset_frac_ns + far_rest - own_rest
    when_ns = edge_fits.ref_ns + own_ns + np.rint(own_rest).astype(np.int64)
    rates = (1 + far.drift) * (1 + edge_fits.slope) / (1 + own.drift) - 1
    sigma_rates = np.sqrt(
        edge_fits.sigma_slope**2 + (far.bound_drift**2 + own.bound_drift**2) / BOUND_SIGMAS**2
    )
    shared = len(src) / min(len(np.unique(src)), len(np.unique(dst)))
    combined = _combine(rates, np.maximum(sigma_rates, 1e-12), shared)
    if combined is None:
        return None
    rate, sigma_rate = combined
    ref_ns, base_ns = int(np.sort(when_ns)[len(when_ns) // 2]), int(whole[0])
    queued = surely_queued(edge_fits.margin_ns, edge_fits.margin_ns) / QUEUED_SIGMAS
    sigmas = np.sqrt(edge_fits.sigma_offset_ns**2 + own_sigma**2 + far_sigma**2 + queued**2)
    ahead = (whole - base_ns) + rest + rate * (ref_ns - when_ns)
    combined = _combine(ahead, np.maximum(sigmas, _LEAST_SIGMA_NS), shared)
    if combined is None:
        return None
    more_ns = round(combined[0])
    common_ns = float(np.hypot(np.median(own_sigma), np.median(far_sigma)))
    return Measured(
        ref_ns, base_ns + more_ns, combined[0] - more_ns, combined[1], common_ns, rate, sigma_rate
    )


def _combine(values: F64, sigmas: F64, shared: float) -> tuple[float, float] | None:
    """The mean of values that agree, weighed by their errors, and its standard error; None where no more than half do.

    Args:
        values: of one thing, float64 [fits].
        sigmas: their standard errors, float64 [fits].
        shared: so many have one error in common.
    """
    middle = float(np.median(values))
    kept: Bool = np.ones(len(values), bool)
    inflation = 1.0
    for _ in range(MOST_ROUNDS):
        score = np.abs(values - middle) / sigmas
        inflation = max(1.0, float(np.median(score)) / _HALF_OF_NORMAL)
        before, kept = kept, score <= REJECT_SIGMAS * min(inflation, MOST_INFLATION)
        if 2 * np.count_nonzero(kept) <= len(values):
            return None
        weight = kept / sigmas**2
        middle = float((weight * values).sum() / weight.sum())
        if np.array_equal(before, kept):
            break
    return middle, inflation * float(np.sqrt(shared / weight.sum()))
