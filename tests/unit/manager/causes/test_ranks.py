"""What ranks tell by NCCL's plug-in: who is late by itself, and for whom others wait."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from cwdp.shared.bus.collectives import FUNCTIONS, PEER_ROW, Communicator
from manager.causes.ranks import PEER, Calls, Told
from manager.causes.ranks import told as told_by
from manager.causes.rules import explain
from manager.collectives.store import Collective, RankCall, RankId
from manager.jobs.inference import Job
from manager.jobs.membership import Owner
from manager.jobs.stragglers import Lateness
from tests.unit.manager.causes.cases import case, job, links

MS = 1_000_000
RANKS, CALLS = 4, 20
TAKES_NS, PERIOD_NS = 200 * MS, 500 * MS
ALL_REDUCE = FUNCTIONS.index("AllReduce")
JOB = job()

Own = Callable[[int, int], float]
"""For how many ms a rank computes before a call."""


def rank_call(
    rank: int, start_ns: int, end_ns: int, waited_ms: Iterable[float] = (), *, host: int = 0
) -> RankCall:
    """A rank's part, on `h1` for rank 0; `waited_ms` for the next rank to take what it sends."""
    peers = np.zeros(1, PEER_ROW)
    peers["peer"], peers["is_send"] = (rank + 1) % RANKS, 1
    peers["wait_ns"][0, PEER] = round(sum(waited_ms) * MS)
    name = RankId(f"h{host or rank + 1}", 100 + (host or rank + 1), rank)
    return RankCall(
        id=name,
        peer=-1,
        enqueued_ns=start_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        is_over=True,
        is_enqueued=False,
        is_slow=False,
        ops=1,
        open_ops=0,
        peers=peers,
        chunks=peers[:0],
    )


def call(seq: int, ranks: Sequence[RankCall], comm: int = 7) -> Collective:
    """A call of a communicator."""
    known = Communicator(id=comm, name="dp", rank=0, ranks=len(ranks), nodes=len(ranks), pid=1)
    starts = [rank.start_ns for rank in ranks]
    end_ns = max(rank.end_ns for rank in ranks)
    by_id = {rank.id: rank for rank in ranks}
    return Collective("", known, ALL_REDUCE, seq, 10**7, min(starts), max(starts), end_ns, by_id)


def calls(own_ms: Own, ends_ms: Own = lambda _rank, _call: 0.0) -> list[Collective]:
    """All-reduces of four ranks, each after the rank has computed; a rank's end may come later than the others'."""
    made, ready = [], [0] * RANKS
    for seq in range(CALLS):
        starts = [ready[rank] + round(own_ms(rank, seq) * MS) for rank in range(RANKS)]
        over = max(starts) + TAKES_NS
        ready = [over + round(ends_ms(rank, seq) * MS) for rank in range(RANKS)]
        made.append(call(seq, [rank_call(rank, starts[rank], ready[rank]) for rank in range(RANKS)]))
    return placed(made)


def told(one: Job, those: Iterable[Collective]) -> Told | None:
    return told_by(one, Calls(those))


def placed(made: Sequence[Collective]) -> list[Collective]:
    """The same so that the last one begins with the last iteration of the job."""
    later = int(JOB.starts_ns[-1]) - made[-1].start_ns
    return [moved(each, later) for each in made]


def moved(each: Collective, later: int) -> Collective:
    ranks = {
        name: replace(rank, start_ns=rank.start_ns + later, end_ns=rank.end_ns + later)
        for name, rank in each.ranks.items()
    }
    return replace(
        each,
        ranks=ranks,
        start_ns=each.start_ns + later,
        last_start_ns=each.last_start_ns + later,
        end_ns=each.end_ns + later,
    )


def jittered(seed: int, extra_ms: float = 0.0) -> Own:
    """300 ms give or take 3 %, and so much more for rank 2."""
    rng = np.random.default_rng(seed)
    return lambda rank, _call: 300 * rng.uniform(0.97, 1.03) + (extra_ms if rank == 2 else 0.0)


@pytest.mark.parametrize("seed", range(10))
def test_who_computes_longer_is_told_by_its_rank(seed: int) -> None:
    known = told(JOB, calls(jittered(seed, 60)))
    assert known is not None
    (late,) = known.late
    assert (late.nic, late.rank) == ("h3/nic0", "rank 2 (h3, process 103)")
    assert late.late_ns == pytest.approx(60 * MS, abs=15 * MS)
    found = explain(replace(case(JOB, links()), told=known))
    assert found is not None
    assert (found.kind, found.subject) == ("compute", "h3/nic0")
    assert "rank 2" in found.evidence[0]


@pytest.mark.parametrize("seed", range(20))
def test_of_ranks_that_all_compute_as_long_none_is_late(seed: int) -> None:
    known = told(JOB, calls(jittered(seed)))
    assert known is not None
    assert known.late == ()
    assert known.pauses is None


def test_a_rank_whose_last_call_was_over_late_is_not_late_by_itself() -> None:
    """What it receives comes over a slow link."""
    known = told(JOB, calls(jittered(1), lambda rank, _call: 60.0 if rank == 2 else 0.0))
    assert known is not None
    assert known.late == ()


def test_of_two_groups_only_the_one_that_the_others_wait_for() -> None:
    """Ranks 2 and 3 do a call of their own first, for which rank 2 is late: rank 3 is late for all, and not by itself."""
    rng, made, ready = np.random.default_rng(1), [], [0] * RANKS
    for seq in range(CALLS):
        own = [
            round((150 * rng.uniform(0.97, 1.03) + (60 if rank == 2 else 0)) * MS) for rank in range(RANKS)
        ]
        pairs = []
        for pair in ((0, 1), (2, 3)):
            over = max(ready[rank] + own[rank] for rank in pair) + 20 * MS
            parts = [rank_call(rank, ready[rank] + own[rank], over) for rank in pair]
            pairs.append(call(seq, parts, comm=10 + pair[0]))
            for rank in pair:
                ready[rank] = over
        starts = [at + round(150 * rng.uniform(0.97, 1.03) * MS) for at in ready]
        over = max(starts) + TAKES_NS
        made += [*pairs, call(seq, [rank_call(rank, starts[rank], over) for rank in range(RANKS)])]
        ready = [over] * RANKS
    known = told(JOB, placed(made))
    assert known is not None
    assert {late.rank for late in known.late} == {"rank 2 (h3, process 103)"}


def stalled(whom: int, every: int, stall_ms: float) -> list[Collective]:
    """Every so many calls a rank takes nothing for a while: the one before it waits for that, and less so those before that."""
    made, at_ns = [], 0
    for seq in range(CALLS):
        more_ms = stall_ms if seq % every == 2 else 0.0
        end_ns = at_ns + TAKES_NS + round(more_ms * MS)
        parts = []
        for rank in range(RANKS):
            behind = (whom - rank - 1) % RANKS
            parts.append(rank_call(rank, at_ns, end_ns, [5.0, more_ms * (1 - 0.2 * behind)]))
        made.append(call(seq, parts))
        at_ns = end_ns + 300 * MS
    return placed(made)


def test_who_stands_still_now_and_then_is_told_by_its_rank() -> None:
    known = told(JOB, stalled(1, every=5, stall_ms=50))
    assert known is not None
    assert known.pauses is not None
    assert (known.pauses.nic, known.pauses.rank) == ("h2/nic0", "rank 1 (h2, process 102)")
    assert known.pauses.longer_ns == pytest.approx(50 * MS)
    found = explain(replace(case(JOB, links()), told=known))
    assert found is not None
    assert (found.kind, found.subject) == ("host", "h2/nic0")
    assert "waited most for rank 1" in found.evidence[1]


def test_where_all_calls_take_longer_nobody_stands_still() -> None:
    known = told(JOB, stalled(1, every=1, stall_ms=50))
    assert known is not None
    assert known.pauses is None


def test_calls_of_others_of_before_or_not_whole_tell_nothing() -> None:
    some = calls(jittered(1, 60))
    assert told(job(JOB.flows[:1]), some) is None
    assert told(JOB, [moved(each, -60 * 10**9) for each in some]) is None
    assert told(JOB, some[:5]) is None
    partly = [replace(each, ranks=dict(list(each.ranks.items())[:3])) for each in some]
    assert told(JOB, partly) is None
    seen = [
        replace(each, ranks={n: replace(r, is_enqueued=True) for n, r in each.ranks.items()}) for each in some
    ]
    assert told(JOB, seen) is None
    assert told(owned(JOB, 100), some) is not None
    assert told(owned(JOB, 200), some) is None


def owned(one: Job, pid: int) -> Job:
    """The job with processes that are known."""
    owners = frozenset(Owner(f"h{i}", pid + i) for i in range(1, RANKS + 1))
    nics_of = {(owner.host, owner.pid): f"{owner.host}/nic0" for owner in owners}
    return replace(one, owners=owners, nics_of=nics_of)


def test_ranks_that_tell_that_none_is_late_are_believed() -> None:
    """Not bursts, which show when packets left, not when data was there."""
    slow = job(took_ms=560, late=(Lateness("h3/nic0", 60 * MS, True),))
    known = told(slow, calls(jittered(1)))
    found = explain(replace(case(slow, links()), told=known))
    assert found is not None
    assert found.kind == "unknown"
