"""Calls that stand still, as ranks with NCCL's plug-in tell: for which ranks the others wait. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cwdp.shared.bus.collectives import FUNCTIONS
from manager.causes.cause import Cause
from manager.collectives.belonging import Ranks
from manager.collectives.store import ALONE, Collective, RankId
from manager.jobs.inference import Job

STANDS_NS, HEARD_NS = 12_000_000_000, 15_000_000_000
"""Since the last rank is known to have begun: ranks that wait say so after 5 s, so who has not by then began 6 s later at
least. They say so again every 5 s."""

MOST_NAMED, LEAST_RANKS = 3, 2
ALL_SEND = frozenset(
    FUNCTIONS.index(name) for name in ("AllGather", "AllReduce", "AlltoAll", "ReduceScatter")
)
"""Calls in which every rank sends, and waits for every other."""

Process = tuple[str, int]


@dataclass(frozen=True)
class Standing:
    """A call that stands still.

    Attributes:
        call: of which some ranks have told that they wait.
        missing: those of its communicator that have not begun it, as far as they are known.
        ranks: how many should have.
    """

    call: Collective
    missing: tuple[RankId, ...]
    ranks: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{FUNCTIONS[self.call.function]} {self.call.seq} of communicator {_comm(self.call)}"

    @property
    def silent(self) -> tuple[RankId, ...]:
        """Ranks that have begun it and sent nothing, where others have: NCCL begins a call before the GPU comes to it."""
        ranks = self.call.ranks.values() if self.call.function in ALL_SEND else ()
        without = [rank.id for rank in ranks if not (rank.peers["is_send"] * rank.peers["chunks"]).any()]
        return tuple(sorted(without)) if len(without) < len(ranks) else ()

    @property
    def waiting(self) -> set[Process]:
        """Processes of ranks that have begun it and not ended it."""
        return {(rank.id.host, rank.id.pid) for rank in self.call.ranks.values() if not rank.is_over}


class StandingCause(NamedTuple):
    """A cause, whose job it is, and whether it names ranks."""

    cause: Cause
    job: str
    names_ranks: bool


def standing_causes(
    calls: Iterable[Collective], jobs: Mapping[str, Job], now_ns: int | None
) -> list[StandingCause]:
    """Why calls stand still, one cause for each job of which some do.

    Args:
        calls: the last ones of all jobs.
        jobs: that are known, by name.
        now_ns: the timeline; None while it is not known.
    """
    if now_ns is None:
        return []
    by_job: defaultdict[str, list[Standing]] = defaultdict(list)
    named = {name: Ranks(job) for name, job in jobs.items()}
    for each in standing(calls, now_ns):
        by_job[_job_of(each.call, named)].append(each)
    return [_cause(name, jobs.get(name), those, now_ns) for name, those in by_job.items()]


def _job_of(call: Collective, jobs: Mapping[str, Ranks]) -> str:
    """What the job of a call is called: as its environment says, else as the job of its ranks that bursts have shown, else as its communicator."""
    if call.job in jobs:
        return call.job
    found = next((name for name, ranks in jobs.items() if ranks.calls([call])), call.job)
    return found or _comm(call)


def _comm(call: Collective) -> str:
    return call.comm.name or f"{call.comm.id:016x}"


def standing(calls: Iterable[Collective], now_ns: int) -> list[Standing]:
    """The first call of each communicator and function that stands still, in the order in which they began.

    Args:
        calls: the last ones.
        now_ns: the timeline.
    """
    alike: defaultdict[tuple[int, int], list[Collective]] = defaultdict(list)
    for call in calls:
        if call.function not in ALONE and not call.is_enqueued:
            alike[call.comm.id, call.function].append(call)
    found = []
    for those in alike.values():
        still = [call for call in those if _stands(call, now_ns)]
        if still:
            first = min(still, key=lambda call: call.start_ns)
            found.append(_standing(first, those))
    return sorted(found, key=lambda each: each.call.start_ns)


def _stands(call: Collective, now_ns: int) -> bool:
    return not call.is_over and call.heard_ns > now_ns - HEARD_NS and call.last_start_ns < now_ns - STANDS_NS


def _standing(call: Collective, alike: Sequence[Collective]) -> Standing:
    """Missing are ranks that took part in the last call like it that is over, and take none in this one; of those on no network nobody hears."""
    over = [each for each in alike if each.is_over]
    if not over:
        return Standing(call, (), call.comm.ranks)
    last = max(over, key=lambda each: each.start_ns)
    return Standing(call, tuple(sorted(set(last.ranks) - set(call.ranks))), len({*last.ranks, *call.ranks}))


def _cause(name: str, job: Job | None, those: Sequence[Standing], now_ns: int) -> StandingCause:
    """The others wait for ranks that have not begun a call, else for those that have sent nothing of it, and that wait in no other."""
    for each in those:
        elsewhere = set().union(*(other.waiting for other in those if other is not each))
        for ranks, what in ((each.missing, "not begun by"), (each.silent, "nothing is sent yet by")):
            alone = [rank for rank in ranks if (rank.host, rank.pid) not in elsewhere]
            if alone:
                more = f" and {len(alone) - MOST_NAMED} more" if len(alone) > MOST_NAMED else ""
                subject = ", ".join(rank.text for rank in alone[:MOST_NAMED]) + more
                evidence = [_said(each, now_ns), f"{what} {subject}"]
                found = _standstill(subject, _nic(job, alone[0]), evidence)
                return StandingCause(found, name, names_ranks=True)
            if ranks:
                break
    subject, first = those[0].name, those[0]
    said = [_said(each, now_ns) for each in those]
    if any(each.missing for each in those):
        said.append("ranks that have not begun one of these wait in another: each waits for the other")
    elif (before := _first(first.call)) is not None:
        said.append(before)
    return StandingCause(_standstill(subject, "", said), name, names_ranks=False)


def _standstill(subject: str, nic: str, said: Sequence[str]) -> Cause:
    return Cause("standstill", subject, nic, 0, 0.9, tuple(said))


def _said(each: Standing, now_ns: int) -> str:
    lasted_s = (now_ns - each.call.last_start_ns) / 1e9
    return f"{each.name} has stood still for {lasted_s:.0f} s: begun by {len(each.call.ranks)} of {each.ranks} ranks"


def _first(call: Collective) -> str | None:
    """Which rank did its last chunk before all others, as one does that stands still by itself: others do what they still can."""
    last_ns = sorted((rank.end_ns, rank.id) for rank in call.ranks.values() if not rank.is_over)
    if len(last_ns) < LEAST_RANKS:
        return None
    (first_ns, rank), (second_ns, _) = last_ns[:2]
    return f"the first that did nothing more is {rank.text}, {(second_ns - first_ns) / 1e6:.3f} ms before the next"


def _nic(job: Job | None, rank: RankId) -> str:
    return "" if job is None else job.nics_of.get((rank.host, rank.pid), "")
