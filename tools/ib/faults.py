"""Random faults of InfiniBand subnets: what is broken, where, and what is then to be named. Pure."""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from tools.ib.lab import links
from tools.ib.lab.faults import WIDTHS
from tools.ib.lab.links import Link
from tools.ib.topology import Clos, port_name

Kind = Literal["cut", "flapping", "degraded", "errors", "slow_receiver", "congested"]

ERRORS_PER_S = 6, 500
WAITS, SLOW_WAITS = (0.2, 0.5), (0.2, 0.9)
"""Shares of the time in which a port waits: whatever it leads to, and a leaf's for a host that is slow."""


@dataclass(frozen=True)
class Fault:
    """What is done.

    Attributes:
        link: where; with errors and waiting its first end is the port that counts.
        size: lanes that are left, errors in a second, the share of the time in which a port waits; 0 of what has no size.
    """

    kind: Kind
    link: Link
    size: float = 0

    @property
    def right(self) -> set[tuple[str, str]]:
        """What may be named: the kind of a finding and its subject."""
        a, b = port_name(*self.link.a), port_name(*self.link.b)
        cable = f"{a} - {b}"
        match self.kind:
            case "cut":
                return {("dead", cable)}
            case "flapping":
                return {("flapping", cable), ("dead", cable)}
            case "degraded":
                return {("degraded", cable)}
            case "errors":
                return {("bit_errors", f"{b} > {a}")}
            case "slow_receiver" | "congested":
                is_to_host = b.startswith("h")
                return {("slow_receiver" if is_to_host else "congested", f"{a} > {b}")}

    @property
    def decisive(self) -> str:
        """The kind of finding without which it is missed."""
        return self.kind if self.kind == "flapping" else next(kind for kind, _ in self.right)


def draw(
    kind: Kind,
    topology: Clos,
    rng: random.Random,
    avoided: Collection[str] = (),
    readers: Collection[str] = (),
) -> Fault:
    """A fault of a kind at a random place.

    Args:
        kind: which.
        topology: of the subnet.
        rng: draws it.
        avoided: keys of links that are not to be taken.
        readers: hosts that read the subnet; their links are not cut, as nothing could be read any more.
    """
    is_cut = kind in ("cut", "flapping")
    free = [
        link
        for link in links.every(topology)
        if link.key not in avoided
        and not (is_cut and link.a[0] in readers)
        and not (kind == "slow_receiver" and not link.a[0].startswith("h"))
    ]
    link = rng.choice(free)
    if kind == "slow_receiver" or (kind in ("errors", "congested") and rng.random() < 0.5):
        link = Link(link.b, link.a)
    sizes: Mapping[Kind, float] = {
        "degraded": rng.choice([lanes for lanes in WIDTHS if lanes < max(WIDTHS)]),
        "errors": rng.randint(*ERRORS_PER_S),
        "slow_receiver": rng.uniform(*SLOW_WAITS),
        "congested": rng.uniform(*WAITS),
    }
    return Fault(kind, link, sizes.get(kind, 0))
