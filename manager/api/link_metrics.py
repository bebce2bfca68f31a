"""Metrics of links, added up by tier, rail and leaf, so that their number does not grow with the fabric's. Pure.

Of a fabric with more than `MOST_LEAVES` leaves the first of them by name have series of their own; the others are one
together, `other`. The same of rails.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import Metric

from manager.api.metric_families import NS, Labels, labelled_gauges, quantile_values
from manager.fabric.places import LEAF, NIC, LinkPlaces
from manager.links.loads import LinkLoads
from manager.view.link_table import Link

MOST_LEAVES = 1_024
MOST_RAILS = 64
OTHER = "other"
TIERS = ("nic", "1", "2", "3", "4", "unknown")
"""Ends of links; what is higher up than the fourth tier counts as the fourth."""

TROUBLE = (
    "dead", "silent", "flapping", "lossy", "bit_errors", "slow", "degraded", "slow_sender", "slow_receiver", "congested",
)  # fmt: skip
STATES = (*TROUBLE, "avoided", "full", "ok", "unknown")
BESIDE_LEAF = ("from_nics", "to_nics", "up", "down")
"""The links of a leaf: those that come from its NICs, that lead to them, up to other switches, and down from those."""

_PAIR = ("src_tier", "dst_tier")

Floats = NDArray[np.float64]
Numbers = NDArray[np.intp]


def link_metrics(loads: LinkLoads, places: LinkPlaces, states: Numbers) -> Iterator[Metric]:
    """Every metric of links.

    Args:
        loads: what is known of each link.
        places: where each is.
        states: the state of each, its number in `STATES`; shape (links,).
    """
    load_ratio = np.divide(
        loads.load_bps,
        loads.likely_capacity_bps,
        out=np.full(len(states), np.nan),
        where=loads.likely_capacity_bps > 0,
    )
    yield from _by_tier(loads, places, states, load_ratio)
    yield from _by_rail(loads, places, states)
    yield from _by_leaf(loads, places, states, load_ratio)


def link_states(
    loads: LinkLoads,
    places: LinkPlaces,
    wrong: Mapping[Link, str],
    avoided: Collection[Link],
) -> Numbers:
    """The state of each link, its number in `STATES`; shape (links,).

    Args:
        loads: what is known of each link.
        places: where each is.
        wrong: the gravest kind of finding about links that have one.
        avoided: links over which nothing is sent now.
    """
    unknown = ~np.isfinite(loads.queue_p50_ns) & ~np.isfinite(loads.loss)
    states = np.where(unknown, STATES.index("unknown"), STATES.index("ok"))
    states[loads.stands] = STATES.index("full")
    states[_known(places, avoided)] = STATES.index("avoided")
    for kind in set(wrong.values()) & set(TROUBLE):
        mine = [link for link, each in wrong.items() if each == kind]
        states[_known(places, mine)] = STATES.index(kind)
    return states


def _known(places: LinkPlaces, links: Collection[Link]) -> list[int]:
    return [places.numbers[link] for link in links if link in places.numbers]


def _by_tier(loads: LinkLoads, places: LinkPlaces, states: Numbers, load_ratio: Floats) -> Iterator[Metric]:
    top = len(TIERS) - 2
    src, dst = (np.minimum(tier, top) % len(TIERS) for tier in (places.src_tier, places.dst_tier))
    pair = src * len(TIERS) + dst
    counts: dict[Labels, float] = {}
    p50: dict[Labels, float] = {}
    p99: dict[Labels, float] = {}
    ratio: dict[Labels, float] = {}
    load: dict[Labels, float] = {}
    loss: dict[Labels, float] = {}
    for each in np.unique(pair).tolist():
        mine = pair == each
        key = TIERS[each // len(TIERS)], TIERS[each % len(TIERS)]
        by_state = np.bincount(states[mine], minlength=len(STATES)).tolist()
        counts |= {(*key, state): count for state, count in zip(STATES, by_state, strict=True)}
        p50 |= quantile_values(key, loads.queue_p50_ns[mine] * NS)
        p99 |= quantile_values(key, loads.queue_p99_ns[mine] * NS)
        ratio |= quantile_values(key, load_ratio[mine])
        load[key] = float(np.nansum(loads.load_bps[mine]))
        loss[key] = float(np.fmax.reduce(loads.loss[mine]))
    quantile = (*_PAIR, "quantile")
    yield labelled_gauges(
        "cwdp_links", "Links by the tiers of their ends and state.", (*_PAIR, "state"), counts
    )
    yield labelled_gauges("cwdp_link_queue_p50_seconds", "Median queue of a link, over links.", quantile, p50)
    yield labelled_gauges("cwdp_link_queue_p99_seconds", "p99 of a link's queue, over links.", quantile, p99)
    yield labelled_gauges("cwdp_link_load_ratio", "Load over capacity, over links.", quantile, ratio)
    yield labelled_gauges("cwdp_link_load_bps", "What links carry, added up.", _PAIR, load)
    yield labelled_gauges("cwdp_link_loss_max_ratio", "The largest loss of a link.", _PAIR, loss)


def _by_rail(loads: LinkLoads, places: LinkPlaces, states: Numbers) -> Iterator[Metric]:
    groups = _Groups(places.rail, places.rails, MOST_RAILS)
    label = ("rail",)
    trouble = groups.sums((states < len(TROUBLE)).astype(np.float64))
    yield labelled_gauges("cwdp_rail_links_in_trouble", "Links with a finding.", label, trouble)
    p99 = groups.largest(loads.queue_p99_ns * NS)
    yield labelled_gauges("cwdp_rail_queue_p99_max_seconds", "The longest p99 of a queue.", label, p99)
    yield labelled_gauges("cwdp_rail_load_bps", "What links carry.", label, groups.sums(loads.load_bps))
    loss = groups.largest(loads.loss)
    yield labelled_gauges("cwdp_rail_loss_max_ratio", "The largest loss of a link.", label, loss)


def _by_leaf(loads: LinkLoads, places: LinkPlaces, states: Numbers, load_ratio: Floats) -> Iterator[Metric]:
    groups = _Groups(places.leaf, places.leaves, MOST_LEAVES)
    trouble = groups.sums((states < len(TROUBLE)).astype(np.float64))
    yield labelled_gauges("cwdp_leaf_links_in_trouble", "Links with a finding.", ("leaf",), trouble)
    sides = _Groups(places.leaf, places.leaves, MOST_LEAVES, _sides(places), BESIDE_LEAF)
    labels = ("leaf", "links")
    p99 = sides.largest(loads.queue_p99_ns * NS)
    yield labelled_gauges("cwdp_leaf_queue_p99_max_seconds", "The longest p99 of a queue.", labels, p99)
    yield labelled_gauges("cwdp_leaf_load_bps", "What links carry.", labels, sides.sums(loads.load_bps))
    ratio = sides.largest(load_ratio)
    yield labelled_gauges("cwdp_leaf_load_max_ratio", "The largest load over capacity.", labels, ratio)
    loss = sides.largest(loads.loss)
    yield labelled_gauges("cwdp_leaf_loss_max_ratio", "The largest loss of a link.", labels, loss)


def _sides(places: LinkPlaces) -> Numbers:
    """Which of its leaf's links each is, its number in `BESIDE_LEAF`."""
    kinds = [places.src_tier == NIC, places.dst_tier == NIC, places.src_tier == LEAF]
    return np.select(kinds, [0, 1, 2], 3)


class _Groups:
    """Links in groups by place, the first `most` of them by themselves; perhaps split once more, by side."""

    def __init__(
        self,
        place: Numbers,
        names: Sequence[str],
        most: int,
        side: Numbers | None = None,
        sides: Sequence[str] = (),
    ) -> None:
        self._there = np.flatnonzero(place >= 0)
        width = max(1, len(sides))
        group = np.minimum(place[self._there], most) * width
        self._group = group if side is None else group + side[self._there]
        shown = [*names[:most], OTHER] if len(names) > most else list(names)
        self._keys: list[Labels] = [(name, each) for name in shown for each in sides] or [
            (name,) for name in shown
        ]

    def sums(self, values: Floats) -> dict[Labels, float]:
        """What is known of each group's values, added up."""
        found = np.zeros(len(self._keys))
        np.add.at(found, self._group, np.nan_to_num(values[self._there]))
        return self._keyed(found)

    def largest(self, values: Floats) -> dict[Labels, float]:
        """The largest of each group's values, NaN where none is known."""
        found = np.full(len(self._keys), np.nan)
        np.fmax.at(found, self._group, values[self._there])
        return self._keyed(found)

    def _keyed(self, found: Floats) -> dict[Labels, float]:
        return dict(zip(self._keys, found.tolist(), strict=True))
