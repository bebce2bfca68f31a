"""Who is to name a cause: the pod that it lies in, the root where that is none, and everybody while no root is heard."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from cwdp.shared.bus.messages import host_of
from manager.fabric import routes
from manager.fabric.routes import MARK, DirectedLink
from manager.faults.finding import Subject
from manager.faults.loss_watch import is_private
from manager.hosts.members import Members
from manager.pods.evidence import Table
from manager.pods.findings_messages import PodFindings
from manager.pods.owners import Owners

_Links = tuple[Sequence[DirectedLink], ...]


class Named(Protocol):
    """What names a subject, and others that explain the same: a class of causes, or a finding."""

    @property
    def subject(self) -> Subject:
        """The first."""
        ...

    @property
    def also(self) -> tuple[Subject, ...]:
        """The others."""
        ...


class Deciders:
    """As far as this manager knows.

    Args:
        pod: its own.
        members: the hosts of all pods.
    """

    def __init__(self, pod: str, members: Members) -> None:
        self._pod, self._members = pod, members
        self._fresh: Mapping[str, PodFindings] = {}
        self._is_root = False
        self._owners: dict[str, tuple[tuple[int, int], _Links, Owners]] = {}

    def hear(self, fresh: Mapping[str, PodFindings], *, is_root: bool) -> None:
        """What pods tell now, and whether this manager is the root."""
        self._fresh, self._is_root = fresh, is_root

    def owner(self, links: Sequence[DirectedLink], named: Named) -> str | None:
        """The pod in which all lies that may be meant."""
        return self._known("own", (links,)).of(_links(named))

    def decides(self, links: Sequence[DirectedLink], named: Named) -> bool:
        """Whether this manager is to name a cause by its own pod's probes; `links` are all that it knows."""
        owner = self.owner(links, named)
        if owner == self._pod or (is_private(named.subject) and self._is_of_path_inside(named.subject)):
            return True
        return owner not in self._fresh and not self._is_root_heard

    def _is_of_path_inside(self, subject: Subject) -> bool:
        """Whether it is made up for paths between two hosts of this pod."""
        made_up = [node for link in subject.links for node in link if routes.is_private(node)]
        ends = [node[len(MARK) :].rpartition(":")[0].split(">") for node in made_up]
        return all(
            self._pod_of(host_of(nic)) == self._pod and self._members.elsewhere.pod_at(address) is None
            for nic, address in ends
        )

    def keeps(self, links: Sequence[DirectedLink], subject: Subject) -> bool:
        """Whether this manager is to name a link that is routed round, which nobody's probes lose anything over."""
        nearest = self._known("own", (links,)).nearest(subject.links)
        if nearest == self._pod or nearest in self._fresh:
            return nearest == self._pod
        return self._is_root or not self._is_root_heard

    def is_told_by_others(self, links: Sequence[DirectedLink], named: Named) -> bool:
        """Whether who is to name something has named it."""
        owner, mine = self.owner(links, named), set(_links(named))
        return owner != self._pod and any(
            not mine.isdisjoint(each.links)
            for pod, message in self._fresh.items()
            for each in message.findings
            if pod == owner or (each.is_joint and self._yields_to(pod, message))
        )

    def _yields_to(self, pod: str, message: PodFindings) -> bool:
        """Whether another manager's findings by all pods' evidence count before this one's."""
        if pod == self._pod:
            return True
        return message.is_root and (pod < self._pod or not self._is_root)

    def is_joint(self, tables: Collection[Table], named: Named) -> bool:
        """Whether the root is to name a cause by all pods' probes, told of in these tables."""
        owner = self._known("joint", tuple(table.links for table in tables)).of(_links(named))
        return owner != self._pod and owner not in self._fresh

    @property
    def _is_root_heard(self) -> bool:
        return self._is_root or any(message.is_root for message in self._fresh.values())

    def _known(self, what: str, links: _Links) -> Owners:
        """By links and hosts as they are now."""
        version = self._members.version, self._members.elsewhere.version
        before = self._owners.get(what)
        if before is not None and before[0] == version and _same(before[1], links):
            return before[2]
        every = {link for each in links for link in each}
        owners = Owners(every, self._pod_of)
        self._owners[what] = version, links, owners
        return owners

    def _pod_of(self, host: str) -> str | None:
        if host in self._members.hosts:
            return self._pod
        return self._members.elsewhere.pod_of.get(host)


def _links(named: Named) -> Iterable[DirectedLink]:
    return (link for subject in (named.subject, *named.also) for link in subject.links)


def _same(one: _Links, other: _Links) -> bool:
    """Whether these are the same objects."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
