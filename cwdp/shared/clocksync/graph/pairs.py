"""The two directed fits of a probed pair, merged into one undirected edge.

Requests are stamped at tc egress, replies in XDP. Let c be the constant between the two stamping
points of a host: the fit of A to B is off by (c_A' + c_B'') / 2 with some such constants, and so is
that of B to A, with the same sign, because either initiator is late by its own tc point. Half the
difference of the two fits is free of what is common; half their sum is what they disagree by, which
also shows a host that tells its peers one time and itself another.

Better still, requests of both ends make one estimate and replies of both another, each free of the
constant by itself. Under load replies wait in the responder's driver behind what arrived with the
request, requests do not; so each of the two is weighed by how far its margin stands above the least
that it has been (what queues add moves the estimate by no more than that). A queue that has stood for
as long as floors are known looks like a floor; so margins of several times the fleet's are held against that.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cwdp.shared.clocksync._types import F64, I64, LONG_AGO, Bool
from cwdp.shared.clocksync.edge.floors import QUEUED_SIGMAS, at_most, queued_sigma
from cwdp.shared.clocksync.graph.robust import REJECT_SIGMAS, centre

_EPOCH_NS = 20_000_000_000
_DISPUTED_NS = 2_000_000_000
_FLEET_TIMES = 4.0
"""Margins beyond so many of the fleet's median hold a queue, though nobody may have seen it begin."""

_NAME_BITS = 21


class PairFloors:
    """The least margins of every pair, of requests and of replies, over the last 20 to 40 seconds.

    Those of a pair whose two ends disagree are kept for two seconds only: fits from before a clock stepped and from after
    it leave one of the floors far too low, and the host would be taken for a liar for as long as that is remembered. A lie
    that goes on shows in the margins that come next.

    Floors are float64 [2, 2, pairs]: margin and standard error, of requests and replies.
    """

    def __init__(self) -> None:
        self._key = np.zeros(0, np.int64)
        self._now = _no_floors(0)
        self._before = _no_floors(0)
        self._since_ns = 0
        self._disputed_ns = np.zeros(0, np.int64)

    def update(self, key: I64, margin_ns: F64, sigma_ns: F64, instant_ns: int) -> tuple[F64, F64]:
        """Take in margins and return the floors with them.

        Args:
            key: int64 [pairs], ascending, the same for a pair each time.
            margin_ns: float64 [2, pairs], of requests and of replies; NaN where there is none.
            sigma_ns: float64 [2, pairs], their standard errors.
            instant_ns: global time.

        Returns:
            (floors, their standard errors), float64 [2, pairs].
        """
        if not 0 <= instant_ns - self._since_ns < _EPOCH_NS:
            self._before, self._now, self._since_ns = self._now, _no_floors(len(self._key)), instant_ns
            self._forget_lapsed()
        place = self._places(key)
        disputed_ns = self._disputed_ns[place]
        anew = place[(disputed_ns != LONG_AGO) & (instant_ns - disputed_ns > _DISPUTED_NS)]
        self._now[..., anew] = self._before[..., anew] = np.nan
        self._disputed_ns[anew] = LONG_AGO
        self._now[..., place] = _lower(self._now[..., place], np.stack((margin_ns, sigma_ns)))
        floors, sigmas = _lower(self._now[..., place], self._before[..., place])
        return floors, sigmas

    def dispute(self, key: I64, disputed: Bool, instant_ns: int) -> None:
        """Note whose ends disagree by their floors; `key` and `instant_ns` as in `update`, which comes before."""
        place = np.searchsorted(self._key, key)
        since_ns = np.where(self._disputed_ns[place] == LONG_AGO, instant_ns, self._disputed_ns[place])
        self._disputed_ns[place] = np.where(disputed, since_ns, LONG_AGO)

    def bias(self, src: I64, dst: I64, path: I64) -> tuple[F64, F64]:
        """By how much directed fits are off for their ends' stamping points, from floors: ns and its standard error, [fits].

        Pairs whose floors are not known have the fleet's median.
        """
        name = pair_names(path, np.minimum(src, dst), np.maximum(src, dst))
        if not len(self._key):
            return np.zeros(len(name)), np.zeros(len(name))
        floors, sigmas = _lower(self._now, self._before)
        bias, sigma = (floors[0] - floors[1]) / 2, np.hypot(sigmas[0], sigmas[1]) / 2
        fleet, scatter = centre(bias[np.isfinite(bias)])
        place = np.minimum(np.searchsorted(self._key, name), len(self._key) - 1)
        known = (self._key[place] == name) & np.isfinite(bias[place])
        return np.where(known, bias[place], fleet), np.where(known, sigma[place], scatter)

    def _places(self, key: I64) -> npt.NDArray[np.intp]:
        """Where pairs are kept; new ones are given a place, the others keep theirs."""
        if not np.isin(key, self._key, assume_unique=True).all():
            merged = np.union1d(self._key, key)
            at = np.searchsorted(merged, self._key)
            now, before = _no_floors(len(merged)), _no_floors(len(merged))
            now[..., at], before[..., at] = self._now, self._before
            disputed_ns = np.full(len(merged), LONG_AGO)
            disputed_ns[at] = self._disputed_ns
            self._key, self._now, self._before, self._disputed_ns = merged, now, before, disputed_ns
        return np.searchsorted(self._key, key)

    def _forget_lapsed(self) -> None:
        kept = ~np.isnan(self._before[0]).all(axis=0)
        self._key, self._disputed_ns = self._key[kept], self._disputed_ns[kept]
        self._now, self._before = self._now[..., kept], self._before[..., kept]


def pair_names(path: I64, a: I64, b: I64) -> I64:
    """A number for each pair, a < b, the same each time: int64 [pairs]."""
    return np.asarray(path << 2 * _NAME_BITS | a << _NAME_BITS | b)


def surely_queued(margin_ns: F64, floors_ns: F64) -> F64:
    """What of margins is queue whatever their own floors are, which may have been learnt while it stood: of any shape.

    Args:
        margin_ns: one for each pair, along the last axis.
        floors_ns: of the fleet, along the last axis; NaN where there is none.
    """
    fleet = np.nanmedian(floors_ns, axis=-1, keepdims=True)
    return np.asarray(np.where(margin_ns > _FLEET_TIMES * fleet, margin_ns - fleet, 0.0))


def _no_floors(pairs: int) -> F64:
    return np.full((2, 2, pairs), np.nan)


def _lower(a: F64, b: F64) -> F64:
    """Of two floors, the one that is surely at most so high; either may be NaN."""
    most_a, most_b = at_most(a[0], a[1]), at_most(b[0], b[1])
    return np.where((most_a <= most_b) | np.isnan(most_b), a, b)


@dataclass(frozen=True, slots=True)
class Ways:
    """What is known of the two lines of each directed fit.

    Attributes:
        margin_ns: float64 [fits].
        sigma_out_ns, sigma_back_ns: float64 [fits], at the common instant.
        floors: kept from solution to solution.
        instant_ns: global time.
    """

    margin_ns: F64
    sigma_out_ns: F64
    sigma_back_ns: F64
    floors: PairFloors
    instant_ns: int


@dataclass(frozen=True, slots=True)
class PairEdges:
    """Undirected edges, a < b.

    Attributes:
        a, b: int64 [pairs], nodes.
        y_ns, sigma_ns: float64 [pairs], g_a - g_b and its standard error.
        queued_ns: float64 [pairs], by how much of late queues may have moved y_ns at most, where that is more than its error.
        mutual: bool [pairs], both ends initiated.
        bias_ns, sigma_bias_ns: float64 [pairs], half the sum of the two directed fits, which is alike
            for all pairs of a fleet with one stamping; NaN and inf where not mutual.
        of_fit: int64 [fits], the pair of each directed fit.
    """

    a: I64
    b: I64
    y_ns: F64
    sigma_ns: F64
    queued_ns: F64
    mutual: Bool
    bias_ns: F64
    sigma_bias_ns: F64
    of_fit: I64

    @property
    def disputed(self) -> Bool:
        """Bool [pairs], whose two ends disagree by more than all errors allow."""
        return _disputed(self.bias_ns, self.sigma_bias_ns)


def merge_directed(
    src: I64, dst: I64, path: I64, *, y_ns: F64, sigma_ns: F64, n_nodes: int, ways: Ways | None = None
) -> PairEdges:
    """Merge directed fits by pair and path, the two directions with equal weight.

    A pair seen from one end only is corrected by the fleet's median bias, whose scatter it inherits.

    Args:
        src: int64 [fits], initiators, nodes 0 to n_nodes - 1.
        dst: int64 [fits], responders.
        path: int64 [fits], which of several paths of a pair; 0 where there is one.
        y_ns: float64 [fits], g_src - g_dst as measured.
        sigma_ns: float64 [fits].
        n_nodes: how many nodes there are.
        ways: weighs requests and replies apart; without, the two fits of a pair count alike.
    """
    node_bits = n_nodes.bit_length()
    key = (np.minimum(src, dst) << node_bits) | np.maximum(src, dst)
    key, order = _sorted(key | (path << 2 * node_bits) if path.any() else key)
    starts = np.concatenate(([True], key[1:] != key[:-1]))
    pair = np.cumsum(starts)
    pair -= 1
    key = key[starts]
    of_fit = np.empty_like(pair)
    of_fit[order] = pair
    # Sums run over the sorted fits: at random, a million of them would miss the cache every time.
    backward = (src > dst)[order]
    side = 2 * pair + backward
    count = np.bincount(side, minlength=2 * len(key))
    has_ab, has_ba = count[0::2] > 0, count[1::2] > 0
    mutual = has_ab & has_ba
    share = 1 / count[side]

    def of_both(values: F64, *, signed: bool = False) -> F64:
        values = values[order]
        values *= share
        if signed:
            np.negative(values, out=values, where=backward)
        return np.asarray(np.bincount(pair, values, len(key)), np.float64)

    y, bias = of_both(y_ns, signed=True), np.where(mutual, of_both(y_ns) / 2, np.nan)
    variance = of_both(np.square(sigma_ns))
    lowest = (1 << node_bits) - 1
    a, b = (key >> node_bits) & lowest, key & lowest
    y_mutual, sigma_mutual = y / 2, np.sqrt(variance) / 2
    sigma_bias = sigma_mutual
    queued = np.zeros(len(key)) if ways is None else of_both(surely_queued(ways.margin_ns, ways.margin_ns))
    one_sided = np.sqrt(variance + np.square(queued / QUEUED_SIGMAS))
    if ways is not None and mutual.any():
        name = pair_names(key >> 2 * node_bits, a, b)
        y_mutual, sigma_mutual, moved, bias, sigma_bias = _weigh_ways(ways, name, of_both, y_mutual, bias)
        queued = np.where(mutual, moved, queued)
    fleet, scatter = centre(bias[mutual])
    y = np.where(mutual, y_mutual, np.where(has_ab, y - fleet, y + fleet))
    sigma = np.where(mutual, sigma_mutual, np.hypot(one_sided, scatter))
    sigma_bias = np.where(mutual, np.sqrt(sigma_bias**2 + scatter**2), np.inf)
    if ways is not None and mutual.any():
        disputed = _disputed(bias - fleet, sigma_bias)
        ways.floors.dispute(name[mutual], disputed[mutual], ways.instant_ns)
    return PairEdges(a, b, y, sigma, queued, mutual, bias - fleet, sigma_bias, of_fit)


def _disputed(bias_ns: F64, sigma_ns: F64) -> Bool:
    return np.asarray(np.isfinite(bias_ns) & (np.abs(bias_ns) > REJECT_SIGMAS * sigma_ns))


def _sorted(key: I64) -> tuple[I64, I64]:
    """Keys (>= 0) in ascending order, and where each was; packed into one word where they fit."""
    bits = len(key).bit_length()
    if int(key.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(key)
        return key[order], order
    packed = key << bits
    packed |= np.arange(len(key))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def _weigh_ways(
    ways: Ways, name: I64, of_both: Callable[..., F64], half_y: F64, half_sum: F64
) -> tuple[F64, F64, F64, F64, F64]:
    """From the four lines of each mutual pair, one estimate of y.

    Queues only ever add to a margin, so what the two ends disagree by is read from the floors; a lie
    takes from one margin what it gives to the other, and shows there at once.

    Args:
        ways: the lines.
        name: int64 [pairs], ascending, the same for a pair each time.
        of_both: the sum, or with `signed` the difference, of the two directions' values of each pair.
        half_y: float64 [pairs], half the difference of the directed fits.
        half_sum: float64 [pairs], half their sum; NaN where not mutual.

    Returns:
        (y, its standard error, what queues may have moved it by, bias, its standard error), float64 [pairs]; of use only where mutual.
    """
    skew, mean = of_both(ways.margin_ns, signed=True) / 2, of_both(ways.margin_ns) / 2
    y = np.stack((half_y + skew, half_y - skew))
    margins = np.stack((mean + half_sum, mean - half_sum))
    variances = [of_both(np.square(s)) for s in (ways.sigma_out_ns, ways.sigma_back_ns)]
    lines = np.sqrt(np.stack(variances)) / 2
    floors, sigma_floors = ways.floors.update(name, margins, lines, ways.instant_ns)
    surely = surely_queued(margins, at_most(floors, sigma_floors)) / QUEUED_SIGMAS
    queued = np.fmax(queued_sigma(margins, floors, sigma_floors), surely)
    sigma = np.maximum(lines, queued)
    weight = sigma**-2.0
    total = weight.sum(axis=0)
    moved = (weight * np.where(queued > lines, QUEUED_SIGMAS * queued, 0.0)).sum(axis=0) / total
    # Floors that were learnt under load may be off by what the lines are off by now.
    variance_bias = np.square(sigma_floors).sum(axis=0) / 4 + 1 / total
    return (
        (weight * y).sum(axis=0) / total,
        total**-0.5,
        moved,
        (floors[0] - floors[1]) / 2,
        np.sqrt(variance_bias),
    )
