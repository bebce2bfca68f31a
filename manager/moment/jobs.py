"""Which hosts work together: as programs tell of their jobs, else hosts whose queue pairs connect them make one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from manager.hosts.order import in_order, natural


@dataclass(frozen=True, eq=False)
class Jobs:
    """Jobs, by name in order.

    Attributes:
        hosts: the hosts of each, in order; a job of which nobody tells is named after its first.
        of_flow: the job of each queue pair, shape (queue pairs,).
        told: those of which programs tell.
    """

    hosts: dict[str, list[str]] = field(default_factory=dict)
    of_flow: Sequence[str] = ()
    told: frozenset[str] = frozenset()

    @cached_property
    def by_host(self) -> dict[str, str]:
        """The job of each host that is in one; of several the last."""
        return {host: name for name, hosts in self.hosts.items() for host in hosts}

    def flows_of(self, name: str) -> list[int]:
        """The queue pairs of a job, by their places."""
        return [i for i, job in enumerate(self.of_flow) if job == name]


def find_jobs(src: Sequence[str], dst: Sequence[str], told: Sequence[str] = ()) -> Jobs:
    """The jobs that queue pairs make.

    A queue pair of which nobody tells is of the one job that is told of queue pairs between its hosts, the other way too, if there
    is one: what answers need not tell.

    Args:
        src: the host that each queue pair is of.
        dst: the host at its far end, or its address where nobody is known to have it.
        told: the job of each as its program tells, "" where it does not; none where no program tells.
    """
    if not any(told):
        return _inferred(src, dst)
    between: dict[frozenset[str], set[str]] = {}
    for ends, name in zip(zip(src, dst, strict=True), told, strict=True):
        if name:
            between.setdefault(frozenset(ends), set()).add(name)
    names = list(told)
    for i, ends in enumerate(zip(src, dst, strict=True)):
        if not names[i] and len(only := between.get(frozenset(ends), set())) == 1:
            names[i] = next(iter(only))
    left = [i for i, name in enumerate(names) if not name]
    others = _inferred([src[i] for i in left], [dst[i] for i in left])
    hosts: dict[str, set[str]] = {}
    for here, there, name in zip(src, dst, names, strict=True):
        if name:
            hosts.setdefault(name, set()).update((here, there))
    for i, name in zip(left, others.of_flow, strict=True):
        names[i] = name
    found = others.hosts | {name: in_order(mine) for name, mine in hosts.items()}
    return Jobs({name: found[name] for name in sorted(found, key=natural)}, names, frozenset(hosts))


def _inferred(src: Sequence[str], dst: Sequence[str]) -> Jobs:
    """The jobs of those that are connected."""
    if not len(src):
        return Jobs()
    at = {host: i for i, host in enumerate(dict.fromkeys((*src, *dst)))}
    hosts, number = list(at), np.array([at[host] for host in (*src, *dst)], np.intp)
    ends = number[: len(src)], number[len(src) :]
    joined = coo_array((np.ones(len(src)), ends), shape=(len(hosts), len(hosts)))
    _, component = connected_components(joined, directed=False)
    members = _members(hosts, component)
    names = {which: mine[0] for which, mine in members.items()}
    ordered = sorted(members, key=lambda which: natural(names[which]))
    of_flow = [names[which] for which in component[ends[0]].tolist()]
    return Jobs({names[which]: members[which] for which in ordered}, of_flow)


def _members(hosts: Sequence[str], component: NDArray[np.int32]) -> dict[int, list[str]]:
    members: dict[int, list[str]] = {}
    for host, which in zip(hosts, component.tolist(), strict=True):
        members.setdefault(which, []).append(host)
    return {which: in_order(mine) for which, mine in members.items()}
