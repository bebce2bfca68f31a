"""Paths of the mesh of which nothing comes back, and the links that all of them cross, and none that answers. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cwdp.shared.bus.messages import host_of
from manager.audit.network.pairs import REACHABLE
from manager.audit.network.standing import Known
from manager.audit.results import FABRIC, Result
from manager.fabric.routes import DirectedLink, is_nic
from manager.faults.finding import Finding, cable

LEAST_SENT = 5
"""Probes of a path, before nothing of it is taken for no path."""

LEAST_PATHS = 2
"""That are dead, before it is a link's."""

MOST_NAMED = 3
LOSING = ("dead", "silent", "lossy", "flapping")

_WHY = "queue pairs that are hashed to such a path die"
_MEND = "cwdp link shows what is silent; cwdp path the switches of a port"


class Dead(Struct, frozen=True):
    """What is dead of the mesh.

    Attributes:
        results: links first, then paths by the NIC that they start at.
        nodes: switches at the ends of such links, and NICs at the end of their own; the same of links that are found to lose.
        between: the leaves, in order of name, that paths over such links lead between.
        alive: how many paths answer.
    """

    results: Sequence[Result] = ()
    nodes: Collection[str] = ()
    between: Collection[tuple[str, str]] = ()
    alive: int = 0


def dead_paths(known: Known, named: Collection[str] = (), silent: Collection[tuple[str, str]] = ()) -> Dead:
    """What is dead, but for paths from and to NICs that are named already.

    Args:
        known: of the mesh.
        named: those NICs.
        silent: pairs of NICs, in order of name, that are told of already: of their paths nothing is said but by links.
    """
    told = known.sent >= LEAST_SENT
    is_dead = told & (known.lost >= known.sent)
    alive = told & ~is_dead
    left = is_dead & ~np.array([src in named or dst in named for src, dst, _ in known.paths], bool)
    results, nodes, between = list[Result](), _lossy(known.findings), set[tuple[str, str]]()
    for links, rows in _links(known, left, alive):
        left[rows] = False
        results.append(_link(links, len(rows)))
        nodes.update(*map(_ends, links))
        between |= {_leaves(known, row) for row in rows.tolist()}
    by_nic: dict[str, list[tuple[str, int]]] = {}
    for row in np.flatnonzero(left).tolist():
        src, dst, sport = known.paths[row]
        if (min(src, dst), max(src, dst)) not in silent:
            by_nic.setdefault(src, []).append((dst, sport))
    results += [_nic(src, lost) for src, lost in sorted(by_nic.items())]
    return Dead(results, nodes, between, int(np.count_nonzero(alive)))


def _lossy(findings: Iterable[Finding]) -> set[str]:
    links = [
        link
        for one in findings
        if one.kind in LOSING
        for subject in (one.subject, *one.also)
        for link in subject.links
    ]
    return {node for link in links for node in _ends(link)}


def _ends(link: DirectedLink) -> set[str]:
    """Where those are that suffer if a link is bad: behind the switches at its ends, or the NIC alone whose link it is."""
    return {node for node in link if is_nic(node)} or set(link)


def _leaves(known: Known, row: int) -> tuple[str, str]:
    src, dst, _ = known.paths[row]
    first = known.routes.first_switch
    at = first.get(src, ""), first.get(dst, "")
    return min(at), max(at)


def _links(
    known: Known, dead: NDArray[np.bool_], alive: NDArray[np.bool_]
) -> Iterator[tuple[list[DirectedLink], NDArray[np.intp]]]:
    """Cables that dead paths cross and none that answers, those with the most first, and the rows of the paths.

    Several where the same paths cross all of them.
    """
    if not known.crossed.size:
        return
    names = {name: number for number, name in enumerate(dict.fromkeys(map(_name, known.routes.links)))}
    of_link = np.array([*(names[_name(link)] for link in known.routes.links), len(names)])
    cables = of_link[known.crossed]
    ends = {names[_name(link)]: link for link in reversed(known.routes.links)}
    answers = np.zeros(len(names) + 1, bool)
    answers[cables[alive]] = True
    answers[-1] = True
    left = dead.copy()
    while True:
        rows = np.flatnonzero(left)
        crossing = {
            number: rows[(cables[rows] == number).any(axis=1)]
            for number in np.unique(cables[rows]).tolist()
            if not answers[number]
        }
        most = max(map(len, crossing.values()), default=0)
        if most < LEAST_PATHS:
            return
        over = next(mine for mine in crossing.values() if len(mine) == most)
        yield [ends[number] for number, mine in crossing.items() if np.array_equal(mine, over)], over
        left[over] = False


def _name(link: DirectedLink) -> str:
    return cable(link).name


def _link(links: Sequence[DirectedLink], paths: int) -> Result:
    nic = next((node for link in links for node in link if is_nic(node)), "") if len(links) == 1 else ""
    names = [_name(link) for link in links]
    return Result(
        check=REACHABLE,
        host=host_of(nic) if nic else FABRIC,
        subject=nic.partition("/")[2] or " or ".join(names[:MOST_NAMED]),
        verdict="fail",
        severity="fail",
        found=f"{paths} paths over it bring nothing back, and none over it does"
        if len(names) == 1
        else f"{paths} paths over one of {len(names)} links bring nothing back, and none over any of them does",
        expected="each path answers",
        why=_WHY,
        mend=_MEND,
    )


def _nic(src: str, lost: Sequence[tuple[str, int]]) -> Result:
    shown = ", ".join(f"{dst} by port {sport}" for dst, sport in lost[:3])
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return Result(
        check=REACHABLE,
        host=host_of(src),
        subject=src.partition("/")[2],
        verdict="fail",
        severity="fail",
        found=f"{len(lost)} paths bring nothing back: to {shown}{more}",
        expected="each path answers",
        why=_WHY,
        mend=_MEND,
    )
