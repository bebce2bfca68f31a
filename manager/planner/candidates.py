"""The paths that a queue pair could take, from the known routes, and which of them is its backup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from manager.fabric.choice import spread
from manager.fabric.routes import DirectedLink, Pair, Routes
from manager.links.meter import same_rows
from manager.placement import PathSet

MOST_CANDIDATES = 64
MOST_CARRIED = 32
"""From so many versions of the routes to the next one choices are taken over; those of pairs that are gone go then."""

_made = count()

Links = tuple[int, ...]


@dataclass(frozen=True)
class Choices:
    """The different paths of a pair of a NIC and an address.

    Attributes:
        paths: the links of each, without those that all of them cross.
        switches: that each of them crosses.
        ports: a source port for each.
        by_port: the path of every known source port.
        number: another one than that of any other choices.
    """

    paths: tuple[Links, ...]
    switches: tuple[frozenset[str], ...]
    ports: tuple[int, ...]
    by_port: dict[int, int]
    number: int = field(default_factory=lambda: next(_made), compare=False)

    def backups(self, primary: int) -> list[int]:
        """The other paths, those that share the fewest links with one first."""
        others = [k for k in range(len(self.paths)) if k != primary]
        return sorted(others, key=lambda k: (self.shared(primary, k), k))

    def shared(self, one: int, other: int) -> tuple[int, int]:
        """How many links two paths share, and how many switches."""
        links = set(self.paths[one]).intersection(self.paths[other])
        return len(links), len(self.switches[one] & self.switches[other])


@dataclass
class Known:
    """What candidates were asked for.

    Attributes:
        choices: of each pair of a NIC and an address, None where no path is known.
        pairs: the pair of the path set that each different set of paths is.
        path_set: of the pairs when it was last asked for.
        carried: from so many versions of the routes to the next some of it was taken over.
    """

    choices: dict[Pair, Choices | None]
    pairs: dict[tuple[Links, ...], int]
    path_set: PathSet
    carried: int = 0


class Candidates:
    """Choices of one version of the routes, worked out when asked for.

    Args:
        routes: that version.
        before: those of an earlier one; what holds still is taken over.

    Attributes:
        routes: that version.
        number: another one than that of any others.
        follows: the number of those of which all was taken over but what has changed; -1 for none.
        changed: the pairs that have other paths than those had, of all that they were asked for.
        known: what was asked for.
    """

    def __init__(self, routes: Routes, before: "Candidates | None" = None) -> None:
        self.routes, self.number = routes, next(_made)
        self.follows, self.changed = -1, frozenset[Pair]()
        self.known = Known({}, {}, PathSet.of([], len(routes.links)))
        if before is not None and before.known.carried < MOST_CARRIED:
            self._carry_on(before)

    def of(self, src: str, dst_addr: str) -> Choices | None:
        """The choices from a NIC to an address; None where no path is known."""
        key = (src, dst_addr)
        if key not in self.known.choices:
            self.known.choices[key] = _choices(self.routes.ports(src, dst_addr), self.routes.links)
        return self.known.choices[key]

    def pair(self, choices: Choices) -> int:
        """The pair of the path set that some choices are."""
        return self.known.pairs.setdefault(choices.paths, len(self.known.pairs))

    @property
    def path_set(self) -> PathSet:
        """The paths of all pairs that were asked for, as placement wants them."""
        if self.known.path_set.links.shape[1] != len(self.known.pairs):
            self.known.path_set = PathSet.of(list(self.known.pairs), len(self.routes.links))
        return self.known.path_set

    def _carry_on(self, before: "Candidates") -> None:
        """Take over what was known, if links have the numbers that they had."""
        is_same = same_rows(before.routes, self.routes)
        if is_same is None:
            return
        old, new = before.routes.packed, self.routes.packed
        moved = np.unique(new.rows.of[np.flatnonzero(~is_same[: len(new.rows.of)])]).tolist()
        changed = {pair for number in moved if number >= 0 and (pair := new.rows.pairs[number]) is not None}
        known = before.known
        changed |= {pair for pair in known.choices if old.pairs.get(pair) is not new.pairs.get(pair)}
        self.follows, self.changed = before.number, frozenset(changed & known.choices.keys())
        paths, links = known.path_set, len(self.routes.links)
        if paths.link_count != links:
            paths = PathSet(np.where(paths.links == paths.link_count, links, paths.links), links)
        choices = {pair: one for pair, one in known.choices.items() if pair not in changed}
        self.known = Known(choices, dict(known.pairs), paths, known.carried + 1)


@dataclass
class Watched:
    """The paths from a NIC to an address that are in use or are backups, with the port of each.

    Dataplanes watch each of them many times a second, so one port serves all queue pairs that take the same path.
    """

    ports: dict[int, int] = field(default_factory=dict)

    def add(self, path: int, port: int) -> None:
        """A path is watched by this port, unless it is by another already."""
        self.ports.setdefault(path, port)


def watched_ports(watched: Watched, choices: Choices, path: int) -> int:
    """The port to take for a path: the one that is in use, or else the one that is known to lead there."""
    return watched.ports.get(path, choices.ports[path])


def backup_for(
    choices: Choices,
    primary: int,
    sport: int,
    *,
    present: int | None,
    watched: Watched,
    dead: NDArray[np.bool_],
) -> int | None:
    """The port of the backup: alive, sharing as few links and then switches with the primary as can be, rather an old one.

    Args:
        choices: the paths.
        primary: the one in use.
        sport: its port.
        present: the port of the backup so far.
        watched: what is watched from here to there; what is chosen is added.
        dead: whether each link is dead, shape (links + 1,).
    """
    alive = [k for k in choices.backups(primary) if not dead[list(choices.paths[k])].any()]
    if not alive:
        return None
    least = choices.shared(primary, alive[0])
    best = [k for k in alive if choices.shared(primary, k) == least]
    if present is not None and present != sport and choices.by_port.get(present) in best:
        watched.add(choices.by_port[present], present)
        return present
    chosen = next((k for k in best if k in watched.ports), None)
    if chosen is None:
        chosen = best[sport % len(best)]
    port = watched_ports(watched, choices, chosen)
    watched.add(chosen, port)
    return port


def _choices(ports: Mapping[int, Links], links: Sequence[DirectedLink]) -> Choices | None:
    if not ports:
        return None
    shared = set.intersection(*(set(path) for path in ports.values()))
    trimmed = {port: tuple(link for link in path if link not in shared) for port, path in ports.items()}
    first: dict[Links, int] = {}
    for port in sorted(trimmed):
        first.setdefault(trimmed[port], port)
    paths = tuple(sorted(first)) if len(first) <= MOST_CANDIDATES else spread(sorted(first), MOST_CANDIDATES)
    numbers = {path: k for k, path in enumerate(paths)}
    return Choices(
        paths=paths,
        switches=tuple(frozenset(node for link in path for node in links[link]) for path in paths),
        ports=tuple(first[path] for path in paths),
        by_port={port: numbers[path] for port, path in trimmed.items() if path in numbers},
    )
