"""All that is known of a job in a window, copied, so that any thread may make something of it. No I/O."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import WINDOW_NS, shown_address
from manager.collectives.belonging import Ranks
from manager.collectives.store import Collective
from manager.fabric.routes import DirectedLink
from manager.jobs.flows import Flow, FlowBursts, NicName, Rows, nic_name
from manager.jobs.inference import Job
from manager.jobs.table import flows_of
from manager.queue_pairs.delays import FlowSamples
from manager.state import FleetState

MOST_NIC_PAIRS = 64
"""Of which delays and the links between them are told: those whose senders send most."""

NICS_AT_ONCE = 64

MOST_LINKS = 64
"""Of these links, those that most queue pairs of the job cross."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NicPair = tuple[str, str]


@dataclass(frozen=True)
class PathDelays:
    """One-way delays of the probes from a NIC to another.

    Attributes:
        paths: over how many paths they go.
        start_ns: when each window began, on the timeline, shape (windows,).
        mean_ns, max_ns: over the paths, of each path's mean; NaN where no probe came, shape (windows,).
    """

    paths: int
    start_ns: Ints
    mean_ns: Floats
    max_ns: Floats


@dataclass(frozen=True)
class LinkQueue:
    """The mean queueing delay of a link, NaN where no probe told of it; shapes (windows,)."""

    link: DirectedLink
    start_ns: Ints
    queue_ns: Floats


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JobWindow:
    """What is known of a job in a window.

    Attributes:
        name, job: of the job.
        since_ns, until_ns: the window, on the timeline.
        whole_since_ns: bursts of before are not all kept; `since_ns` where all are.
        rings: bursts of its NICs, seen or told, that are not over before the window, dtype BURST_ROW, shape (n,) each.
        owners: the NIC that has each packed address.
        samples: of stamped data packets, by queue pair.
        paths: of probes, by source and target.
        queues: of links that its queue pairs cross.
        calls: of its ranks, those under way in the window, the earliest first.
        left_out: how many pairs of NICs are in none of these, and how many links between the others not in `queues`.
    """

    name: str
    job: Job
    since_ns: int
    until_ns: int
    whole_since_ns: int
    rings: Mapping[NicName, Rows]
    owners: Mapping[bytes, str]
    samples: Mapping[Flow, FlowSamples]
    paths: Mapping[NicPair, PathDelays]
    queues: Sequence[LinkQueue]
    calls: Sequence[Collective]
    left_out: Mapping[str, int]

    @cached_property
    def flows(self) -> FlowBursts:
        """The job's queue pairs by direction with their bursts, those that sent most first. In a large job it takes long."""
        mine = set(self.job.flows)
        table = flows_of(self.rings, self.owners, self.since_ns)
        places = [i for i, flow in enumerate(table.flows) if flow in mine]
        sent_bytes = dict(zip(places, table.of(places).sent_bytes().tolist(), strict=True))
        return table.of(sorted(places, key=lambda i: -sent_bytes[i]))

    @cached_property
    def telling(self) -> frozenset[str]:
        """The NICs that told of bursts."""
        return frozenset(nic_id(*name) for name in self.rings)


async def gather(state: FleetState, name: str, job: Job, since_ns: int, until_ns: int) -> JobWindow:
    """Copy what is known of a job in a window, some NICs at a time: others have their turn between.

    Args:
        state: what the manager knows.
        name: of the job.
        job: the job.
        since_ns: the window's beginning on the timeline.
        until_ns: its end.
    """
    rings: dict[NicName, Rows] = {}
    members = sorted(job.members)
    for first in range(0, len(members), NICS_AT_ONCE):
        some = {nic_name(nic) for nic in members[first : first + NICS_AT_ONCE]}
        told = ((nic, state.jobs.told_rings[nic]) for nic in some & state.jobs.told_rings.keys())
        rings |= {nic: rows[rows["end_ns"] >= since_ns] for nic, rows in told}
        rings |= state.traffic.bursts.since(since_ns, some)
        await asyncio.sleep(0)
    owners = state.members.nics_by_packed_address
    sent = job.sent_bytes
    pairs = sorted({flow[:2] for flow in job.flows}, key=lambda pair: (-sent.get(pair[0], 0), pair))
    chosen = set(pairs[:MOST_NIC_PAIRS])
    flows = [flow for flow in job.flows if flow[:2] in chosen]
    addresses = _addresses(owners, {nic for pair in chosen for nic in pair})
    queues, links_left_out = _queues(state, flows, since_ns)
    probed = {pair: _probed(state, pair, addresses, since_ns) for pair in pairs[:MOST_NIC_PAIRS]}
    return JobWindow(
        name=name,
        job=job,
        since_ns=since_ns,
        until_ns=until_ns,
        whole_since_ns=max([since_ns, *_whole_since(state, rings)]),
        rings=rings,
        owners=owners,
        samples=_samples(state, flows, addresses, since_ns),
        paths={pair: found for pair, found in probed.items() if found is not None},
        queues=queues,
        calls=_calls(state, job, since_ns, until_ns),
        left_out={"nic_pairs": len(pairs) - len(chosen), "links": links_left_out},
    )


def _calls(state: FleetState, job: Job, since_ns: int, until_ns: int) -> list[Collective]:
    within = (
        call for call in state.collectives.of() if call.end_ns >= since_ns and call.start_ns <= until_ns
    )
    return sorted((call.copy() for call in Ranks(job).calls(within)), key=lambda call: call.start_ns)


def _whole_since(state: FleetState, rings: Iterable[NicName]) -> list[int]:
    return [since for name in rings if (since := state.traffic.bursts.whole_since_ns(name)) is not None]


def _addresses(owners: Mapping[bytes, str], nics: Collection[str]) -> dict[str, list[bytes]]:
    """The packed addresses of some NICs."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for address, nic in owners.items():
        if nic in nics:
            found[nic].append(address)
    return found


def _samples(
    state: FleetState, flows: Iterable[Flow], addresses: Mapping[str, list[bytes]], since_ns: int
) -> dict[Flow, FlowSamples]:
    delays = state.traffic.delays
    found = {}
    for flow in flows:
        for address in addresses.get(flow.dst, ()):
            one = delays.samples(nic_name(flow.src), address, flow.qpn, since_ns)
            if one is not None:
                found[flow] = one
    return found


def _probed(
    state: FleetState, pair: NicPair, addresses: Mapping[str, list[bytes]], since_ns: int
) -> PathDelays | None:
    """The delays of probes between two NICs; None where none is probed."""
    src, dst = pair
    windows, mean_ns = state.watch.windows.delays(
        src, [shown_address(each) for each in addresses.get(dst, ())]
    )
    start_ns = windows * WINDOW_NS
    mean_ns, start_ns = mean_ns[start_ns >= since_ns], start_ns[start_ns >= since_ns]
    known = np.isfinite(mean_ns)
    if not known.any():
        return None
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(known, mean_ns, 0.0).sum(axis=1) / count
    largest = np.where(count > 0, np.where(known, mean_ns, -np.inf).max(axis=1), np.nan)
    return PathDelays(mean_ns.shape[1], start_ns, means, largest)


def _queues(state: FleetState, flows: Sequence[Flow], since_ns: int) -> tuple[list[LinkQueue], int]:
    """Of the links that flows cross now, those that most cross first, and how many links are left out."""
    known = state.causes.links_now()(flows)
    crossed = Counter(known.names[i] for flow in flows for i in known.of.get(flow, ()))
    links = [link for link, _ in crossed.most_common()]
    windows, queue_ns = state.watch.queues_of(links[:MOST_LINKS])
    start_ns = windows * WINDOW_NS
    recent = start_ns >= since_ns
    found = [
        LinkQueue(link, start_ns[recent], queue_ns[recent, i]) for i, link in enumerate(links[:MOST_LINKS])
    ]
    told = [each for each in found if np.isfinite(each.queue_ns).any()]
    return told, max(0, len(links) - MOST_LINKS)
