"""Jobs from what queue pairs send: their members, iterations, communicators, and who makes the others wait. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.jobs.flows import Flow, FlowBursts, NicName, Rows, flows_of
from manager.jobs.kinds import Communicator, communicators
from manager.jobs.membership import UNKNOWN, Group, Owner, Owners, Together, group
from manager.jobs.periods import Change, changes
from manager.jobs.rhythm import BIN_NS, activity, rhythm
from manager.jobs.stragglers import Lateness, lateness
from manager.jobs.symptoms import Symptoms, symptoms

WINDOW_NS = 30 * 10**9
LEAST_BURSTS = 12
"""Of a job: with fewer it is none yet."""

MOST_COMPARED = 8
"""Flows by which the rhythm is found, those that send most."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Job:
    """A job, as far as its traffic shows it.

    Attributes:
        named: as its processes name it; empty where none does.
        owners: the processes that are known.
        flows: its queue pairs, by direction.
        sent_bytes: by each NIC that sends.
        communicators: who sends to whom.
        starts_ns: when its iterations began, on the timeline, shape (iterations,); none without a rhythm.
        changes: when the period became another one.
        ranks: how late each NIC is, of those that tell enough; the latest first.
        confidence: from 0 to 1, that it is one job with these members.
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
    lately: Symptoms
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
    def stragglers(self) -> list[Lateness]:
        """Who makes the others wait, the latest first."""
        return [one for one in self.ranks if one.is_straggler]


def infer(
    rings: Mapping[NicName, Rows],
    addresses: Mapping[bytes, str],
    owners: Mapping[Flow, Owners],
    now_ns: int,
    before: Sequence[Job] = (),
) -> list[Job]:
    """The jobs whose queue pairs sent in bursts of late, those of most NICs first.

    Args:
        rings: bursts of each NIC in any order, dtype BURST_ROW, shape (n,).
        addresses: the NIC that has each packed address.
        owners: who has the ends of flows, as far as known.
        now_ns: the timeline now.
        before: jobs whose members are taken to be together still.
    """
    flows = flows_of(rings, addresses, now_ns - WINDOW_NS)
    known = [owners.get(each.flow, UNKNOWN) for each in flows]
    together = (Together(job.flows, job.confidence) for job in before)
    groups = group(flows, known, now_ns, WINDOW_NS, together)
    found = [
        _job(one, flows, known, now_ns)
        for one in groups
        if sum(len(flows[i].left) for i in one.flows) >= LEAST_BURSTS
    ]
    return sorted(found, key=lambda job: (-len(job.members), sorted(job.members)))


def _job(one: Group, flows: Sequence[FlowBursts], owners: Sequence[Owners], now_ns: int) -> Job:
    mine = [flows[i] for i in one.flows]
    sent: Counter[tuple[str, str]] = Counter()
    for each in mine:
        sent[each.flow.src, each.flow.dst] += int(each.left["bytes"].sum())
    latest_ns = min(now_ns, max(int(each.left["end_ns"].max()) for each in mine))
    chosen = _busiest(mine)
    found = rhythm(np.array([activity(each.left, latest_ns, WINDOW_NS // BIN_NS) for each in chosen]))
    members = communicators(sent)
    starts_ns = np.zeros(0, np.int64)
    if found is not None:
        starts_ns = latest_ns - WINDOW_NS + found.starts.astype(np.int64) * BIN_NS
    return Job(
        named=one.named,
        owners=frozenset(owner for i in one.flows for owner in owners[i] if owner is not None),
        flows=tuple(each.flow for each in mine),
        sent_bytes=_by_source(sent),
        communicators=tuple(members),
        starts_ns=starts_ns,
        changes=tuple(changes(starts_ns)),
        ranks=tuple(lateness(mine, members, starts_ns)),
        confidence=one.likeness,
        lately=symptoms(mine, members, starts_ns, latest_ns),
    )


def _by_source(sent_bytes: Mapping[tuple[str, str], int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (src, _), sent in sent_bytes.items():
        found[src] += sent
    return dict(found)


def _busiest(flows: Sequence[FlowBursts]) -> list[FlowBursts]:
    most = sorted(flows, key=lambda each: (-int(each.left["bytes"].sum()), each.flow))
    return most[:MOST_COMPARED]
