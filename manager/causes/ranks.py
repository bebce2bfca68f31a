"""What the ranks of a job tell of their last calls, as NCCL's plug-in has it: who is late with its data, and who stands still. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.collectives import WAITS
from cwdp.shared.bus.messages import host_of
from manager.collectives.belonging import Ranks
from manager.collectives.store import ALONE, Collective, RankId
from manager.jobs.inference import Job
from manager.jobs.pauses import SAME_SHARE, Pauses, is_enough, now_and_then, overlap
from manager.jobs.stragglers import Lateness, judged, least_late_ns
from manager.jobs.symptoms import LATE_NS, LEAST_LATELY
from manager.jobs.windows import SHORT

PEER, NETWORK = WAITS.index("peer"), WAITS.index("network")

Floats = NDArray[np.float64]
Process = tuple[str, int]


@dataclass(frozen=True)
class Told:
    """What ranks tell.

    Attributes:
        late: how late the data of each rank is that is late, the latest first.
        pauses: who stands still now and then; None where nobody does.
    """

    late: tuple[Lateness, ...]
    pauses: Pauses | None


class Calls:
    """Calls that all their ranks have told whole, to be found by the hosts of a job.

    Args:
        calls: the last ones of all jobs.
    """

    def __init__(self, calls: Iterable[Collective]) -> None:
        self._of_host: defaultdict[str, list[Collective]] = defaultdict(list)
        for call in calls:
            if _is_whole(call):
                self._of_host[min(call.ranks).host].append(call)

    def of(self, job: Job, since_ns: float) -> list[Collective]:
        """Those of a job since a moment."""
        ranks = Ranks(job)
        some = (call for host in ranks.hosts for call in self._of_host.get(host, ()))
        return ranks.calls(call for call in some if call.start_ns >= since_ns)


def told(job: Job, calls: Calls) -> Told | None:
    """What the ranks of a job tell; None where they tell of too few calls.

    Args:
        job: whose ranks they are.
        calls: the last ones of all jobs.
    """
    if job.period_ns is None:
        return None
    latest_ns, least_ns = int(job.starts_ns[-1]), (LEAST_LATELY + 1) * job.period_ns
    mine = calls.of(job, latest_ns - max(SHORT.length_ns, least_ns))
    since_ns = latest_ns - max(LATE_NS, least_ns)
    lately = _by_communicator(call for call in mine if call.start_ns >= since_ns)
    if not lately:
        return None
    ends = _ends_ns(mine)
    late = [one for each in lately for one in _late(job, each, ends)]
    found = [pauses for each in _by_communicator(mine) if (pauses := _pauses(job, each)) is not None]
    return Told(
        late=tuple(sorted(late, key=lambda one: (-one.late_ns, one.nic))),
        pauses=max(found, key=lambda one: one.longer_ns, default=None),
    )


def _by_communicator(calls: Iterable[Collective]) -> list[list[Collective]]:
    """Those of each that has enough of them, in order."""
    apart: defaultdict[int, list[Collective]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.start_ns):
        apart[call.comm.id].append(call)
    return [each for each in apart.values() if len(each) > LEAST_LATELY]


def _is_whole(call: Collective) -> bool:
    """Whether all ranks have told all of it."""
    is_all = len(call.ranks) == call.comm.ranks > 1
    return call.function not in ALONE and is_all and not call.is_enqueued and call.is_over


def _ends_ns(calls: Iterable[Collective]) -> dict[Process, NDArray[np.int64]]:
    """When the calls of each process ended, in order, of all its communicators."""
    ends: defaultdict[Process, list[int]] = defaultdict(list)
    for call in calls:
        for rank in call.ranks.values():
            ends[rank.id.host, rank.id.pid].append(rank.end_ns)
    return {process: np.sort(np.array(each, np.int64)) for process, each in ends.items()}


def _late(job: Job, calls: Sequence[Collective], ends: Mapping[Process, NDArray[np.int64]]) -> list[Lateness]:
    """Ranks of a communicator whose data comes after the others', and that needed longer for it from when their last call was over.

    One that waited for others in its call before is late as well, but not by itself.
    """
    ranks = sorted(calls[0].ranks)
    calls = [call for call in calls if sorted(call.ranks) == ranks]
    starts = np.array([[call.ranks[rank].start_ns for call in calls] for rank in ranks], np.int64)
    since = (starts - starts.min(axis=0)).astype(np.float64)
    own = np.array([_own(each, ends[rank.host, rank.pid]) for rank, each in zip(ranks, starts, strict=True)])
    names = [str(i) for i in range(len(ranks))]
    least_ns = least_late_ns(float(np.median(np.diff(starts.min(axis=0)))) if len(calls) > 1 else 0.0)
    late = {each.nic: each for each in judged(dict(zip(names, since, strict=True)), least_ns)}
    slow = {each.nic for each in judged(dict(zip(names, own, strict=True)), least_ns) if each.is_straggler}
    return [
        Lateness(_nic(job, rank), late[name].late_ns, True, rank.text)
        for name, rank in zip(names, ranks, strict=True)
        if name in late and late[name].is_straggler and name in slow
    ]


def _own(starts_ns: NDArray[np.int64], ends_ns: NDArray[np.int64]) -> Floats:
    """From the end of the call before to each beginning; NaN where there is none, 0 where calls overlap; shape (calls,)."""
    before = np.searchsorted(ends_ns, starts_ns, "right") - 1
    found: Floats = np.where(before >= 0, starts_ns - ends_ns[np.maximum(before, 0)], np.nan)
    return found


def _pauses(job: Job, calls: Sequence[Collective]) -> Pauses | None:
    """Who stood still in the calls that took longer than others alike: others wait longest for it to take what they send."""
    kinds = Counter((call.function, call.bytes) for call in calls)
    calls = [call for call in calls if (call.function, call.bytes) == kinds.most_common(1)[0][0]]
    took_ns = np.array([call.end_ns - call.last_start_ns for call in calls], np.float64)
    spans_ns = np.array([(call.start_ns, call.end_ns) for call in calls], np.int64)
    took_ns[overlap(job.lately.resending, spans_ns[:, 0], spans_ns[:, 1])] = np.nan
    extra, longer = now_and_then(took_ns)
    if not len(longer):
        return None
    ranks = sorted(calls[0].ranks)
    waited = np.array([_waited_for(call, ranks) for call in calls])
    most = np.argmax(waited[longer] - np.median(waited, axis=0), axis=1)
    rank, count = Counter(most.tolist()).most_common(1)[0]
    mine = longer[most == rank]
    if count < SAME_SHARE * len(longer) or not is_enough(mine, extra[mine]):
        return None
    longer_ns = round(float(np.median(extra[longer])))
    return Pauses(_nic(job, ranks[rank]), longer_ns, len(longer), len(calls), ranks[rank].text)


def _waited_for(call: Collective, ranks: Sequence[RankId]) -> Floats:
    """How long the chunks of others waited in all until each rank took them, shape (ranks,)."""
    found = dict.fromkeys((rank.rank for rank in ranks), 0.0)
    for told_by in call.ranks.values():
        for row in told_by.peers:
            if row["is_send"] and int(row["peer"]) in found:
                found[int(row["peer"])] += float(row["wait_ns"][PEER] + row["wait_ns"][NETWORK])
    return np.array([found[rank.rank] for rank in ranks])


def _nic(job: Job, rank: RankId) -> str:
    """The NIC of a rank's process, or, where that is not known, the first of its host."""
    known = job.nics_of.get((rank.host, rank.pid))
    return known or min(nic for nic in job.members if host_of(nic) == rank.host)
