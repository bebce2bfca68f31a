"""An InfiniBand subnet's links as the manager's model and its views have them. Pure, over arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.counters import NAMES, WORD_BYTES
from manager.fabric.routes import DirectedLink
from manager.ib.subnets import SubnetNow

_SENT = NAMES.index("sent_words")


@dataclass(frozen=True, eq=False)
class LinkRates:
    """Links, each way by itself; cables between the same two switches are one. Arrays of shape (links,).

    Attributes:
        links: their ends.
        load_bps: what leaves by their ports; NaN where it is not known.
        capacity_bps: of all cables together; NaN where it is not known.
    """

    links: Sequence[DirectedLink]
    load_bps: NDArray[np.float64]
    capacity_bps: NDArray[np.float64]


def link_rates(now: SubnetNow) -> LinkRates:
    """Of all links that are there."""
    links = now.links
    number = {link: i for i, link in enumerate(links)}
    ends, pairs = now.names.ends, now.subnet.links
    leaves = np.concatenate([pairs[:, 0], pairs[:, 1]])
    enters = np.concatenate([pairs[:, 1], pairs[:, 0]])
    of = np.array(
        [
            number[DirectedLink(ends[a], ends[b])]
            for a, b in zip(leaves.tolist(), enters.tolist(), strict=True)
        ],
        np.intp,
    )
    capacity_bps = now.subnet.rates_bps[leaves]
    growth = now.growth
    sent = np.full(len(leaves), np.nan) if growth is None else growth.per_s[leaves, _SENT]
    load_bps = 8.0 * WORD_BYTES * sent
    capacity_bps[capacity_bps == 0] = np.nan
    return LinkRates(links, _sums(of, load_bps, len(links)), _sums(of, capacity_bps, len(links)))


def _sums(of: NDArray[np.intp], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    return np.bincount(of, values, count).astype(np.float64)
