"""What is measured of links and of pairs of leaves at some instant, as the rings take it. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import Routes
from manager.history.coding import LOAD, LOSS, OWD_MIN, OWD_P50, OWD_P99, QUEUE_P50, QUEUE_P99, Floats
from manager.history.measured import Name
from manager.ib.links import LinkRates
from manager.links.loads import LinkLoads
from manager.paths.owd import Extremes

STALE_S = 5.0
LINK_FIELDS = (QUEUE_P50.name, QUEUE_P99.name, LOAD.name, LOSS.name)

Sums = NDArray[np.floating | np.signedinteger]


@dataclass(frozen=True)
class Sample:
    """Values by the fields' names, NaN for unknown; shape (names,)."""

    names: Sequence[Name]
    values: dict[str, Floats]


def of_links(loads: LinkLoads, now_s: float) -> Sample | None:
    """The links' queues, loads and losses; None where they are not of now, or there are none.

    Args:
        loads: the latest.
        now_s: the manager's monotonic clock.
    """
    if now_s - loads.time_s > STALE_S or not loads.routes.links:
        return None
    values = {
        QUEUE_P50.name: loads.queue_p50_ns,
        QUEUE_P99.name: loads.queue_p99_ns,
        LOAD.name: loads.load_bps,
        LOSS.name: loads.loss,
    }
    return Sample(loads.routes.links, values)


def with_infiniband(sample: Sample | None, rates: Sequence[LinkRates]) -> Sample | None:
    """A sample of links with the loads of InfiniBand's behind the others; of these nothing else is measured."""
    links = [link for one in rates for link in one.links]
    if not links:
        return sample
    before = Sample([], {name: np.zeros(0) for name in LINK_FIELDS}) if sample is None else sample
    unknown = np.full(len(links), np.nan)
    more = dict.fromkeys(LINK_FIELDS, unknown) | {LOAD.name: np.concatenate([one.load_bps for one in rates])}
    values = {name: np.concatenate([before.values[name], more[name]]) for name in LINK_FIELDS}
    return Sample([*before.names, *links], values)


def of_leaf_pairs(paths: Extremes, routes: Routes) -> Sample | None:
    """The delays between leaves, over all paths between their NICs; None where there are none.

    The median is the mean of the paths' medians, the 99th percentile that of the worst path.
    """
    seats = routes.first_switch
    leaves = {leaf: number for number, leaf in enumerate(dict.fromkeys(seats.values()))}
    at = {nic: leaves[leaf] for nic, leaf in seats.items()}
    src = np.array([at.get(key[0], -1) for key in paths.keys], np.int64)
    dst = np.array([at.get(key[1], -1) for key in paths.keys], np.int64)
    known = (src >= 0) & (dst >= 0)
    if not known.any():
        return None
    src, dst = src[known], dst[known]
    count = len(leaves)
    pair = np.concatenate([src * count + dst, dst * count + src])
    groups, group = np.unique(pair, return_inverse=True)
    both = {
        name: np.concatenate([paths.delays[f"{way}_{name}_ns"][known] for way in ("fwd", "rev")])
        for name in ("min", "p50", "p99")
    }
    sent, lost = (np.tile(each[known].astype(np.float64), 2) for each in (paths.sent, paths.lost))
    values = {
        OWD_P50.name: _mean(both["p50"], group, len(groups)),
        OWD_P99.name: _reduced(np.fmax, both["p99"], group, len(groups)),
        OWD_MIN.name: _reduced(np.fmin, both["min"], group, len(groups)),
        LOSS.name: _ratio(np.bincount(group, lost), np.bincount(group, sent)),
    }
    names = list(leaves)
    return Sample([(names[each // count], names[each % count]) for each in groups.tolist()], values)


def _mean(values: Floats, group: NDArray[np.intp], groups: int) -> Floats:
    known = np.isfinite(values)
    total = np.bincount(group[known], values[known], groups)
    return _ratio(total, np.bincount(group[known], minlength=groups))


def _reduced(by: np.ufunc, values: Floats, group: NDArray[np.intp], groups: int) -> Floats:
    found = np.full(groups, np.nan)
    by.at(found, group, values)
    return found


def _ratio(part: Sums, whole: Sums) -> Floats:
    ratio: Floats = np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return ratio
