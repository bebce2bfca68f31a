"""Calls that stand still: who has not begun them, who waits for whom, and what is told of it over time."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from cwdp.shared.bus.collectives import (
    CALL_ROW,
    FUNCTIONS,
    OVER,
    PEER_ROW,
    CollectiveReport,
    Communicator,
)
from cwdp.shared.bus.packing import row_bytes
from manager.causes.standing import HEARD_NS, STANDS_NS, StandingCause, standing_causes
from manager.causes.watch import GONE_S, CauseWatch
from manager.collectives.store import CollectiveStore
from manager.jobs.inference import Job
from manager.jobs.membership import Owner
from tests.unit.manager.causes.cases import finding, job, links

S = 1_000_000_000
NOW = 10**15
RANKS = 4
HOSTS = [f"h{i + 1}" for i in range(RANKS)]
ALL_REDUCE, ALL_GATHER = FUNCTIONS.index("AllReduce"), FUNCTIONS.index("AllGather")
BROADCAST, RECV = FUNCTIONS.index("Broadcast"), FUNCTIONS.index("Recv")


class Told:
    """What ranks have told, one rank a host."""

    def __init__(self, job_name: str = "") -> None:
        self.store = CollectiveStore()
        self._job = job_name

    def tell(
        self,
        ranks: Iterable[int],
        seq: int,
        start_ns: int,
        *,
        is_over: bool,
        heard_ns: int,
        function: int = ALL_REDUCE,
        comm: int = 7,
        sent: int = 4,
    ) -> None:
        peer = np.zeros(2, PEER_ROW)
        peer["is_send"], peer["chunks"] = (0, 1), (4, sent)
        for rank in ranks:
            row = np.zeros(1, CALL_ROW)
            row["function"], row["seq"], row["flags"] = function, seq, OVER if is_over else 0
            row["start_ns"], row["end_ns"], row["ops"] = start_ns, start_ns + is_over * S, 1
            name = Communicator(
                id=comm, name="dp", rank=rank, ranks=RANKS, nodes=RANKS, pid=100 + rank, job=self._job
            )
            report = CollectiveReport(
                host=HOSTS[rank], comms=[name], calls=row_bytes(row), peers=row_bytes(peer), chunks=b""
            )
            self.store.hear(report, HOSTS, heard_ns)

    def whole(self, seqs: Iterable[int], **of: int) -> None:
        """Calls before, of all ranks."""
        for seq in seqs:
            start_ns = NOW - 100 * S + seq * S
            self.tell(range(RANKS), seq, start_ns, is_over=True, heard_ns=start_ns + 2 * S, **of)

    def stands(self, ranks: Collection[int], seq: int, since_s: float = 20.0, **of: int) -> None:
        """These wait in a call, and have said so just now."""
        self.tell(ranks, seq, NOW - round(since_s * S), is_over=False, heard_ns=NOW - S, **of)

    def causes(self, jobs: dict[str, Job] | None = None, now_ns: int | None = NOW) -> list[StandingCause]:
        return standing_causes(self.store.of(), jobs or {}, now_ns)


def known(one: Job) -> Job:
    """A job whose processes are known."""
    owners = frozenset(Owner(host, 100 + rank) for rank, host in enumerate(HOSTS))
    return replace(
        one, owners=owners, nics_of={(owner.host, owner.pid): f"{owner.host}/nic0" for owner in owners}
    )


def test_the_rank_that_has_not_begun_is_named() -> None:
    told = Told()
    told.whole(range(5))
    told.stands([0, 1, 3], 5)
    ((cause, name, names_ranks),) = told.causes({"train": known(job())})
    assert (cause.kind, cause.subject, cause.rank) == ("standstill", "rank 2 (h3, process 102)", "h3/nic0")
    assert (name, names_ranks, cause.costs_ns) == ("train", True, 0)
    assert cause.evidence[0] == (
        "AllReduce 5 of communicator dp has stood still for 20 s: begun by 3 of 4 ranks"
    )


def test_a_job_that_bursts_have_not_shown_is_called_as_its_programs_say() -> None:
    told = Told("slurm:7")
    told.whole(range(5))
    told.stands([0], 5)
    ((cause, name, _),) = told.causes()
    assert (name, cause.rank) == ("slurm:7", "")
    assert cause.subject == ("rank 1 (h2, process 101), rank 2 (h3, process 102), rank 3 (h4, process 103)")


def test_a_rank_whose_gpu_has_not_come_to_the_call_is_named() -> None:
    told = Told()
    told.whole(range(5))
    told.stands([0, 1, 3], 5)
    told.stands([2], 5, sent=0)
    ((cause, _, names_ranks),) = told.causes()
    assert (cause.subject, names_ranks) == ("rank 2 (h3, process 102)", True)
    assert cause.evidence[1] == "nothing is sent yet by rank 2 (h3, process 102)"


def test_who_cannot_send_as_another_has_not_begun_is_not_named() -> None:
    told = Told()
    told.whole(range(5))
    told.stands([0, 3], 5)
    told.stands([1], 5, sent=0)
    ((cause, _, _),) = told.causes()
    assert cause.subject == "rank 2 (h3, process 102)"


def test_in_a_broadcast_the_last_of_the_ring_sends_nothing() -> None:
    told = Told()
    told.whole(range(5), function=BROADCAST)
    told.stands([0, 1, 3], 5, function=BROADCAST)
    told.stands([2], 5, function=BROADCAST, sent=0)
    ((cause, _, names_ranks),) = told.causes()
    assert (cause.subject, names_ranks) == ("Broadcast 5 of communicator dp", False)


def test_of_what_nobody_has_sent_anything_nobody_is_named() -> None:
    told = Told()
    told.whole(range(5))
    told.stands(range(RANKS), 5, sent=0)
    ((cause, _, names_ranks),) = told.causes()
    assert (cause.subject, names_ranks) == ("AllReduce 5 of communicator dp", False)


def test_a_job_without_any_name_is_called_as_its_communicator() -> None:
    told = Told()
    told.stands([0, 1, 3], 0)
    assert [name for _, name, _ in told.causes()] == ["dp"]


def test_who_waits_in_another_communicator_is_not_to_blame() -> None:
    told = Told()
    for comm in (7, 8):
        told.whole(range(5), comm=comm)
    told.stands([0, 1], 5, comm=7)
    told.stands([2], 5, comm=8)
    ((cause, _, _),) = told.causes()
    assert cause.subject == "rank 3 (h4, process 103)"


def test_ranks_that_call_in_different_orders_wait_for_each_other() -> None:
    told = Told()
    for function in (ALL_REDUCE, ALL_GATHER):
        told.whole(range(5), function=function)
    told.stands([0, 1, 2], 5)
    told.stands([3], 5, function=ALL_GATHER)
    ((cause, _, names_ranks),) = told.causes()
    assert (cause.subject, names_ranks) == ("AllReduce 5 of communicator dp", False)
    assert "AllGather 5" in cause.evidence[1]
    assert "each waits for the other" in cause.evidence[2]


def test_a_call_that_all_have_begun_names_nobody() -> None:
    told = Told()
    told.whole(range(5))
    told.stands([0, 1, 3], 5, since_s=19.9975)
    told.stands([2], 5)
    ((cause, _, names_ranks),) = told.causes()
    assert (cause.subject, names_ranks) == ("AllReduce 5 of communicator dp", False)
    assert cause.evidence == (
        "AllReduce 5 of communicator dp has stood still for 20 s: begun by 4 of 4 ranks",
        "the first that did nothing more is rank 2 (h3, process 102), 2.500 ms before the next",
    )


def test_what_may_go_on_by_itself_is_no_standstill() -> None:
    told = Told()
    told.whole(range(5))
    told.stands([0, 1], 5, since_s=STANDS_NS / S - 0.1)
    told.stands([0], 6, since_s=3_000.0, function=RECV)
    assert told.causes() == []
    assert Told().causes() == []


def test_what_is_over_or_not_heard_of_any_more_is_none() -> None:
    told = Told()
    told.whole(range(5))
    told.stands([0, 1, 3], 5)
    assert told.causes(now_ns=None) == []
    assert told.causes(now_ns=NOW + HEARD_NS) == []
    told.tell(range(RANKS), 5, NOW - 20 * S, is_over=True, heard_ns=NOW)
    assert told.causes() == []


def test_the_first_of_several_calls_that_wait_is_told() -> None:
    told = Told()
    told.whole(range(5))
    told.stands([0, 1, 3], 6, since_s=18.0)
    told.stands([0, 1, 3], 5)
    ((cause, _, _),) = told.causes()
    assert "AllReduce 5" in cause.evidence[0]


def test_each_job_has_its_own() -> None:
    told, other = Told("a"), Told("b")
    other.store = told.store
    for one, comm in ((told, 7), (other, 8)):
        one.whole(range(5), comm=comm)
        one.stands([0, 1, 2], 5, comm=comm)
    assert [name for _, name, _ in told.causes()] == ["a", "b"]


def test_ranks_of_which_no_call_was_over_yet_are_not_known() -> None:
    """A rank on no network tells nothing, so who has not told need not be missing."""
    told = Told()
    told.stands([0, 1, 3], 0)
    ((cause, _, names_ranks),) = told.causes()
    assert (cause.subject, names_ranks) == ("AllReduce 0 of communicator dp", False)
    assert cause.evidence[0].endswith("begun by 3 of 4 ranks")


LOOK_S = 2.5
GONE = round(GONE_S / LOOK_S) + 1


class Fleet:
    """A watch, looked at while calls stand."""

    def __init__(self, told: Told) -> None:
        self.events: list[tuple[str, str]] = []
        self.known = links()
        self.now_s = 0.0
        self.watch = CauseWatch(self._note, lambda: lambda _: self.known, told.store)

    def _note(self, _host: str, kind: str, detail: str, **_: object) -> None:
        self.events.append((kind, detail))

    def look(self, jobs: dict[str, Job], times: int = 1, now_ns: int = NOW) -> Sequence[str]:
        for _ in range(times):
            self.now_s += LOOK_S
            self.watch.take(self.watch.due(jobs, self.now_s, now_ns)(), self.now_s)
        return [kind for kind, _ in self.events]


def test_it_is_one_event_and_one_when_it_is_over() -> None:
    told = Told("train")
    told.whole(range(5))
    told.stands([0, 1, 3], 5)
    fleet = Fleet(told)
    assert fleet.look({}, 4) == ["job_slow"]
    assert fleet.events[0][1].startswith("train: standstill, rank 2 (h3, process 102); AllReduce 5 ")
    told.tell(range(RANKS), 5, NOW - 20 * S, is_over=True, heard_ns=NOW)
    assert fleet.look({}, GONE) == ["job_slow", "job_slow_over"]


def test_where_a_link_is_at_fault_a_call_that_all_have_begun_is_not_told_beside() -> None:
    told = Told()
    told.whole(range(5))
    told.stands(range(RANKS), 5)
    fleet = Fleet(told)
    fleet.known = links(findings=[finding("silent", "l1", "s1")])
    fleet.look({"train": known(job())}, 3)
    assert [each.cause.kind for each in fleet.watch.current] == ["link"]
    fleet.known = links()
    fleet.look({"train": known(job())}, GONE + 2)
    assert [each.cause.kind for each in fleet.watch.current] == ["standstill"]
