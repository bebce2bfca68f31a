"""Which path a queue pair is to take when its own is dead."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.planner.candidates import Choices


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
    """The port of the backup: alive, sharing as few links with the primary as can be, rather an old one than a new.

    Args:
        choices: the paths.
        primary: the one in use.
        sport: its port.
        present: the port of the backup so far.
        watched: what is watched from here to there; what is chosen is added.
        dead: whether each link is dead, shape (links + 1,).
    """
    mine = set(choices.paths[primary])
    alive = [k for k in choices.backups(primary) if not dead[list(choices.paths[k])].any()]
    if not alive:
        return None
    shared = {k: len(mine.intersection(choices.paths[k])) for k in alive}
    best = [k for k in alive if shared[k] == shared[alive[0]]]
    if present is not None and present != sport and choices.by_port.get(present) in best:
        watched.add(choices.by_port[present], present)
        return present
    chosen = next((k for k in best if k in watched.ports), None)
    if chosen is None:
        chosen = best[sport % len(best)]
    port = watched_ports(watched, choices, chosen)
    watched.add(chosen, port)
    return port
