"""One-way delays of every path over a sliding window, in arrays: 640 bytes a path.

Each path has a ring of `SLOTS` slots, one for each report in which it appeared; paths of one report lie side by side
in each slot. A slot holds what the agent said of the probes since its last report: how many, and the least, median
and 99th percentile of their delays. Quantiles over the window pool the slots as three-point distributions, which is
exact up to three probes a slot and errs to the high side beyond.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.edges import COUNTS, DELAYS, NO_BOUND_NS, PATH_ROW, EdgeRows, Ends
from cwdp.shared.bus.messages import host_of, nic_id
from cwdp.shared.bus.records import NO_DELAY_NS
from manager.clock.apart import OURS
from manager.paths.far import on_our_timeline, widened_ns
from manager.paths.rows import with_more

SLOTS = 12
"""As many reports tell of paths in `WINDOW_S`, each second by a loop that comes round a little early, and one more."""

WINDOW_S = 10.0
FORGET_AFTER_S = 30.0
NO_DELAY = NO_DELAY_NS
MAX_DELAY = np.iinfo(np.int32).max
TOP_SHARE = 1 / 64
LEAST_SHARE = 1 / 4

ONE_WAY = tuple(name for name in DELAYS if name != "rtt_min_ns")
COLUMNS = (*COUNTS, *DELAYS, "bound_ns")

_ENDS = ("src", "dst", "sport", "reply_sport")
_END_BYTES = 8
assert PATH_ROW.names is not None
assert PATH_ROW.names[:4] == _ENDS
assert PATH_ROW.fields is not None
assert PATH_ROW.fields[COUNTS[0]][1] == _END_BYTES

PathKey = tuple[str, str, int, int]
Delays = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Paths:
    """All paths over the window; arrays of shape (paths,), delays float64 ns with NaN for unknown.

    `bound_ns` is the widest bound that any of the delays came with.
    """

    keys: list[PathKey]
    sent: NDArray[np.int64]
    lost: NDArray[np.int64]
    queued: NDArray[np.int64]
    delays: dict[str, Delays]
    bound_ns: Delays
    age_s: Delays


@dataclass(frozen=True, kw_only=True)
class Extremes:
    """All paths over the window, without quantiles over it, which take long; arrays as in `Paths`.

    The medians are the last reports', the 99th percentiles the largest of any report.
    """

    keys: list[PathKey]
    sent: NDArray[np.int64]
    lost: NDArray[np.int64]
    delays: dict[str, Delays]


@dataclass(frozen=True)
class _Arrived:
    """The paths of a host's last report, where they are kept, and whether they are its own, each once; shape (paths,).

    `dst_hosts` are those of its list of NICs that paths lead to.
    """

    ends: Ends
    dst_hosts: list[str]
    rows: NDArray[np.int64]
    is_own: NDArray[np.bool_]


class OwdStore:
    """Takes in reports' path statistics and answers for the last `WINDOW_S` seconds.

    Times are seconds of the manager's monotonic clock. `totals` counts probes since the start.
    """

    def __init__(self) -> None:
        self.totals = Counter(dict.fromkeys(COUNTS, 0))
        self._rows: dict[PathKey, int] = {}
        self._arrived: dict[str, _Arrived] = {}
        self._free: list[int] = []
        self._next = np.zeros(0, np.int64)
        self._when_s = np.zeros((SLOTS, 0), np.float64)
        self._columns = {name: np.zeros((SLOTS, 0), np.int32) for name in COLUMNS}

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        host: str,
        told: EdgeRows,
        now_s: float,
        ahead_of: Callable[[str], tuple[int, float] | None] = lambda _host: OURS,
    ) -> int:
        """Take in the PATH_ROWs of a host's report.

        Args:
            host: whose report it is.
            told: its paths.
            now_s: the time.
            ahead_of: how far the timeline of a host was ahead of this one meanwhile, and how far off that may be, in ns;
                None where that is not known. One-way delays to such hosts are not known, round trips are.

        Returns:
            How many were not taken: of other hosts' NICs, twice there, or with more lost than sent.
        """
        try:
            stats = told.read(PATH_ROW)
        except ValueError:
            return 1
        if not len(stats):
            return 0
        arrived = self._arrived_of(host, told, stats)
        taken = arrived.is_own & (stats["lost"] <= stats["sent"])
        rows, all_told = arrived.rows, len(stats)
        ahead = [ahead_of(host_of(dst)) for dst in told.dsts]
        if any(each != OURS for each in ahead):
            stats = _on_our_timeline(stats, ahead)
        if not taken.all():
            rows, stats = rows[taken], stats[taken]
        slots = self._next[rows]
        self._next[rows] = (slots + 1) % SLOTS
        places = slots * len(self._next) + rows
        self._when_s.reshape(-1)[places] = now_s
        for name in DELAYS:
            self._columns[name].reshape(-1)[places] = stats[name]
        for name in COUNTS:
            self._columns[name].reshape(-1)[places] = np.minimum(stats[name], MAX_DELAY)
            self.totals[name] += int(stats[name].sum(dtype=np.int64))
        bound_ns = np.minimum(stats["bound_ns"], MAX_DELAY)
        bound_ns = np.where(stats["bound_ns"] == NO_BOUND_NS, NO_DELAY, bound_ns)
        self._columns["bound_ns"].reshape(-1)[places] = bound_ns
        return all_told - len(stats)

    def expire(self, now_s: float) -> None:
        """Forget paths that nobody has reported for a while."""
        newest = self._when_s.max(axis=0, initial=-np.inf)
        used = np.fromiter(self._rows.values(), np.int64, len(self._rows))
        old = set(used[now_s - newest[used] > FORGET_AFTER_S].tolist())
        if not old:
            return
        self._arrived.clear()
        self._free.extend(sorted(old))
        self._when_s[:, sorted(old)] = -np.inf
        self._rows = {key: row for key, row in self._rows.items() if row not in old}

    def snapshot(self, now_s: float) -> Paths:
        """Every path over the window that ends now; other threads may add and expire meanwhile."""
        keyed = list(self._rows.items())
        keys = [key for key, _ in keyed]
        rows = np.array([row for _, row in keyed], np.int64)
        current = self._when_s[:, rows] > now_s - WINDOW_S
        counts = {name: self._counts(name, rows, current) for name in COUNTS}
        answered = np.maximum(counts["sent"] - counts["lost"], 0)
        raw = {name: self._delay(name, rows, current) for name in DELAYS}
        delays = {"rtt_min_ns": _least(raw["rtt_min_ns"])}
        for way in ("fwd", "rev"):
            least, middle, top = (raw[f"{way}_{q}_ns"] for q in ("min", "p50", "p99"))
            delays[f"{way}_min_ns"] = _least(least)
            delays[f"{way}_p50_ns"], delays[f"{way}_p99_ns"] = _pooled(least, middle, top, answered)
        bound = np.fmax.reduce(self._delay("bound_ns", rows, current), axis=0, initial=-np.inf)
        return Paths(
            keys=keys,
            **{name: count.sum(axis=0) for name, count in counts.items()},
            delays=delays,
            bound_ns=np.where(np.isinf(bound), np.nan, bound),
            age_s=now_s - self._when_s[:, rows].max(axis=0, initial=-np.inf),
        )

    def extremes(self, now_s: float) -> Extremes:
        """Every path over the window that ends now, a tenth of the work of `snapshot`; other threads may go on too."""
        keyed = list(self._rows.items())
        rows = np.array([row for _, row in keyed], np.int64)
        current = self._when_s[:, rows] > now_s - WINDOW_S
        newest = (self._next[rows] - 1) % SLOTS
        is_new = current[newest, np.arange(len(rows))]
        delays = {}
        for way in ("fwd", "rev"):
            least = self._columns[f"{way}_min_ns"][:, rows]
            least = np.where(current & (least != NO_DELAY), least, MAX_DELAY).min(axis=0)
            top = np.where(current, self._columns[f"{way}_p99_ns"][:, rows], NO_DELAY).max(axis=0)
            middle = np.where(is_new, self._columns[f"{way}_p50_ns"][newest, rows], NO_DELAY)
            delays[f"{way}_min_ns"] = _known(least, MAX_DELAY)
            delays[f"{way}_p50_ns"] = _known(middle, NO_DELAY)
            delays[f"{way}_p99_ns"] = _known(top, NO_DELAY)
        sent, lost = (self._counts(name, rows, current).sum(axis=0) for name in ("sent", "lost"))
        return Extremes(keys=[key for key, _ in keyed], sent=sent, lost=lost, delays=delays)

    def _counts(self, name: str, rows: NDArray[np.int64], current: NDArray[np.bool_]) -> NDArray[np.int64]:
        """What was counted of some paths in each slot, shape (SLOTS, paths)."""
        return np.where(current, self._columns[name][:, rows], 0).astype(np.int64)

    def _delay(self, name: str, rows: NDArray[np.int64], current: NDArray[np.bool_]) -> Delays:
        values = self._columns[name][:, rows]
        return np.where(current & (values != NO_DELAY), values, np.nan)

    def _arrived_of(self, host: str, told: EdgeRows, stats: NDArray[np.void]) -> "_Arrived":
        """Where a report's paths are kept; most reports are of the same paths as the one before."""
        ends = told.ends(len(stats), _END_BYTES)
        known = self._arrived.get(host)
        if known is not None and known.ends == ends:
            return known
        own = nic_id(host, "")
        seen: set[PathKey] = set()
        rows, is_own = np.zeros(len(stats), np.int64), np.zeros(len(stats), bool)
        for i, (src, dst, sport, reply_sport) in enumerate(stats[[*_ENDS]].tolist()):
            key = told.srcs[src], told.dsts[dst], sport, reply_sport
            is_own[i] = key[0].startswith(own) and key not in seen
            if is_own[i]:
                seen.add(key)
                rows[i] = self._row(key)
        known = self._arrived[host] = _Arrived(ends, [host_of(dst) for dst in told.dsts], rows, is_own)
        return known

    def _row(self, key: PathKey) -> int:
        row = self._rows.get(key)
        if row is None:
            if not self._free:
                self._grow()
            row = self._rows[key] = self._free.pop()
        return row

    def _grow(self) -> None:
        """Make more room for paths."""
        old = len(self._next)
        more = max(64, old // 2)
        self._free.extend(range(old + more - 1, old - 1, -1))
        self._next = np.concatenate([self._next, np.zeros(more, np.int64)])
        self._when_s = with_more(self._when_s, more, range(SLOTS))
        self._when_s[:, old:] = -np.inf
        self._columns = {
            name: with_more(column, more, range(SLOTS)) for name, column in self._columns.items()
        }


def _on_our_timeline(stats: NDArray[np.void], ahead: Sequence[tuple[int, float] | None]) -> NDArray[np.void]:
    """PATH_ROWs with delays on this timeline, by what is known of each destination's."""
    stats, dst = stats.copy(), stats["dst"]
    is_known = np.array([each is not None for each in ahead], bool)[dst]
    ahead_ns, bounds_ns = (
        np.array([0 if each is None else each[which] for each in ahead], kind)[dst]
        for which, kind in ((0, np.int64), (1, np.float64))
    )
    for name in ONE_WAY:
        moved_ns = on_our_timeline(stats[name], name[:3], ahead_ns)
        stats[name] = np.where(is_known, np.where(ahead_ns == 0, stats[name], moved_ns), NO_DELAY)
    widened = widened_ns(stats["bound_ns"], bounds_ns)
    stats["bound_ns"] = np.where(is_known & (stats["bound_ns"] != NO_BOUND_NS), widened, NO_BOUND_NS)
    return stats


def _known(values: NDArray[np.int32], unknown: int) -> Delays:
    return np.where(values == unknown, np.nan, values.astype(np.float64))


def _least(values: Delays) -> Delays:
    """Minimum over axis 0 that ignores NaN; NaN where there is nothing else."""
    least = np.fmin.reduce(values, axis=0, initial=np.inf)
    return np.where(np.isinf(least), np.nan, least)


def _pooled(least: Delays, middle: Delays, top: Delays, answered: NDArray[np.int64]) -> tuple[Delays, Delays]:
    """Median and 99th percentile over slots of shape (SLOTS, paths): each slot is three weighted points."""
    least, middle, top = (np.ascontiguousarray(each.T) for each in (least, middle, top))
    count = np.ascontiguousarray(answered.T, np.float64)
    top_weight = np.minimum(count, np.maximum(1.0, TOP_SHARE * count))
    least_weight = np.minimum(count - top_weight, np.maximum(1.0, LEAST_SHARE * count))
    values = np.concatenate([least, middle, top], axis=1)
    weights = np.concatenate([least_weight, count - top_weight - least_weight, top_weight], axis=1)
    weights = np.where(np.isnan(values), 0.0, weights)
    order = np.argsort(values, axis=1)
    values = np.take_along_axis(values, order, axis=1)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    return _quantile(values, reached, 0.5), _quantile(values, reached, 0.99)


def _quantile(values: Delays, reached: Delays, share: float) -> Delays:
    """The first value in each row at which the running weight reaches `share` of the whole."""
    total = reached[:, -1:]
    index = np.argmax(reached >= share * total, axis=1)
    chosen = np.take_along_axis(values, index[:, None], axis=1)[:, 0]
    return np.where(total[:, 0] > 0, chosen, np.nan)
