"""A cause of slow iterations, and what is known of links when it is looked for."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import host_of
from manager.fabric.routes import DirectedLink, is_nic
from manager.faults.finding import Finding
from manager.jobs.flows import Flow

Kind = Literal["compute", "host", "nic", "link", "contention", "incast", "standstill", "unknown"]
"""What each means and what must hold: `cwdp why` in `docs/commands.md`."""


@dataclass(frozen=True)
class Cause:
    """Why a job's iterations take longer than they need to.

    Attributes:
        kind: what it is.
        subject: the NIC, the link, the host or the ranks that it is about; the job where nothing is known.
        rank: the NIC of the rank that the others wait for; empty where that is none.
        costs_ns: by how much an iteration would be shorter without it, the estimate.
        confidence: from 0 to 1.
        evidence: what speaks for it, for people.
        between: the jobs that get in each other's way, by name: that is one cause though they meet now at one link, now at another.
        is_repeated: whether what speaks for it came again and again, so that another look would tell nothing more.
        to_avoid: links that it is better to send nothing over, where there are others.
    """

    kind: Kind
    subject: str
    rank: str
    costs_ns: int
    confidence: float
    evidence: tuple[str, ...]
    between: tuple[str, ...] = ()
    is_repeated: bool = False
    to_avoid: tuple[DirectedLink, ...] = ()


@dataclass(frozen=True, eq=False)
class Links:
    """What is known of the links that jobs use.

    Attributes:
        names: each way by itself.
        tier: the kind of each, shape (links,).
        queue_p99_ns: of the last seconds, NaN where nothing is known, shape (links,).
        of: the numbers of the links that each flow crosses whose path is known.
        lately: the links that each flow has crossed of late, or crosses.
        findings: what is wrong in the fabric.
        strays: of links that queue pairs of no known job cross their hosts, and the packets that these sent of late.
    """

    names: Sequence[DirectedLink] = ()
    tier: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    queue_p99_ns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    of: Mapping[Flow, frozenset[int]] = field(default_factory=dict)
    lately: Mapping[Flow, frozenset[DirectedLink]] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    strays: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def name(self, i: int) -> str:
        """A link, one way, for people."""
        return f"{self.names[i].a} > {self.names[i].b}"

    def crossed(self, flow: Flow) -> frozenset[int]:
        """The numbers of the links that a flow crosses; where its path is not known, of those at its NICs, which it surely does."""
        known = self.of.get(flow)
        if known is not None:
            return known
        from_nic, to_nic = self._at_nics
        return frozenset((*from_nic.get(flow.src, ()), *to_nic.get(flow.dst, ())))

    @cached_property
    def _at_nics(self) -> tuple[Mapping[str, Sequence[int]], Mapping[str, Sequence[int]]]:
        """The links from each NIC, and those to it."""
        from_nic: defaultdict[str, list[int]] = defaultdict(list)
        to_nic: defaultdict[str, list[int]] = defaultdict(list)
        for i, link in enumerate(self.names):
            if is_nic(link.a):
                from_nic[link.a].append(i)
            if is_nic(link.b):
                to_nic[link.b].append(i)
        return from_nic, to_nic


def with_strays(links: Links, strays: Mapping[Flow, int]) -> Links:
    """What is known of the links of some flows, with what of them is of no job apart.

    Args:
        links: of these and all others.
        strays: flows of no job, and the packets that each sent of late.
    """
    if not strays:
        return links
    found: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for flow, packets in strays.items():
        for i in links.of.get(flow, ()):
            found[i][host_of(flow.src)] += packets
    of = {flow: numbers for flow, numbers in links.of.items() if flow not in strays}
    return replace(links, of=of, strays=found)
