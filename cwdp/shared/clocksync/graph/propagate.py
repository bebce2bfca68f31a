"""First guesses of g = global - local for hosts that have no prediction, along a tree of edges."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, Bool
from cwdp.shared.clocksync.edge.fit import EdgeFits
from cwdp.shared.clocksync.graph.laplacian import Nodes


def line_at(fits: EdgeFits, local_ns: I64) -> tuple[I64, F64]:
    """The fitted offset B minus A at the initiator's time given: (int64 ns, float64 ns) [edges]."""
    return fits.offset_ns, fits.offset_frac_ns + fits.slope * (local_ns - fits.ref_ns).astype(np.float64)


def components(n_nodes: int, a: Nodes, b: Nodes) -> I64:
    """The number of the component of each node: int64 [nodes]."""
    graph = sparse.coo_array((np.ones(len(a)), (a, b)), (n_nodes, n_nodes))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


def propagate(
    src: I64, dst: I64, fits: EdgeFits, g_ns: I64, known: Bool, *, instant_ns: int | None
) -> tuple[I64, Bool, int]:
    """Carry g from hosts that have it to all that edges lead to.

    Components without any known host begin at one of theirs, with a timeline of their own.

    Args:
        src: int64 [fits], initiators.
        dst: int64 [fits], responders.
        fits: the valid fits.
        g_ns: int64 [nodes], right where `known`.
        known: bool [nodes].
        instant_ns: the global time that g is for; None where there is no timeline yet.

    Returns:
        (g int64 [nodes], known bool [nodes], instant).
    """
    g_ns, known = g_ns.copy(), known.copy()
    component = components(len(known), src, dst)
    size = np.bincount(component[src], minlength=len(known))
    order = np.argsort(-size[component[src]], kind="stable")
    if instant_ns is None:
        instant_ns = int(fits.ref_ns[order[0]])
    _, first = np.unique(component[src][order], return_index=True)
    has_known = np.bincount(component, known, len(known)) > 0
    for edge in order[np.sort(first)]:
        if not has_known[component[src[edge]]]:
            g_ns[src[edge]] = instant_ns - fits.ref_ns[edge]
            known[src[edge]] = True
    while _spread(src, dst, fits, g_ns, known, instant_ns=instant_ns):
        pass
    return g_ns, known, instant_ns


def _spread(src: I64, dst: I64, fits: EdgeFits, g_ns: I64, known: Bool, *, instant_ns: int) -> bool:
    """One hop along every edge with one known end, in place; whether there was any."""
    out = np.flatnonzero(known[src] & ~known[dst])
    back = np.flatnonzero(known[dst] & ~known[src])
    if not (out.size or back.size):
        return False
    base = fits.offset_ns[out]
    elapsed = (instant_ns - g_ns[src[out]] - fits.ref_ns[out]).astype(np.float64)
    theta_out = base + np.rint(fits.offset_frac_ns[out] + fits.slope[out] * elapsed).astype(np.int64)
    # The responder's clock shows b when the initiator's shows ref + (b - ref - offset) / (1 + slope).
    since_ref = (instant_ns - g_ns[dst[back]] - fits.ref_ns[back] - fits.offset_ns[back]).astype(np.float64)
    elapsed = (since_ref - fits.offset_frac_ns[back]) / (1 + fits.slope[back])
    theta_back = fits.offset_ns[back] + np.rint(
        fits.offset_frac_ns[back] + fits.slope[back] * elapsed
    ).astype(np.int64)
    nodes = np.concatenate((dst[out], src[back]))
    values = np.concatenate((g_ns[src[out]] - theta_out, g_ns[dst[back]] + theta_back))
    # Where several edges reach a host, the one of least sigma is written last.
    sigma = np.concatenate((fits.sigma_offset_ns[out], fits.sigma_offset_ns[back]))
    order = np.argsort(-sigma, kind="stable")
    g_ns[nodes[order]] = values[order]
    known[nodes] = True
    return True


def sigma_at(fits: EdgeFits, local_ns: I64, wander: F64 | float) -> F64:
    """Standard error of `line_at`: float64 [edges], ns; wander per sqrt(s)."""
    gap_s = (local_ns - fits.ref_ns) / NS_PER_S
    slope_ns = fits.sigma_slope * NS_PER_S * gap_s
    walk_ns2 = (wander * NS_PER_S) ** 2 / 3 * np.abs(gap_s * gap_s * gap_s)
    return np.sqrt(fits.sigma_offset_ns * fits.sigma_offset_ns + slope_ns * slope_ns + walk_ns2)
