"""Clocks that have changed unannounced: probes that arrive earlier than any can.

What waits in a queue arrives late, never early. So a probe that lies below its edge's line by more than the one-way
floor and all errors allow shows that one of the two clocks has changed its rate or has jumped, or that the way has become
shorter. Which clock it was, one edge cannot tell: where most of a host's edges bend the same way at once it was its own.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, Bool
from cwdp.shared.clocksync.edge.fit import EdgeFits
from cwdp.shared.clocksync.edge.samples import Exchanges

LINE_SIGMAS = 5.0
FLOOR_SIGMAS = 2.0
LEAST_EARLY = 3
LEAST_SPAN_NS = 40_000_000
"""What is stamped between a change that the kernel tells and its discovery lies in a shorter stretch, and passes."""

LONE_AFTER_NS = 250_000_000
LEAST_RATED_NS = 200_000_000
BEFORE_FLOOR_NS = 10_000.0
"""A one-way floor that stands for those of all edges, which are taken off."""


@dataclass(frozen=True, slots=True)
class Lines:
    """What is known of some edges: B shows a + offset + slope * (a - ref) when A shows a.

    Attributes:
        ref_ns, offset_ns: int64 [edges].
        frac_ns, slope: float64 [edges]; slope per ns.
        var_offset, covariance, var_slope: float64 [edges], of the offset in ns at ref and the slope in ns per s.
        wander_ns: float64 [edges], random walk of the slope, ns per s per sqrt(s).
        floor_ns, sigma_floor_ns: float64 [edges], one-way floor.
        known: bool [edges], there is a line and a floor to hold probes against.
    """

    ref_ns: I64
    offset_ns: I64
    frac_ns: F64
    slope: F64
    var_offset: F64
    covariance: F64
    var_slope: F64
    wander_ns: F64
    floor_ns: F64
    sigma_floor_ns: F64
    known: Bool

    def where(self, rows: Bool, other: "Lines") -> "Lines":
        """These lines for some edges, others for the rest."""
        chosen = (np.where(rows, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Lines(*chosen)


def young_lines(fits: EdgeFits, lines: Lines, young: Bool) -> Lines:
    """Lines of edges of which no more is known than the fits of the last seconds say; `lines` tell of their floors."""
    return replace(
        lines,
        ref_ns=fits.ref_ns,
        offset_ns=fits.offset_ns,
        frac_ns=fits.offset_frac_ns,
        slope=fits.slope,
        var_offset=fits.sigma_offset_ns**2,
        covariance=np.zeros(len(young)),
        var_slope=(fits.sigma_slope * NS_PER_S) ** 2,
        known=young & fits.valid & np.isfinite(lines.floor_ns),
    )


@dataclass(frozen=True, slots=True)
class Bent:
    """What early probes say of the edges.

    Attributes:
        out, back: bool [edges], a direction in which enough probes over enough time came too early.
        suspect_out, suspect_back: bool [edges], at least one did.
        since_ns: int64 [edges], the initiator's time of the first one; of use where suspect.
        lone: bool [probes], too early, few, and long past: not a clock that has changed for good.
        rate: float64, how fast the earliest probes say that things move apart, dimensionless.
        own: the initiator's clock has changed; `own_since_ns` is when that began to show.
    """

    out: Bool
    back: Bool
    suspect_out: Bool
    suspect_back: Bool
    since_ns: I64
    lone: Bool
    rate: float
    own: bool
    own_since_ns: int


def any_early(edge: npt.NDArray[np.integer], stamps_ns: I64, lines: Lines) -> bool:
    """Whether some probe came earlier than any can: arguments as for `find_bent`, which tells what that means."""
    early_ns, allowed_ns = _early(edge, stamps_ns, lines)
    return bool((early_ns > allowed_ns).any())


def find_bent(edge: npt.NDArray[np.integer], stamps_ns: I64, lines: Lines, lately: Bool) -> Bent:
    """Look for edges that have bent.

    Args:
        edge: integers [probes], the edge of each probe of the last second or so.
        stamps_ns: int64 [4, probes], t1 to t4 as in `samples.Exchanges`.
        lines: of all edges, as they were before these probes.
        lately: bool [2, edges], bent there and back already, so short a time ago that it may have been the same change.
    """
    early_ns, allowed_ns = _early(edge, stamps_ns, lines)
    sent_ns = stamps_ns[0]
    n = len(lines.known)
    over = early_ns > allowed_ns
    first, last, count = _spans(edge, sent_ns, over, n)
    bent = (count >= LEAST_EARLY) & (last - first >= LEAST_SPAN_NS)
    suspect = (count > 0) | lately
    since = _spans(edge, sent_ns, early_ns > allowed_ns / 2, n)[0].min(axis=0)
    newest = int(sent_ns.max(initial=0))
    lone = over & ~bent[:, edge] & (last[:, edge] < newest - LONE_AFTER_NS)
    side = int(np.argmax(suspect.sum(axis=1)))
    own = _is_own(suspect, side, lines.known | lately.any(axis=0), over[side], sent_ns)
    chosen = over[side] if own else np.asarray(over.any(axis=0))
    return Bent(
        bent[0],
        bent[1],
        suspect[0],
        suspect[1],
        since,
        np.asarray(lone.any(axis=0)),
        _rate(early_ns.max(axis=0), sent_ns, since[edge], chosen),
        own,
        int(since[count[side] > 0].min()) if own else 0,
    )


def _early(edge: npt.NDArray[np.integer], stamps_ns: I64, lines: Lines) -> tuple[F64, F64]:
    """By how much probes came too early there and back, and what errors allow: float64 [2, probes]; never without a line."""
    t1, t2, t3, t4 = stamps_ns
    when = np.stack((t1, t4)) - lines.ref_ns[edge]
    since_s = when / NS_PER_S
    line = lines.frac_ns[edge] + lines.slope[edge] * when
    seen = np.stack((t2 - t1, t3 - t4)) - lines.offset_ns[edge]
    delay = (seen - line) * np.array([[1.0], [-1.0]])
    variance = (
        lines.var_offset[edge]
        + since_s * (2 * lines.covariance[edge] + since_s * lines.var_slope[edge])
        + lines.wander_ns[edge] ** 2 * np.abs(since_s) ** 3 / 3
    )
    sigma_floor = lines.sigma_floor_ns[edge]
    allowed = LINE_SIGMAS * np.sqrt(np.maximum(variance, 0.0) + sigma_floor**2) + FLOOR_SIGMAS * sigma_floor
    return np.where(lines.known[edge], lines.floor_ns[edge] - delay, -np.inf), allowed


def against_before(
    edge: npt.NDArray[np.integer], stamps_ns: I64, weight_out: F64, weight_back: F64, lines: Lines
) -> Exchanges:
    """Probes of all edges as those of one: of the initiator's clock now with the same clock had it not changed.

    Where it was the initiator's clock, all edges measure the same thing against lines that still hold: together they tell
    within some tenths of a second what each needs seconds for.

    Args:
        edge: integers [probes], in order of time.
        stamps_ns: int64 [4, probes].
        weight_out: float64 [probes], as in `samples.Exchanges`.
        weight_back: float64 [probes], as in `samples.Exchanges`.
        lines: of all edges, from before the change.
    """
    usable = lines.known[edge]
    edge, stamps_ns = edge[usable], stamps_ns[:, usable]
    early_ns, _ = _early(edge, stamps_ns, lines)
    t1, _, _, t4 = stamps_ns
    late_out, late_back = np.rint(BEFORE_FLOOR_NS - early_ns).astype(np.int64)
    starts = np.array([0, len(edge)])
    return Exchanges(t1, t1 + late_out, t4 - late_back, t4, starts, weight_out[usable], weight_back[usable])


def _spans(edge: npt.NDArray[np.integer], sent_ns: I64, chosen: Bool, n_edges: int) -> tuple[I64, I64, I64]:
    """When each edge's first and last chosen probe left, and how many there are: int64 [2, edges]."""
    first = np.full((2, n_edges), np.iinfo(np.int64).max)
    last = np.full((2, n_edges), np.iinfo(np.int64).min // 2)
    count = np.zeros((2, n_edges), np.int64)
    for way in range(2):
        mine = chosen[way]
        np.minimum.at(first[way], edge[mine], sent_ns[mine])
        np.maximum.at(last[way], edge[mine], sent_ns[mine])
        count[way] = np.bincount(edge[mine], minlength=n_edges)
    return first, last, count


def _is_own(suspect: Bool, side: int, known: Bool, over: Bool, sent_ns: I64) -> bool:
    """Whether most edges bend to one side, and few to the other."""
    one, other = int(suspect[side].sum()), int(suspect[1 - side].sum())
    if one < max(2, known.sum() / 2) or other > one / 2 or np.count_nonzero(over) < LEAST_EARLY:
        return False
    return bool(np.ptp(sent_ns[over]) >= LEAST_SPAN_NS)


def _rate(early_ns: F64, sent_ns: I64, since_ns: I64, chosen: Bool) -> float:
    """How much earlier they come with time, by the earliest; 0 where nothing shows."""
    if not chosen.any():
        return 0.0
    latest = np.flatnonzero(chosen)[np.argmax(early_ns[chosen])]
    return float(early_ns[latest] / max(sent_ns[latest] - since_ns[latest], LEAST_RATED_NS))
