"""Which source ports to use, so that their paths have as little in common as can be, and when all paths have been found. Pure.

A path is the numbers of its links; its first and last one are the NICs' own and common to all paths of a pair.

The stopping rule is that of the Multipath Detection Algorithm (Augustin, Friedman, Teixeira, "Multipath tracing with Paris
traceroute", E2EMON 2007): with k + 1 equally likely paths, n ports miss a certain one with probability (k / (k + 1))^n, and
any of them with no more than k + 1 times that.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

Path = tuple[int, ...]

CONFIDENCE = 0.99
"""That all paths have been found."""


def _between_leaves(path: Path) -> Path:
    """The links of a path that are not its ends' own."""
    return path[1:-1]


def disjoint_ports(paths: Mapping[int, Path]) -> list[int]:
    """One port for each different path, such that the first few share as few links as can be.

    Among equals, ports come in the order of `paths`.
    """
    first_port: dict[Path, int] = {}
    for port, path in paths.items():
        first_port.setdefault(path, port)
    left = list(first_port)
    used: Counter[int] = Counter()
    chosen = []
    while left:
        best = min(left, key=lambda path: sum(used[link] for link in _between_leaves(path)))
        left.remove(best)
        used.update(_between_leaves(best))
        chosen.append(first_port[best])
    return chosen


def covering_ports(paths: Mapping[int, Path], ports: Sequence[int]) -> list[int]:
    """As many ports as before, over as many different known paths as they can be.

    A port stays unless its path is known to be another one's too, and a path that none leads over wants its place.
    """
    taken: set[Path] = set()
    redundant = []
    for place, port in enumerate(ports):
        path = paths.get(port)
        if path in taken:
            redundant.append(place)
        elif path is not None:
            taken.add(path)
    chosen = list(ports)
    if not redundant:
        return chosen
    uncovered = [port for port in disjoint_ports(paths) if paths[port] not in taken]
    for place, port in zip(redundant, uncovered, strict=False):
        chosen[place] = port
    return chosen


def spread(paths: Sequence[Path], count: int) -> tuple[Path, ...]:
    """So many of more paths, in their order, such that each link is on as few as can be.

    Args:
        paths: different ones; without links that all of them cross.
        count: less than there are.
    """
    links = sorted({link for path in paths for link in path})
    place = {link: i for i, link in enumerate(links)}
    crossed = np.full((len(paths), max(map(len, paths))), len(links))
    for row, path in zip(crossed, paths, strict=True):
        row[: len(path)] = [place[link] for link in path]
    used = np.zeros(len(links) + 1)
    is_left = np.ones(len(paths), bool)
    for _ in range(count):
        best = int(np.where(is_left, used[crossed].sum(axis=1), np.inf).argmin())
        is_left[best] = False
        used[crossed[best]] += 1
        used[-1] = 0
    return tuple(path for path, left in zip(paths, is_left, strict=True) if not left)


def confidence(ports: int, distinct: int) -> float:
    """How sure it is that there is no further equally likely path, 0 to 1.

    Args:
        ports: source ports that were traced.
        distinct: different paths that they lead over.
    """
    if distinct <= 0 or ports < distinct:
        return 0.0
    missed = (distinct + 1) * (distinct / (distinct + 1)) ** ports
    return max(0.0, 1.0 - missed)
