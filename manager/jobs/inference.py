"""Jobs from what queue pairs send: their members, iterations, communicators, and who makes the others wait. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cwdp.shared.bus.messages import host_of
from manager.jobs.bounds import Iterations
from manager.jobs.flows import BurstColumns, Flow, FlowBursts, Ints, NicName, Rows
from manager.jobs.kinds import Communicator, communicators
from manager.jobs.membership import UNKNOWN, Group, Owner, Owners, Together, group
from manager.jobs.periods import Change, changes
from manager.jobs.rhythm import CLEAR, CLEARER, activity, rhythm
from manager.jobs.steps import Steps
from manager.jobs.stragglers import Lateness, lateness
from manager.jobs.symptoms import LATELY_NS, OVER, Symptoms, symptoms
from manager.jobs.table import FlowTable, flows_of
from manager.jobs.windows import BINS, LONG, SHORT, Window

LEAST_BURSTS = 12
"""Of a job: with fewer it is none yet."""

MOST_COMPARED = 8
"""Flows by which the rhythm is found, those that send most."""

MOST_STRAYS = 20_000

LEAST_PAUSE_S = 1.0
"""A queue pair that is silent for less sends on."""

MUCH_LONGER, HARDLY = 1.5, 0.04
"""Than the median; and in this share of iterations."""


@dataclass(frozen=True, eq=False)
class Job:
    """A job, as far as its traffic shows it.

    Attributes:
        named: as its processes name it; empty where none does.
        owners: the processes that are known.
        nics_of: the NIC that each process sends by, by host and pid.
        flows: its queue pairs, by direction.
        sent_bytes: by each NIC that sends.
        communicators: who sends to whom.
        starts_ns: when its iterations began, on the timeline, shape (iterations,); none without a rhythm.
        changes: when the period became another one.
        ranks: how late each NIC is, of those that tell enough; the latest first.
        confidence: from 0 to 1, that it is one job with these members.
        likeness: from 0 to 1, how like each other its iterations are; 0 without a rhythm.
        window: in which all this was seen.
        lately: what its last iterations show.
    """

    named: str
    owners: frozenset[Owner]
    flows: tuple[Flow, ...]
    sent_bytes: Mapping[str, int]
    communicators: tuple[Communicator, ...]
    starts_ns: Ints
    changes: tuple[Change, ...]
    ranks: tuple[Lateness, ...]
    confidence: float
    likeness: float
    window: Window
    lately: Symptoms
    nics_of: Mapping[tuple[str, int], str] = field(default_factory=dict)
    members: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        nics = {nic for flow in self.flows for nic in (flow.src, flow.dst)}
        object.__setattr__(self, "members", frozenset(nics))

    @property
    def period_ns(self) -> float | None:
        """The mean since it changed last; None without a rhythm."""
        since_ns = self.changes[-1].at_ns if self.changes else 0
        starts_ns = self.starts_ns[self.starts_ns >= since_ns]
        return float(np.diff(starts_ns).mean()) if len(starts_ns) > 1 else None

    @property
    def is_even(self) -> bool:
        """Whether hardly an iteration took much longer than others, as each last of some micro-batches does."""
        lasted_ns = np.diff(self.starts_ns)
        return not len(lasted_ns) or float(np.mean(lasted_ns > MUCH_LONGER * np.median(lasted_ns))) <= HARDLY

    @property
    def is_inferred(self) -> bool:
        """Whether there are hosts of it on which no process of it is known."""
        return not {host_of(nic) for nic in self.members} <= {owner.host for owner in self.owners}

    @property
    def stragglers(self) -> list[Lateness]:
        """Who makes the others wait, the latest first."""
        return [one for one in self.ranks if one.is_straggler]


class Inferred(NamedTuple):
    """What the bursts of a fleet come to.

    Attributes:
        jobs: those of most NICs first.
        strays: queue pairs that sent of late and are of none of these, with the packets that they sent in the last `LATELY_NS`.
        pauses_s: for how long a queue pair may be silent and will send again, of jobs that go on and whose iterations are long.
    """

    jobs: Sequence[Job] = ()
    strays: Mapping[Flow, int] = {}
    pauses_s: Mapping[Flow, float] = {}


def infer(
    rings: Mapping[NicName, Rows],
    addresses: Mapping[bytes, str],
    owners: Mapping[Flow, Owners],
    now_ns: int,
    before: Sequence[Job] = (),
) -> Steps[Inferred]:
    """The jobs whose queue pairs sent in bursts of late; a step for each job, and more.

    Args:
        rings: bursts of each NIC in any order, dtype BURST_ROW, shape (n,).
        addresses: the NIC that has each packed address.
        owners: who has the ends of flows, as far as known.
        now_ns: the timeline now.
        before: jobs whose members are taken to be together still.
    """
    table, short_ns = flows_of(rings, addresses, now_ns - LONG.length_ns), now_ns - SHORT.length_ns
    yield
    short = yield from _jobs(table.since(short_ns), owners, now_ns, SHORT, before)
    clear = {flow for job in short if job.likeness >= CLEAR and job.is_even for flow in job.flows}
    is_clear = np.array([flow in clear for flow in table.flows], np.bool_)
    rest = table.take(~is_clear & (table.first_ns() < short_ns))
    yield
    long = yield from _jobs(rest, owners, now_ns, LONG, [job for job in before if job.window == LONG])
    jobs = sorted(_better(short, long), key=lambda job: (-len(job.members), sorted(job.members)))
    yield
    return Inferred(jobs, _strays(table.since(now_ns - LATELY_NS), jobs), _pauses_s(jobs))


def _pauses_s(jobs: Iterable[Job]) -> dict[Flow, float]:
    lasts_s = ((job, OVER * (job.lately.recent_ns or 0.0) / 1e9) for job in jobs if not job.lately.is_over)
    return {flow: pause_s for job, pause_s in lasts_s if pause_s > LEAST_PAUSE_S for flow in job.flows}


def _strays(lately: FlowTable, jobs: Iterable[Job]) -> dict[Flow, int]:
    mine = {flow for job in jobs for flow in job.flows}
    places = [i for i, flow in enumerate(lately.flows) if flow not in mine][:MOST_STRAYS]
    sent = lately.of(places).left
    packets = sent.sums(sent.bursts.packets).tolist()
    return {lately.flows[i]: count for i, count in zip(places, packets, strict=True)}


def _better(short: Sequence[Job], long: Sequence[Job]) -> list[Job]:
    """Jobs as they are seen in the short window, or in the long one where only there, or much better, iterations are seen."""
    taken = [job for job in long if job.likeness and all(_is_better(job, other) for other in short)]
    flows = {flow for job in taken for flow in job.flows}
    return [*taken, *(job for job in short if flows.isdisjoint(job.flows))]


def _is_better(job: Job, other: Job) -> bool:
    if not other.likeness or set(job.flows).isdisjoint(other.flows):
        return True
    is_clearer = job.likeness >= other.likeness + CLEARER or (job.is_even and not other.is_even)
    return is_clearer and set(job.flows).issuperset(other.flows)


def _jobs(
    table: FlowTable, owners: Mapping[Flow, Owners], now_ns: int, window: Window, before: Sequence[Job]
) -> Steps[list[Job]]:
    """Those of some flows that are seen in a window."""
    known = [owners.get(flow, UNKNOWN) for flow in table.flows]
    together = (Together(job.flows, job.confidence) for job in before)
    groups = yield from group(table, known, now_ns, window.length_ns, together)
    found = []
    for one in groups:
        flows = table.of(one.flows)
        if len(flows.left.bursts) >= LEAST_BURSTS:
            found.append(_job(one, flows, [known[i] for i in one.flows], now_ns, window))
            yield
    return found


def _job(one: Group, flows: FlowBursts, owners: Sequence[Owners], now_ns: int, window: Window) -> Job:
    sent_bytes = flows.sent_bytes().tolist()
    sent: Counter[tuple[str, str]] = Counter()
    for flow, count in zip(flows.flows, sent_bytes, strict=True):
        sent[flow[:2]] += count
    latest_ns = min(now_ns, int(flows.left.bursts.end_ns.max()))
    busiest = sorted(range(len(sent_bytes)), key=lambda i: -sent_bytes[i])[:MOST_COMPARED]
    starts_ns, likeness = _iterations([flows.left.of(i) for i in busiest], latest_ns, now_ns, window)
    iterations, members = Iterations(flows, starts_ns), communicators(sent)
    return Job(
        named=one.named,
        owners=frozenset(owner for ends in owners for owner in ends if owner is not None),
        flows=tuple(flows.flows),
        sent_bytes=_by_source(sent),
        communicators=tuple(members),
        starts_ns=starts_ns,
        changes=tuple(changes(starts_ns)),
        ranks=tuple(lateness(iterations, members)),
        confidence=one.likeness,
        likeness=likeness,
        window=window,
        lately=symptoms(iterations, members, latest_ns=latest_ns, now_ns=now_ns),
        nics_of={
            (sender.host, sender.pid): flow.src
            for flow, (sender, _) in zip(reversed(flows.flows), reversed(owners), strict=True)
            if sender is not None
        },
    )


def _iterations(
    busiest: Sequence[BurstColumns], latest_ns: int, now_ns: int, window: Window
) -> tuple[Ints, float]:
    """When iterations of some flows began, shape (iterations,), and how like each other these are; none and 0 where there are none.

    Args:
        busiest: what those of one job sent that sent most.
        latest_ns: when it sent last.
        now_ns: the timeline now.
        window: in which they are looked for.
    """
    sent = [activity(each, latest_ns, BINS, window.bin_ns) for each in busiest]
    found = rhythm(np.array(sent), min(_shortest_ns(each) for each in busiest) // window.bin_ns)
    if found is not None:
        period_ns = found.period * window.bin_ns
        is_over = now_ns - latest_ns > max(SHORT.length_ns, OVER * period_ns)
        if period_ns >= window.least_period_ns and not is_over:
            begun = latest_ns - window.length_ns + found.starts.astype(np.int64) * window.bin_ns
            return begun, found.likeness
    return np.zeros(0, np.int64), 0.0


def _shortest_ns(bursts: BurstColumns) -> int:
    """Half the mean time between bursts of a flow, of which there is one in a period at least but for some that were not told."""
    return int(bursts.start_ns[-1] - bursts.start_ns[0]) // (2 * len(bursts))


def _by_source(sent_bytes: Mapping[tuple[str, str], int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (src, _), sent in sent_bytes.items():
        found[src] += sent
    return dict(found)
