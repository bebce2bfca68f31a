"""Which hosts work together: where nobody tells of jobs, hosts whose queue pairs connect them make one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from manager.view.order import in_order, natural


@dataclass(frozen=True, eq=False)
class Jobs:
    """Jobs, by name in order.

    Attributes:
        hosts: the hosts of each, in order; a job is named after its first.
        of_flow: the job of each queue pair, shape (queue pairs,).
    """

    hosts: dict[str, list[str]] = field(default_factory=dict)
    of_flow: Sequence[str] = ()

    @cached_property
    def by_host(self) -> dict[str, str]:
        """The job of each host that is in one."""
        return {host: name for name, hosts in self.hosts.items() for host in hosts}

    def flows_of(self, name: str) -> list[int]:
        """The queue pairs of a job, by their places."""
        return [i for i, job in enumerate(self.of_flow) if job == name]


def find_jobs(src: Sequence[str], dst: Sequence[str]) -> Jobs:
    """The jobs that queue pairs make.

    Args:
        src: the host that each queue pair is of.
        dst: the host at its far end, or its address where nobody is known to have it.
    """
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
