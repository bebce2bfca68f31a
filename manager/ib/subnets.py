"""All InfiniBand subnets that readers tell of: several readers of one, and several that are not connected. No I/O.

Readers whose subnets have a port in common read the same one: an adapter may have ports in several, and LIDs are the same in all. Of those heard of late the one that knows the most nodes counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from cwdp.shared.ib.counters import Growth
from cwdp.shared.ib.names import Names
from cwdp.shared.ib.reports import IbGrowth, IbSubnet, IbTables
from cwdp.shared.ib.routes import Routes
from cwdp.shared.ib.subnet import Subnet
from manager.fabric.model import KnownLinks
from manager.fabric.routes import DirectedLink
from manager.ib.readings import Reading, no_results

SILENT_S = 5.0
"""A reader that has said nothing for so long counts only where there is no other of its subnet."""

FORGET_S = 60.0


@dataclass(frozen=True)
class SubnetNow:
    """One subnet as it is known.

    Attributes:
        reader: the host that tells of it.
        subnet: as it was read last.
        growth: of its ports' counters in the latest second; None where it is not known.
        is_fresh: whether its reader was heard of late, and can read it.
        taken: names of nodes of the subnets before it, by name the GUID.
    """

    reader: str
    subnet: Subnet
    growth: Growth | None
    is_fresh: bool
    taken: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def names(self) -> Names:
        """Of its nodes and ports, other than all of the subnets before it."""
        return Names(self.subnet, self.taken)

    @cached_property
    def links(self) -> tuple[DirectedLink, ...]:
        """All that are there, each way by itself; cables between the same two switches are one."""
        ends = self.names.ends
        both = [(ends[a], ends[b]) for a, b in self.subnet.links.tolist()]
        return tuple(dict.fromkeys(DirectedLink(*link) for a, b in both for link in ((a, b), (b, a))))

    @cached_property
    def leaves(self) -> frozenset[str]:
        """Switches that a host is linked to."""
        nics, links = self.names.nics, self.links
        return frozenset(b for a, b in links if a in nics and b not in nics)

    @cached_property
    def routes(self) -> Routes:
        """By its tables."""
        return Routes(self.subnet)


class Subnets:
    """Takes in what readers tell.

    Attributes:
        version: another one whenever some subnet is another; not by growth alone.
        results: messages by what became of them (`manager.ib.readings.REASONS`).
        down: links that are down, each way by itself, of those that were told last.
    """

    def __init__(self) -> None:
        self.version = 0
        self.results: Counter[str] = no_results()
        self._readers: dict[str, Reading] = {}
        self._now: tuple[SubnetNow, ...] = ()
        self.down: tuple[DirectedLink, ...] = ()
        self._links = KnownLinks()
        self._links_of: tuple[int, frozenset[DirectedLink]] = 0, frozenset()

    def hears(self) -> list[tuple[str, type[Any], Callable[[Any, float], None]]]:
        """Kinds of messages, and what takes them in."""
        return [
            ("ib-subnet", IbSubnet, self.hear_subnet),
            ("ib-tables", IbTables, self.hear_tables),
            ("ib-growth", IbGrowth, self.hear_growth),
        ]

    def hear_subnet(self, message: IbSubnet, now_s: float) -> None:
        """A piece of a subnet."""
        self.results[self._reader(message.host).hear_subnet(message, now_s)] += 1
        self.step(now_s)

    def hear_tables(self, message: IbTables, now_s: float) -> None:
        """Tables that are others."""
        self.results[self._reader(message.host).hear_tables(message, now_s)] += 1
        self.step(now_s)

    def hear_growth(self, message: IbGrowth, now_s: float) -> None:
        """Counters, or that a reader is there."""
        self.results[self._reader(message.host).hear_growth(message, now_s)] += 1
        self.step(now_s)

    def step(self, now_s: float) -> None:
        """Choose who counts; readers that are gone for long are forgotten."""
        self._readers = {host: one for host, one in self._readers.items() if now_s - one.heard_s < FORGET_S}
        before = [(one.reader, id(one.subnet)) for one in self._now]
        self._now = tuple(self._named(self._chosen(now_s)))
        if [(one.reader, id(one.subnet)) for one in self._now] != before:
            self.version += 1

    def links(self, now_s: float, dead: frozenset[DirectedLink] = frozenset()) -> KnownLinks:
        """All of all subnets; the same object while they are the same.

        Args:
            now_s: the manager's monotonic clock.
            dead: those that are down: they are told as long as both of their ends are there.
        """
        self.step(now_s)
        if self._links_of != (self.version, dead):
            self._links_of = self.version, dead
            there = [link for one in self._now for link in one.links]
            ends = {node for link in there for node in link}
            self.down = tuple(sorted(link for link in dead.difference(there) if ends.issuperset(link)))
            self._links = KnownLinks(
                (*there, *self.down),
                frozenset(nic for one in self._now for nic in one.names.nics),
                frozenset(leaf for one in self._now for leaf in one.leaves),
            )
        return self._links

    @property
    def now(self) -> Sequence[SubnetNow]:
        """Each subnet once, always in the same order."""
        return self._now

    @property
    def readers(self) -> Iterator[tuple[str, Reading]]:
        """All that are known, by host."""
        return iter(sorted(self._readers.items()))

    def _reader(self, host: str) -> Reading:
        return self._readers.setdefault(host, Reading())

    def _chosen(self, now_s: float) -> list[SubnetNow]:
        known = [
            SubnetNow(host, one.subnet, one.growth, not one.trouble and now_s - one.heard_s < SILENT_S)
            for host, one in self._readers.items()
            if one.subnet is not None and len(one.subnet.guids)
        ]
        known.sort(key=lambda one: (not one.is_fresh, -len(one.subnet.guids), one.reader))
        found: list[SubnetNow] = []
        for one in known:
            if all(one.subnet.ends.isdisjoint(other.subnet.ends) for other in found):
                found.append(one)
        return sorted(found, key=lambda one: one.subnet.key)

    def _named(self, chosen: Iterable[SubnetNow]) -> Iterator[SubnetNow]:
        """Subnets with names of which no other has one."""
        taken: dict[str, int] = {}
        for one in chosen:
            named = self._kept(replace(one, taken=dict(taken)))
            taken.update(zip(named.names.nodes, named.subnet.guids.tolist(), strict=True))
            yield named

    def _kept(self, one: SubnetNow) -> SubnetNow:
        """With what has been worked out of it before, if it is the same."""
        for before in self._now:
            if before.subnet is one.subnet and before.taken == one.taken:
                for name in ("names", "links", "leaves", "routes"):
                    if name in before.__dict__:
                        one.__dict__[name] = before.__dict__[name]
        return one
