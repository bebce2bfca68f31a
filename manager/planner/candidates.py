"""The paths that a queue pair could take, from the known routes, and which of them is its backup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from manager.fabric.choice import spread
from manager.fabric.routes import DirectedLink, Routes
from manager.placement import PathSet

MOST_CANDIDATES = 64

Links = tuple[int, ...]


@dataclass(frozen=True)
class Choices:
    """The different paths of a pair of a NIC and an address.

    Attributes:
        paths: the links of each, without those that all of them cross.
        switches: that each of them crosses.
        ports: a source port for each.
        by_port: the path of every known source port.
    """

    paths: tuple[Links, ...]
    switches: tuple[frozenset[str], ...]
    ports: tuple[int, ...]
    by_port: dict[int, int]

    def backups(self, primary: int) -> list[int]:
        """The other paths, those that share the fewest links with one first."""
        others = [k for k in range(len(self.paths)) if k != primary]
        return sorted(others, key=lambda k: (self.shared(primary, k), k))

    def shared(self, one: int, other: int) -> tuple[int, int]:
        """How many links two paths share, and how many switches."""
        links = set(self.paths[one]).intersection(self.paths[other])
        return len(links), len(self.switches[one] & self.switches[other])


class Candidates:
    """Choices of one version of the routes, worked out when asked for.

    Attributes:
        routes: that version.
        number: another one than that of any others.
    """

    _made = count()

    def __init__(self, routes: Routes) -> None:
        self.routes, self.number = routes, next(self._made)
        self._choices: dict[tuple[str, str], Choices | None] = {}
        self._pairs: dict[tuple[Links, ...], int] = {}
        self._path_set = PathSet.of([], len(routes.links))

    def of(self, src: str, dst_addr: str) -> Choices | None:
        """The choices from a NIC to an address; None where no path is known."""
        key = (src, dst_addr)
        if key not in self._choices:
            self._choices[key] = _choices(self.routes.ports(src, dst_addr), self.routes.links)
        return self._choices[key]

    def pair(self, choices: Choices) -> int:
        """The pair of the path set that some choices are."""
        return self._pairs.setdefault(choices.paths, len(self._pairs))

    @property
    def path_set(self) -> PathSet:
        """The paths of all pairs that were asked for, as placement wants them."""
        if self._path_set.links.shape[1] != len(self._pairs):
            self._path_set = PathSet.of(list(self._pairs), len(self.routes.links))
        return self._path_set


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
