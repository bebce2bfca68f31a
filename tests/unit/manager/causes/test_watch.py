"""Diagnoses over time: one per cause, told once, over when it is over."""

from manager.causes.cause import Links
from manager.causes.usual import REMEMBERED_S
from manager.causes.watch import GONE_S, LATELY_S, UNKNOWN_SEEN_S, CauseWatch
from manager.collectives.store import CollectiveStore
from manager.jobs.pauses import Pauses
from manager.jobs.stragglers import Lateness
from tests.unit.manager.causes.cases import NICS, finding, job, links, ring

LOOK_S = 2.5
GONE = round(GONE_S / LOOK_S)
LATE = (Lateness("h3/nic0", 60_000_000, True),)
SLOW = job(took_ms=560, late=LATE)


class Fleet:
    """A watch with what it told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.known = links()
        self.now_s = 0.0
        self.watch = CauseWatch(self._note, lambda: lambda _: self.known, CollectiveStore())

    def _note(self, host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
        assert (host, nic) == ("fabric", None)
        self.events.append((kind, detail))

    def look(self, times: int = 1, **jobs: object) -> None:
        for _ in range(times):
            self.now_s += LOOK_S
            self.watch.take(self.watch.due(jobs, self.now_s)(), self.now_s)  # type: ignore[arg-type]


def test_a_cause_is_told_once_when_it_has_been_seen_again_and_once_when_it_is_over() -> None:
    fleet = Fleet()
    fleet.look(1, a=SLOW)
    assert fleet.events == []
    assert fleet.watch.current == []
    fleet.look(10, a=SLOW)
    assert [kind for kind, _ in fleet.events] == ["job_slow"]
    assert fleet.events[0][1].startswith("a: compute, h3/nic0, costs 60.0 ms an iteration; ")
    (one,) = fleet.watch.current
    assert (one.number, one.jobs, one.end_s) == (1, {"a"}, None)
    assert one.told_s is not None
    assert one.told_s >= one.start_s
    fleet.look(GONE, a=job())
    assert len(fleet.events) == 1
    fleet.look(1, a=job())
    assert [kind for kind, _ in fleet.events] == ["job_slow", "job_slow_over"]
    assert fleet.watch.current == []
    assert fleet.watch.past[0].end_s is not None


def test_what_is_seen_once_and_not_again_is_not_told() -> None:
    fleet = Fleet()
    for _ in range(5):
        fleet.look(1, a=SLOW)
        fleet.look(1, a=job())
    assert fleet.events == []


def test_what_came_again_and_again_is_told_at_once() -> None:
    fleet = Fleet()
    fleet.look(1, a=job(pauses=Pauses("h2/nic0", 50_000_000, 5, 50)))
    assert [kind for kind, _ in fleet.events] == ["job_slow"]
    assert fleet.events[0][1].startswith("a: host, h2/nic0, costs 5.0 ms an iteration; ")


def test_one_link_that_slows_two_jobs_is_one_cause() -> None:
    fleet = Fleet()
    resent = dict.fromkeys(ring(), 100)
    fleet.known = links(findings=[finding("lossy", "l1", "s1")])
    fleet.look(3, a=job(resent=resent), b=job(resent=resent))
    assert len(fleet.events) == 1
    assert fleet.watch.current[0].jobs == {"a", "b"}


def test_a_job_is_held_against_its_best_and_gets_used_to_what_lasts() -> None:
    fleet = Fleet()
    fleet.look(4, a=job())
    assert fleet.watch.usual_ns(job()) == 500e6
    fleet.look(round(UNKNOWN_SEEN_S / LOOK_S), a=job(took_ms=700))
    assert fleet.events == []
    fleet.look(1, a=job(took_ms=700))
    assert [kind for kind, _ in fleet.events] == ["job_slow"]
    fleet.look(round(REMEMBERED_S / LOOK_S) + GONE + 1, a=job(took_ms=700))
    assert [kind for kind, _ in fleet.events] == ["job_slow", "job_slow_over"]


def test_a_part_of_a_job_is_held_against_the_whole() -> None:
    fleet = Fleet()
    fleet.look(4, a=job())
    part = job(ring()[:1], took_ms=700)
    fleet.look(1, a=part)
    assert fleet.watch.usual_ns(part) == 500e6


def test_a_link_that_was_left_counts_for_a_while() -> None:
    fleet = Fleet()
    fleet.look(2, a=job())
    silent = [finding("silent", "l1", "s1")]
    fleet.known = Links(names=fleet.known.names, findings=silent)
    fleet.look(2, a=job())
    assert [kind for kind, _ in fleet.events] == ["job_slow"]
    fleet.look(round(LATELY_S / LOOK_S) + GONE + 1, a=job())
    assert [kind for kind, _ in fleet.events] == ["job_slow", "job_slow_over"]


def test_a_job_of_other_queue_pairs_on_the_same_nics_is_not_held_against_the_one_before() -> None:
    fleet = Fleet()
    fleet.look(4, a=job())
    anew = job([flow._replace(qpn=flow.qpn + 1000) for flow in ring()], took_ms=700)
    fleet.look(10, a=anew)
    assert fleet.events == []
    assert fleet.watch.usual_ns(anew) == 700e6


def test_what_a_moment_told_wrongly_is_not_usual() -> None:
    fleet = Fleet()
    fleet.look(1, a=job(took_ms=300))
    fleet.look(1, a=job())
    assert fleet.watch.usual_ns(job()) is None
    fleet.look(1, a=job())
    assert fleet.watch.usual_ns(job()) == 500e6
    fleet.look(1, a=job(took_ms=300))
    fleet.look(10, a=job())
    assert (fleet.watch.usual_ns(job()), fleet.events) == (500e6, [])


def test_jobs_that_meet_now_at_one_link_now_at_another_are_one_cause() -> None:
    fleet = Fleet()
    rival = job(ring(NICS[::-1]))
    fleet.look(4, a=job(), b=rival)
    for link in (("l1", "s1"), ("l2", "s1")):
        fleet.known = links([*ring(), *rival.flows], queue_us={link: 20_000.0})
        fleet.look(1, a=job(took_ms=700), b=job(ring(NICS[::-1]), took_ms=700))
    (one,) = fleet.watch.current
    assert (one.cause.kind, one.cause.subject, one.jobs) == ("contention", "l2 > s1", {"a", "b"})
    assert [kind for kind, _ in fleet.events] == ["job_slow"]


def test_who_gets_in_the_way_is_one_cause_before_its_job_is_known_and_after() -> None:
    fleet = Fleet()
    rival = job(ring(NICS[::-1]))
    strays = dict.fromkeys(rival.flows, 10_000)
    fleet.look(4, a=job())
    fleet.known = links([*ring(), *rival.flows], queue_us={("l1", "s1"): 20_000.0})
    for others in ({}, {}, {"b": job(ring(NICS[::-1]), took_ms=700)}, {}):
        fleet.now_s += LOOK_S
        jobs = {"a": job(took_ms=700), **others}
        fleet.watch.take(fleet.watch.due(jobs, fleet.now_s, None, {} if others else strays)(), fleet.now_s)
    (one,) = fleet.watch.current
    assert (one.cause.kind, one.jobs) == ("contention", {"a"})
    assert [kind for kind, _ in fleet.events] == ["job_slow"]


def test_several_iterations_that_are_taken_for_one_are_not_slower_ones() -> None:
    """They send as many times as much. One that sends as much and takes longer is slower, whatever it sends again."""
    fleet = Fleet()
    fleet.look(10, a=job(took_ms=500, packets=1_000.0))
    fleet.look(20, a=job(took_ms=2_600, packets=5_000.0))
    assert fleet.events == []
    fleet.look(10, a=job(took_ms=560, packets=1_010.0))
    assert [kind for kind, _ in fleet.events] == ["job_slow"]
