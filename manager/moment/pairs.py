"""What probes measured between NICs and between leaves, ready to be drawn. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from manager.history.measured import Measurement
from manager.moment.matrix import SCALES, Matrix, Metric, as_text, matrix
from manager.moment.parts import Parts
from manager.moment.talkers import Talkers
from manager.paths.owd import Extremes
from manager.view.json_values import Json, rounded
from manager.view.link_table import SHARE_DIGITS

Floats = NDArray[np.float64]
OWD = ("owd_min_ns", "owd_p50_ns", "owd_p99_ns")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of names, each way by itself, with what was measured; arrays of shape (pairs,).

    Attributes:
        names: what `src` and `dst` number.
        src, dst: the two ends, -1 for one that is not among the names.
        values: `OWD` and `loss`, NaN for unknown.
    """

    names: Sequence[str]
    src: NDArray[np.intp]
    dst: NDArray[np.intp]
    values: Mapping[str, Floats]

    @cached_property
    def least_ns(self) -> dict[tuple[str, str], float]:
        """The least delay of each pair of which it is known."""
        least = self.values["owd_min_ns"]
        return {
            (self.names[self.src[i]], self.names[self.dst[i]]): float(least[i])
            for i in np.flatnonzero(np.isfinite(least)).tolist()
        }

    @staticmethod
    def nothing(names: Sequence[str]) -> "Pairs":
        """No pair was measured."""
        none = np.zeros(0, np.intp)
        return Pairs(names, none, none, dict.fromkeys((*OWD, "loss"), np.zeros(0)))

    def metric(self, metric: Metric) -> Floats:
        """Values of a metric that is measured by probes."""
        if metric == "spread":
            return self.values["owd_p99_ns"] - self.values["owd_min_ns"]
        return self.values["owd_p50_ns" if metric == "p50" else "loss"]

    def between(self, src: str, dst: str) -> Json | None:
        """What is known of one pair; None where nothing is."""
        ends = [list(self.names).index(each) if each in self.names else -2 for each in (src, dst)]
        found = np.flatnonzero((self.src == ends[0]) & (self.dst == ends[1]))
        if not len(found):
            return None
        i = int(found[0])
        loss = float(self.values["loss"][i])
        return {
            "src_leaf": src,
            "dst_leaf": dst,
            **{key: rounded(float(self.values[key][i])) for key in OWD},
            "loss": round(loss, SHARE_DIGITS) if np.isfinite(loss) else None,
        }

    def grouped(self, group_of: Mapping[str, str], groups: Sequence[str]) -> "Pairs":
        """The same between groups: the least, the mean of the medians, the largest; loss as a mean."""
        number = {group: i for i, group in enumerate(groups)}
        at = np.array([number.get(group_of.get(name, ""), -1) for name in self.names] or [-1], np.intp)
        src, dst = at[self.src], at[self.dst]
        known = (src >= 0) & (dst >= 0) & (self.src >= 0) & (self.dst >= 0)
        pair = src[known] * len(groups) + dst[known]
        found, which = np.unique(pair, return_inverse=True)
        least, middle, top, loss = (self.values[key][known] for key in (*OWD, "loss"))
        values = {
            "owd_min_ns": _reduced(np.fmin, least, which, len(found)),
            "owd_p50_ns": _mean(middle, which, len(found)),
            "owd_p99_ns": _reduced(np.fmax, top, which, len(found)),
            "loss": _mean(loss, which, len(found)),
        }
        return Pairs(groups, found // len(groups), found % len(groups), values)


def of_nics(paths: Extremes) -> Pairs:
    """All probed pairs of NICs, each path a row there and a row back."""
    at: dict[str, int] = {}
    src = np.array([at.setdefault(key[0], len(at)) for key in paths.keys], np.intp)
    dst = np.array([at.setdefault(key[1], len(at)) for key in paths.keys], np.intp)
    with np.errstate(invalid="ignore", divide="ignore"):
        loss = np.where(paths.sent > 0, paths.lost / paths.sent, np.nan)
    values = {
        f"owd_{name}_ns": np.concatenate([paths.delays[f"{way}_{name}_ns"] for way in ("fwd", "rev")])
        for name in ("min", "p50", "p99")
    }
    values["loss"] = np.tile(loss, 2)
    return Pairs(list(at), np.concatenate([src, dst]), np.concatenate([dst, src]), values)


def of_then(found: Measurement, leaves: Sequence[str]) -> Pairs:
    """Pairs of leaves as history has them."""
    number = {leaf: i for i, leaf in enumerate(leaves)}
    src, dst = (np.array([number.get(name[side], -1) for name in found.names], np.intp) for side in (0, 1))
    known = (src >= 0) & (dst >= 0)
    values = {key: np.asarray(found.values[key])[known] for key in (*OWD, "loss")}
    return Pairs(leaves, src[known], dst[known], values)


def leaf_matrix(metric: Metric, pairs: Pairs, parts: Parts, talkers: Talkers) -> Matrix:
    """The heat map of all pairs of leaves.

    Args:
        metric: which.
        pairs: of leaves.
        parts: whose leaves they are.
        talkers: what is sent between them, for `load`.
    """
    if metric != "load":
        return matrix(metric, pairs.names, pairs.src, pairs.dst, pairs.metric(metric))
    leaves = parts.leaves
    number = {leaf: i for i, leaf in enumerate(leaves)}
    ends = ([name.src for name in talkers.names], talkers.dst)
    src, dst = (
        np.array([number.get(parts.leaf_of.get(nic, ""), -1) for nic in side], np.intp) for side in ends
    )
    known = (src >= 0) & (dst >= 0)
    cells, which = np.unique(src[known] * max(1, len(leaves)) + dst[known], return_inverse=True)
    load_bps = np.bincount(which, np.nan_to_num(talkers.rate_bps[known]), len(cells)).astype(np.float64)
    return matrix(metric, leaves, cells // max(1, len(leaves)), cells % max(1, len(leaves)), load_bps)


def nic_matrix(
    pairs: Pairs, rows: Sequence[str], columns: Sequence[str], column_of: Mapping[str, str]
) -> Json:
    """The heat maps of some NICs.

    Args:
        pairs: of NICs.
        rows: the NICs that are sources.
        columns: NICs, or leaves.
        column_of: the column that each NIC belongs to.
    """
    row_at = {name: i for i, name in enumerate(rows)}
    column_at = {name: i for i, name in enumerate(columns)}
    src = np.array([row_at.get(name, -1) for name in pairs.names] or [-1], np.intp)[pairs.src]
    dst = np.array([column_at.get(column_of.get(name, ""), -1) for name in pairs.names] or [-1], np.intp)[
        pairs.dst
    ]
    known = (src >= 0) & (dst >= 0)
    metrics: tuple[Metric, ...] = ("spread", "p50", "loss")
    found = {}
    for metric in metrics:
        largest = np.full((len(rows), len(columns)), np.nan)
        np.fmax.at(largest, (src[known], dst[known]), pairs.metric(metric)[known])
        found[metric] = as_text(SCALES[metric].codes(largest))
    return {
        "rows": list(rows),
        "columns": list(columns),
        "metrics": found,
        "scales": {metric: SCALES[metric].as_json() for metric in metrics},
    }


def _mean(values: Floats, which: NDArray[np.intp], count: int) -> Floats:
    known = np.isfinite(values)
    total = np.bincount(which[known], values[known], count)
    weight = np.bincount(which[known], minlength=count)
    mean: Floats = np.divide(total, weight, out=np.full(count, np.nan), where=weight > 0)
    return mean


def _reduced(by: np.ufunc, values: Floats, which: NDArray[np.intp], count: int) -> Floats:
    found = np.full(count, np.nan)
    by.at(found, which, values)
    return found
