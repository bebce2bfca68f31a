"""What a step did, and the few events that tell people of it, each with its reason."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink
from manager.placement.flows import QpName
from manager.tcp.names import is_tcp

FLEET = "fleet"
_NAMED = 3


@dataclass(frozen=True)
class Move:
    """What a queue pair's host is told, and why: `moved`, `rerouted` or `backed_up`."""

    name: QpName
    what: str
    sport: int | None
    backup_sport: int | None


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


def tell(outcome: Outcome, dead: Collection[DirectedLink]) -> Iterator[tuple[str, str, str]]:
    """Host (or `fleet`), kind and text of each event."""
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
