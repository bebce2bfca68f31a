"""The ways between two hosts' ports, one for each LID of the one that is sent to, and which two share least. Pure.

Switches look at the destination LID alone, so the LID that a host sends from (its source path bits) changes nothing of the way there;
it is the LID that answers are sent to, and so chooses the way back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from cwdp.shared.ib.routes import Routes


@dataclass(frozen=True)
class Way:
    """To one LID.

    Attributes:
        dlid: which.
        leaves: rows of the ports that packets leave by, the source's first; None where they do not arrive.
        switches: rows of the nodes between, in order.
    """

    dlid: int
    leaves: tuple[int, ...] | None
    switches: tuple[int, ...] = ()

    @property
    def between(self) -> tuple[int, ...]:
        """The ports that lead from one switch to the next."""
        return self.leaves[1:-1] if self.leaves else ()


@dataclass(frozen=True)
class Chosen:
    """What to send by, and what to go over to.

    Attributes:
        primary: the way; None where none arrives.
        backup: another one that shares no link between switches with it; None where there is none.
        shares_switches: whether the two have a switch in common beyond the first and the last.
    """

    primary: Way | None = None
    backup: Way | None = None
    shares_switches: bool = False


def ways(routes: Routes, src: int, dst: int) -> list[Way]:
    """All from a host's port to another's.

    Args:
        routes: of their subnet.
        src: row of the port that sends.
        dst: row of the port that is sent to.
    """
    node = routes.subnet.ports["node"]
    found = []
    for dlid in routes.lids(dst):
        leaves = routes.way(src, dlid)
        switches = () if leaves is None else tuple(int(node[row]) for row in leaves[1:])
        found.append(Way(dlid, None if leaves is None else tuple(leaves), switches))
    return found


def chosen(found: Sequence[Way]) -> Chosen:
    """Of the ways between two ports: the first two that share no link, and no switch between the outer ones if possible."""
    there = [way for way in found if way.leaves is not None]
    best: tuple[bool, Way, Way] | None = None
    for a, b in combinations(there, 2):
        if not a.between or set(a.between) & set(b.between):
            continue
        shares = bool(set(a.switches[1:-1]) & set(b.switches[1:-1]))
        if best is None or shares < best[0]:
            best = shares, a, b
        if not shares:
            break
    if best is None:
        return Chosen(there[0]) if there else Chosen()
    return Chosen(best[1], best[2], best[0])
