"""Which hosts' clocks have changed of late, and how they go since: kept beside the tracks of all others."""

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, LONG_AGO, NOTICED_WITHIN_NS, NS_PER_S, Bool
from cwdp.shared.clocksync.edge.fit import FitReason
from cwdp.shared.clocksync.graph.blame import blame
from cwdp.shared.clocksync.graph.pairs import PairFloors
from cwdp.shared.clocksync.graph.solve import GraphEdges, OwnFits, Prediction
from cwdp.shared.clocksync.ranks import value_at_rank
from cwdp.shared.clocksync.timeline.changed_hosts import SPREAD_NS, fuse, place
from cwdp.shared.clocksync.timeline.hostlines import HostLines

_REMEMBERED_NS = 9_000_000_000
_LEAST_RATE = 1e-6
_RATE_SURCHARGE = 1.0


class Changes:
    """The hosts whose clocks have changed, from when their edges say so until these are as old as others.

    Attributes:
        now: bool [hosts].
        since_ns: int64 [hosts], global time of the last change; LONG_AGO where there was none.
        found: bool [hosts], placed by the newest fits.
        lines: where they are now; of use where `now`.
    """

    def __init__(self, n_hosts: int) -> None:
        self.now, self.found = np.zeros(n_hosts, bool), np.zeros(n_hosts, bool)
        self.since_ns = np.full(n_hosts, LONG_AGO)
        self.lines = HostLines.nothing(n_hosts)
        self._beginning = np.zeros(n_hosts, bool)
        self._var_before, self._wildest_ns = np.zeros(n_hosts), np.zeros(n_hosts)

    def resize(self, n_hosts: int) -> None:
        """Add empty slots at the end, or drop the last ones."""
        fresh, kept = Changes(n_hosts), min(n_hosts, len(self.now))
        for name in ("now", "found", "since_ns", "_var_before", "_wildest_ns"):
            getattr(fresh, name)[:kept] = getattr(self, name)[:kept]
        fresh.lines = self.lines.resized(n_hosts)
        self.__dict__ = fresh.__dict__

    def clear(self, slots: I64) -> None:
        """Forget the hosts of some slots."""
        self.now[slots] = self.found[slots] = False
        self.since_ns[slots] = LONG_AGO

    def go_on(self, hosts: Bool, instant_ns: int) -> None:
        """Some hosts' clocks, bool [hosts], go as before again from a global time on; fits that rest on more are not of now."""
        self.now[hosts] = self.found[hosts] = False
        self.since_ns[hosts] = instant_ns

    def note(self, edges: GraphEdges, tracks: HostLines, known: Bool) -> Bool:
        """See from the edges whose clocks have changed; `begin` comes next.

        Returns:
            bool [hosts], those whose last change is over: they have settled since, or have changed once more.

        Args:
            edges: all fits that are fresh.
            tracks: where every clock is, or would be had it not changed.
            known: bool [hosts], has a track.
        """
        n = len(known)
        judged = edges.fits.valid | (edges.fits.reason == FitReason.CUT)
        told = np.bincount(edges.src, edges.own, n) > np.bincount(edges.src, minlength=n) / 2
        judged &= ~(told[edges.src] | told[edges.dst])
        changed = blame(n, edges.src[judged], edges.dst[judged], edges.young[judged])
        changed = self._with_cut_off((changed | told) & known, edges) & known
        fresh, over, again = changed & ~self.now, self.now & ~changed, changed & self.now
        again &= self._last_changes(edges, tracks) > self.since_ns + NOTICED_WITHIN_NS
        self.now, self._beginning = changed, fresh | again
        return np.asarray(over | again)

    def _last_changes(self, edges: GraphEdges, tracks: HostLines) -> I64:
        """Since when most of each host's young edges say that clocks go otherwise, LONG_AGO without one: int64 [hosts]."""
        end, since_ns = _young_ends(edges), np.tile(self._since(edges, tracks)[edges.young], 2)
        count = np.bincount(end, minlength=len(self.now))
        last_ns = np.full(len(count), LONG_AGO)
        last_ns[count > 0] = value_at_rank(end, since_ns, count, (count - 1) // 4)
        return last_ns

    def _with_cut_off(self, changed: Bool, edges: GraphEdges) -> Bool:
        """Those too that some edge says it of, and that no edge ties any more to one that goes on as before."""
        n = len(changed)
        accused = np.bincount(edges.src, edges.young, n) + np.bincount(edges.dst, edges.young, n) > 0
        while True:
            steady = edges.fits.valid & ~edges.young & ~(changed[edges.src] | changed[edges.dst])
            tied = np.bincount(edges.src, steady, n) + np.bincount(edges.dst, steady, n) > 0
            fresh = accused & ~tied & ~changed
            if not fresh.any():
                return changed
            changed = changed | fresh

    def begin(self, edges: GraphEdges, tracks: HostLines) -> None:
        """Have those that `note` found to have just changed leave their tracks, at a rate as large as was seen."""
        fresh = self._beginning
        if not fresh.any():
            return
        rate = np.zeros(len(fresh))
        np.maximum.at(rate, _young_ends(edges), np.tile(edges.apart[edges.young], 2))
        self.since_ns = np.where(fresh, self._last_changes(edges, tracks), self.since_ns)
        wildest = (_RATE_SURCHARGE * rate + _LEAST_RATE) * NS_PER_S
        self._wildest_ns = np.where(fresh, wildest, self._wildest_ns)
        back_s = (tracks.ref_ns - self.since_ns) / NS_PER_S
        before = tracks.var - back_s * (2 * tracks.cov - back_s * tracks.var_drift)
        self._var_before = np.where(fresh, np.clip(before, 1.0, tracks.var + 1.0), self._var_before)
        coasting = tracks.moved(
            np.zeros(len(fresh)),
            tracks.drift_ns,
            self._var_before + SPREAD_NS**2 + (wildest * back_s) ** 2,
            wildest**2 * back_s,
            wildest**2,
        )
        self.lines = coasting.where(fresh, self.lines)

    def touches(self, edges: GraphEdges) -> Bool:
        """Bool [fits], with an end that has changed."""
        return np.asarray(self.now[edges.src] | self.now[edges.dst])

    def rests_on_before(self, edges: GraphEdges, tracks: HostLines) -> Bool:
        """Bool [fits], whose window reaches back beyond a change of one of its ends that others have noticed."""
        last = np.maximum(self.since_ns[edges.src], self.since_ns[edges.dst])
        recent = tracks.ref_ns[edges.src] - last < _REMEMBERED_NS
        return np.asarray(recent & (self._since(edges, tracks) < last - NOTICED_WITHIN_NS))

    def _since(self, edges: GraphEdges, tracks: HostLines) -> I64:
        """Global time from which on fits rest on data, LONG_AGO for those with whole windows: int64 [fits]."""
        cut = edges.since_ns != LONG_AGO
        return np.where(cut, edges.since_ns + tracks.g_ns[edges.src], LONG_AGO)

    def place(
        self,
        edges: GraphEdges,
        own: OwnFits,
        tracks: HostLines,
        known: Bool,
        *,
        wander: F64,
        floors: PairFloors,
    ) -> None:
        """Find the changed hosts anew from what was measured since.

        Args:
            edges: all fits that are fresh.
            own: what hosts say of themselves.
            tracks: where the others are, and where the changed would be.
            known: bool [hosts], has a track.
            wander: float64 [hosts], random walk of frequency, per sqrt(s).
            floors: of all pairs.
        """
        self.found = np.zeros(len(known), bool)
        usable = edges.fits.valid & self.touches(edges) & ~self.rests_on_before(edges, tracks)
        usable &= known[edges.src] & known[edges.dst]
        edges, own = edges.where(usable), own.where(self.now[own.host])
        if len(edges.src) + len(own.host) == 0:
            return
        instant = self._newest(edges, own, tracks)
        before, here = tracks.at(instant, wander), self.lines.at(instant, wander)
        here = here.where(self.now, before)
        prediction = Prediction(
            instant, here.g_ns, known, here.drift_ns / NS_PER_S, np.full(len(known), np.inf)
        )
        placed = place(edges, own, self.now, prediction=prediction, before=before, floors=floors)
        if placed is None:
            return
        moved = placed.against((here.g_ns - before.g_ns) - before.frac_ns)
        since_s = (instant - self.since_ns) / NS_PER_S
        fused = fuse(moved, before.drift_ns, self._var_before, since_s, self._wildest_ns)
        anew = before.moved(
            fused.ahead_ns, before.drift_ns + fused.drift_ns, fused.var, fused.cov, fused.var_drift
        )
        self.found = placed.found
        self.lines = anew.where(self.found, self.lines)

    def _newest(self, edges: GraphEdges, own: OwnFits, tracks: HostLines) -> int:
        """Median global time of the fits' references; never before that of the tracks."""
        g_ns = np.where(self.now, self.lines.g_ns, tracks.g_ns)
        times_ns = np.append(edges.fits.ref_ns + g_ns[edges.src], own.ref_ns + g_ns[own.host])
        return max(int(np.median(times_ns)), int(tracks.ref_ns[0]))


def _young_ends(edges: GraphEdges) -> I64:
    """The initiators of all young fits, then their responders."""
    return np.concatenate((edges.src[edges.young], edges.dst[edges.young]))
