"""What a step did, and the few events that tell people of it, each with its reason."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink, is_nic
from manager.hosts.happening import Move
from manager.placement.flows import QpName
from manager.planner.candidates import Choices
from manager.tcp.names import is_tcp

FLEET = "fleet"
_NAMED = 3


@dataclass(kw_only=True)
class Outcome:
    """What a step did.

    Attributes:
        hosts: those that are to be told something new.
        moved: queue pairs moved to where there is more room.
        rerouted: queue pairs moved off dead links, or put on a known path.
        backed_up: queue pairs with a new backup, that were not moved.
        held_back: moves that were due and must wait, by why.
        relieved: the fullest link that moves for more room have emptied.
        top_before, top_after: how full it was and is now, as a share of its capacity.
        fullest_after: how full the fullest link of all is.
        jobs_moved: how many jobs the moved ones belong to.
        put_bps: what all want of each link where they are put, shape (links,).
        tried: whether they were moved to see if a link is slow still.
        gains: why each of `moved` was.
        moves: all of them, with how it was before.
    """

    hosts: set[str] = field(default_factory=set)
    moved: list[QpName] = field(default_factory=list)
    rerouted: list[QpName] = field(default_factory=list)
    backed_up: list[QpName] = field(default_factory=list)
    held_back: Counter[str] = field(default_factory=Counter)
    top_before: float = 0.0
    top_after: float = 0.0
    fullest_after: float = 0.0
    relieved: DirectedLink | None = None
    jobs_moved: int = 0
    put_bps: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    tried: bool = False
    gains: dict[QpName, str] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)


class Reasons:
    """Why queue pairs are told something, and over which switches they go, for people.

    Args:
        links: of the routes.
        dead: of these, those that are not to be used.
        faults: what is wrong with links, as far as that is known: `is found silent`.
    """

    def __init__(
        self,
        links: Sequence[DirectedLink],
        dead: Collection[DirectedLink],
        faults: Mapping[DirectedLink, str],
    ) -> None:
        self._links, self._dead, self._faults = links, dead, faults
        self._switches: dict[tuple[int, int], list[str]] = {}
        self._lost: dict[tuple[int, int], str] = {}

    def switches(self, choices: Choices, path: int) -> list[str]:
        """Those that a path crosses, in order, but for those that only links next to them cross that all paths share."""
        key = choices.number, path
        if path >= 0 and key not in self._switches:
            nodes = (node for number in choices.paths[path] for node in self._links[number])
            self._switches[key] = list(dict.fromkeys(node for node in nodes if not is_nic(node)))
        return self._switches.get(key, [])

    def lost(self, choices: Choices, path: int) -> str:
        """Why a path is not to be used."""
        if path < 0:
            return "its way was not known"
        key = choices.number, path
        if key not in self._lost:
            links = [self._links[number] for number in choices.paths[path]]
            self._lost[key] = _some([self._fault(link) for link in links if link in self._dead])
        return self._lost[key]

    def no_backup(self, choices: Choices, present: int | None) -> str:
        """Why a queue pair gets another backup than at a port, or one at all."""
        if present is None:
            return "it had no backup"
        path = choices.by_port.get(present, -1)
        if path < 0:
            return "the way of its backup was not known"
        lost = self.lost(choices, path)
        return f"its backup is of no use: {lost}" if lost else "this backup shares less with its way"

    def _fault(self, link: DirectedLink) -> str:
        return f"{link.a} > {link.b} {self._faults.get(link, 'is not to be used')}"


def tell(outcome: Outcome, dead: Collection[DirectedLink]) -> Iterator[tuple[str, str, str]]:
    """Host (or `fleet`), kind (`qp_` and what was done) and text of each event."""
    if outcome.rerouted:
        why = f"{_some([f'{a} > {b}' for a, b in sorted(dead)])} is not to be used" if dead else ""
        yield _event("qp_rerouted", outcome.rerouted, why or "their way was not known")
    if outcome.moved:
        hot = outcome.relieved
        where = f"{hot.a} > {hot.b}" if hot is not None else "a link"
        share = f"{outcome.top_before:.0%} of what it carries, now {outcome.top_after:.0%}"
        jobs = f"{outcome.jobs_moved} job{'s' * (outcome.jobs_moved != 1)}"
        why = "; tried on a link that was slow" if outcome.tried else ""
        yield _event("qp_moved", outcome.moved, f"of {jobs}; {where} was wanted for {share}{why}")
    if outcome.backed_up:
        yield _event("qp_backed_up", outcome.backed_up, "each has a way round ready")


def _event(kind: str, names: Sequence[QpName], why: str) -> tuple[str, str, str]:
    hosts = sorted({name.host for name in names})
    of_tcp = sum(is_tcp(name.dst_addr) for name in names)
    counts = (len(names) - of_tcp, "queue pair"), (of_tcp, "TCP connection")
    count = " and ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in counts if n)
    return hosts[0] if len(hosts) == 1 else FLEET, kind, f"{count} of {_some(hosts)}: {why}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
