"""The links of all paths from one snapshot to the next, where little has changed and nothing is in doubt. Pure, over arrays.

Where each hop of each path answers, and each link is told of by two hosts at least, votes and completion come to what
was told, path by path. So as long as that stays so only the paths that are others need be looked at, and whether the links
that they cross, or did, are still told of by two hosts.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from manager.fabric.completion import LinkNumbers, is_plain
from manager.fabric.routes import DirectedLink
from manager.fabric.traces import UNKNOWN, Claims, Rows
from manager.fabric.votes import chains

I32 = NDArray[np.int32]


def further(
    crossed: I32,
    touched: Rows,
    claims: Claims,
    host_of: Callable[[Rows], I32],
    *,
    names: Sequence[str],
    numbers: LinkNumbers,
) -> I32 | None:
    """The links of each path now; None where all have to be voted on.

    Args:
        crossed: those of before, by row, UNKNOWN behind the last one, shape (rows, most links); all rows were plain, and
            each link was told of by two hosts.
        touched: the rows that were added, changed or dropped since.
        claims: those of them that there are.
        host_of: the number of the host that told of each row.
        names: of nodes, by number.
        numbers: of links; none is added.
    """
    new = _numbered(claims, names, numbers) if is_plain(claims).all() else None
    if new is None:
        return None
    width = max(crossed.shape[1], new.shape[1])
    found = np.full((len(crossed), width), UNKNOWN, np.int32)
    found[:, : crossed.shape[1]] = crossed
    before = crossed[touched]
    found[touched] = UNKNOWN
    found[claims.row, : new.shape[1]] = new
    links = np.concatenate([before[before >= 0], new[new >= 0]])
    return found if _are_corroborated(links, found, host_of, numbers) else None


def _numbered(claims: Claims, names: Sequence[str], numbers: LinkNumbers) -> I32 | None:
    """The links of plain rows, shape (n, most links); None where one has no number."""
    chain = chains(claims)
    a, b = chain[:, :-1].astype(np.int64), chain[:, 1:]
    is_link = (a != UNKNOWN) & (b != UNKNOWN)
    links, which = np.unique((a * len(names) + b)[is_link], return_inverse=True)
    ends = (divmod(link, len(names)) for link in links.tolist())
    number = [numbers.known(DirectedLink(names[one], names[other])) for one, other in ends]
    if None in number:
        return None
    found = np.full(is_link.shape, UNKNOWN, np.int32)
    found[is_link] = np.array(number, np.int32)[which]
    return found[:, : int(is_link.sum(axis=1).max(initial=1))]


def _are_corroborated(
    links: NDArray[np.int32], crossed: I32, host_of: Callable[[Rows], I32], numbers: LinkNumbers
) -> bool:
    """Whether two hosts cross each of some links that any crosses, in either direction."""
    cable = np.array([*numbers.cable, UNKNOWN], np.int32)
    is_asked = np.zeros(len(cable), bool)
    is_asked[cable[links]] = True
    row, place = np.nonzero(is_asked[cable[crossed]])
    asked, host = cable[crossed[row, place]], host_of(row)
    first = np.full(len(cable), np.iinfo(np.int32).max, np.int32)
    last = np.full(len(cable), -1, np.int32)
    np.minimum.at(first, asked, host)
    np.maximum.at(last, asked, host)
    return bool((first[asked] < last[asked]).all())
