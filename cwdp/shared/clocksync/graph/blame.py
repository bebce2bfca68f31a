"""Which hosts to blame for edges that do not fit."""

import numpy as np

from cwdp.shared.clocksync._types import I64, Bool

_MOST = 0.5
_LEAST_BAD_EDGES = 2


def blame(n_nodes: int, a: I64, b: I64, bad: Bool) -> Bool:
    """Name the hosts most of whose edges are bad, the worst first.

    A bad edge accuses both ends, but once one end is named, the edge speaks against the other no
    more. Only a host at least as bad as every host that it has a bad edge with is named.

    Args:
        n_nodes: how many nodes there are.
        a: int64 [edges], one end.
        b: int64 [edges], the other end.
        bad: bool [edges].

    Returns:
        bool [nodes].
    """
    named = np.zeros(n_nodes, bool)
    while True:
        open_edge = ~(named[a] | named[b])
        guilty = open_edge & bad
        if not guilty.any():
            return named
        total = np.bincount(a[open_edge], minlength=n_nodes) + np.bincount(b[open_edge], minlength=n_nodes)
        a_bad, b_bad = a[guilty], b[guilty]
        count = np.bincount(a_bad, minlength=n_nodes) + np.bincount(b_bad, minlength=n_nodes)
        share = count / np.maximum(total, 1)
        worst_peer = np.zeros(n_nodes)
        np.maximum.at(worst_peer, a_bad, share[b_bad])
        np.maximum.at(worst_peer, b_bad, share[a_bad])
        fresh = (share > _MOST) & (count >= _LEAST_BAD_EDGES) & (share >= worst_peer) & ~named
        if not fresh.any():
            return named
        named |= fresh
