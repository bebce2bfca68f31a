"""Which queue pairs belong together: those whose NICs talk to each other, directly or by others."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


def jobs(src: Sequence[str], dst: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The connected groups of NICs.

    Args:
        src: the NIC at one end of each queue pair.
        dst: the one at the other.

    Returns:
        The group of each queue pair, shape (n,), and how many NICs each group has, shape (groups,).
    """
    names, number = np.unique(np.array([*src, *dst], dtype=object), return_inverse=True)
    a, b = np.split(number, 2)
    graph = coo_array((np.ones(len(a)), (a, b)), shape=(len(names), len(names)))
    _, group = connected_components(graph, directed=False)
    return group[a].astype(np.intp), np.bincount(group).astype(np.intp)
