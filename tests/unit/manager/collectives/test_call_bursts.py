"""What ranks tell of their calls, as bursts of NICs of which none are seen."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cwdp.shared.bus.collectives import ENQUEUED, OVER, CollectiveReport
from cwdp.shared.bus.records import BURST_ROW, EGRESS, INGRESS, packed_address
from manager.collectives.bursts import GAP_NS, MOST_PROCESSES, MOST_RANKS, NO_QPN
from manager.collectives.store import CollectiveStore
from manager.hosts.members import Members
from manager.jobs.flows import Flow
from manager.jobs.inference import Job
from manager.jobs.membership import Owner, Owners
from manager.jobs.steps import finish
from manager.jobs.watch import JobWatch, ToldBursts
from manager.queue_pairs.bursts import REMEMBERED_NS
from manager.queue_pairs.traffic import Traffic
from tests.unit.manager.collectives.ring_calls import HOSTS, JOB, MS, NICS, NOW, RANKS, S, iterations, told


def heard(*reports: CollectiveReport, now_ns: int | None = NOW) -> CollectiveStore:
    store = CollectiveStore()
    for report in reports:
        store.hear(report, [*HOSTS, "liar"], now_ns)
    return store


def all_ranks(*spans_ns: tuple[int, int]) -> list[CollectiveReport]:
    return [told(rank, *spans_ns) for rank in range(RANKS)]


def seen(store: CollectiveStore, owners: dict[Flow, Owners] | None = None, **rings: Any) -> ToldBursts:
    known = store.bursts.told(NOW)
    assert known is not None
    return known({(host, "nic0"): rows for host, rows in rings.items()}, owners or {}, NICS)


def one(rows: Any, direction: int) -> Any:
    (row,) = rows[rows["direction"] == direction]
    return row


def test_each_rank_sends_to_the_next_from_the_first_nic_of_its_host() -> None:
    found = seen(heard(*all_ranks((NOW, NOW + 20 * MS))))
    assert set(found.rings) == {(host, "nic0") for host in HOSTS}
    sent, taken = (one(found.rings["h1", "nic0"], direction) for direction in (EGRESS, INGRESS))
    assert (sent["addr"].tobytes(), taken["addr"].tobytes()) == (
        packed_address("10.0.0.2"),
        packed_address("10.0.0.4"),
    )
    for row in (sent, taken):
        assert (row["start_ns"], row["end_ns"], row["bytes"], row["packets"]) == (
            NOW,
            NOW + 20 * MS,
            1_000,
            2,
        )
        assert row["qpn"] >= NO_QPN
    assert sent["qpn"] == one(found.rings["h2", "nic0"], INGRESS)["qpn"]
    flow = Flow("h1/nic0", "h2/nic0", int(sent["qpn"]))
    assert found.owners[flow] == (Owner("h1", 100, JOB), Owner("h2", 101, JOB))
    assert len(found.owners) == RANKS


def test_of_processes_that_programs_have_told_of_the_nic_and_the_queue_pair_are_theirs() -> None:
    flow = Flow("h1/nic1", "h2/nic1", 77)
    owners = {flow: (Owner("h1", 100), Owner("h2", 101)), flow._replace(qpn=99): (Owner("h1", 100), None)}
    back = Flow("h2/nic1", "h1/nic1", 7)
    found = seen(heard(*all_ranks((NOW, NOW + 20 * MS))), owners | {back: (Owner("h2", 101), None)})
    assert found.owners[flow] == (Owner("h1", 100, JOB), Owner("h2", 101, JOB))
    assert (
        one(found.rings["h1", "nic1"], EGRESS)["qpn"] == one(found.rings["h2", "nic1"], INGRESS)["qpn"] == 77
    )


def test_calls_that_follow_each_other_closely_are_one_burst() -> None:
    spans = [
        (NOW, NOW + MS),
        (NOW + MS + GAP_NS, NOW + 2 * MS + GAP_NS),
        (NOW + 3 * GAP_NS, NOW + 4 * GAP_NS),
    ]
    rows = seen(heard(*all_ranks(*spans))).rings["h1", "nic0"]
    sent = rows[rows["direction"] == EGRESS]
    assert sent["bytes"].tolist() == [2_000, 1_000]
    assert sent["end_ns"].tolist() == [spans[1][1], spans[2][1]]


def test_where_bursts_are_seen_on_a_host_they_count_and_not_what_its_ranks_tell() -> None:
    found = seen(heard(*all_ranks((NOW, NOW + MS))), h1=np.zeros(1, BURST_ROW))
    assert set(found.rings) == {(host, "nic0") for host in HOSTS[1:]}


@pytest.mark.parametrize("flags", [0, OVER | ENQUEUED])
def test_what_is_not_over_or_only_enqueued_is_no_burst(flags: int) -> None:
    assert heard(told(0, (NOW, NOW + MS), flags=flags)).bursts.told(NOW) is None


def test_nothing_is_taken_before_there_is_a_timeline_and_of_ranks_that_nobody_knows() -> None:
    assert heard(told(0, (NOW, NOW + MS)), now_ns=None).bursts.told(NOW) is None
    assert len(seen(heard(told(0, (NOW, NOW + MS)))).rings["h1", "nic0"]) == 0


def test_a_host_that_claims_anothers_rank_later_does_not_get_it() -> None:
    store = heard(*all_ranks((NOW, NOW + MS)))
    store.hear(told(1, (NOW + S, NOW + S + MS), host="liar"), ["liar"], NOW + S)
    sent = one(seen(store).rings["h1", "nic0"], EGRESS)
    assert sent["addr"].tobytes() == packed_address("10.0.0.2")


def test_a_host_that_names_ever_more_processes_and_communicators_fills_no_memory() -> None:
    store = CollectiveStore()
    for i in range(2 * MOST_RANKS):
        store.hear(told(0, (NOW, NOW + MS), pid=1 + i % (2 * MOST_PROCESSES), comm=i), HOSTS, NOW)
    known = cast(Any, store.bursts.told(NOW)).args[0]
    assert len(known.rings) == len(known.jobs) == MOST_PROCESSES
    assert [len(claims) for claims in known.claims] == [MOST_RANKS]


def test_a_pid_that_is_none_is_refused() -> None:
    assert heard(told(0, (NOW, NOW + MS), pid=2**40)).reports["not_sane"] == 1


def test_who_has_told_nothing_for_long_is_forgotten() -> None:
    store = heard(*all_ranks((NOW, NOW + MS)))
    assert store.bursts.told(NOW + REMEMBERED_NS) is not None
    assert store.bursts.told(NOW + REMEMBERED_NS + 1) is None


def test_a_job_is_known_by_what_its_ranks_tell_alone() -> None:
    store = heard(*iterations())
    traffic = SimpleNamespace(
        timeline_ns=lambda _now_s: NOW,
        bursts=SimpleNamespace(now=dict),
        verbs=SimpleNamespace(each=lambda: ()),
    )
    members = SimpleNamespace(nics_by_packed_address=NICS)
    watch = JobWatch(cast(Traffic, traffic), cast(Members, members), store.bursts.told)
    infer = watch.due(0.0)
    assert infer is not None
    (job,) = finish(infer).jobs
    check(job)


def check(job: Job) -> None:
    assert (job.named, job.confidence, job.is_inferred) == (JOB, 1.0, False)
    assert job.members == {f"{host}/nic0" for host in HOSTS}
    assert job.period_ns == pytest.approx(500 * MS, rel=0.01)
    assert [each.kind for each in job.communicators] == ["ring"]
    assert [each.nic for each in job.stragglers] == ["h3/nic0"]
