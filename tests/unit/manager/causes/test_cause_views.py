"""What the HTTP API answers of causes."""

import json

from manager.causes.watch import GONE_S, CauseWatch
from manager.collectives.store import CollectiveStore
from manager.jobs.flows import Flow
from manager.jobs.stragglers import Lateness
from manager.view.cause_views import PAST_SHOWN, causes
from tests.unit.manager.causes.cases import job, links

SLOW = job(took_ms=560, late=(Lateness("h3/nic0", 60_000_000, True),))
NAME = "h1"


def watched(times: int = 1) -> CauseWatch:
    watch = CauseWatch(lambda *_, **__: None, lambda: lambda _: links(), CollectiveStore())
    now_s = 0.0
    for one in (*(SLOW, SLOW, job(), job()) * times, SLOW, SLOW):
        now_s += GONE_S
        watch.take(watch.due({NAME: one}, now_s)(), now_s)
    return watch


def test_what_holds_stands_before_what_held_and_all_of_it_is_json() -> None:
    answer = causes(watched(), [SLOW])
    assert answer is not None
    assert json.loads(json.dumps(answer)) == answer
    assert answer["jobs"] == [{"name": NAME, "iteration_ns": 560_000_000, "usual_ns": 500_000_000}]
    first, second = answer["causes"]
    assert (first["number"], first["end_s"], second["number"]) == (2, None, 1)
    assert second["end_s"] >= second["told_s"] >= second["start_s"]
    assert (first["kind"], first["rank"], first["jobs"], first["costs_ns"]) == (
        "compute",
        "h3/nic0",
        [NAME],
        60_000_000,
    )


def test_what_the_planner_has_done_is_told_with_what_it_brought() -> None:
    watch = watched()
    watch.hear_moves(SLOW.flows[:2])
    watch.hear_moves([SLOW.flows[0], Flow("h8/nic0", "h9/nic0", 5)])
    now_s = 100 * GONE_S
    watch.take(watch.due({NAME: job(took_ms=530, late=SLOW.lately.late)}, now_s)(), now_s)
    answer = causes(watch, [SLOW])
    assert answer is not None
    first, second = answer["causes"]
    assert first["acted"] == [{"job": NAME, "moved": 3, "before_ns": 560_000_000, "after_ns": 530_000_000}]
    assert (first["avoided"], second["acted"]) == ([], [])


def test_of_one_job_only_what_is_of_it_and_none_where_nothing_is() -> None:
    watch = watched()
    assert causes(watch, [SLOW], "nobody") is None
    gone = causes(watch, [], NAME)
    assert gone is not None
    assert (gone["jobs"], len(gone["causes"])) == ([], 2)


def test_only_so_much_of_the_past_is_shown() -> None:
    answer = causes(watched(PAST_SHOWN + 9), [SLOW])
    assert answer is not None
    assert len(answer["causes"]) == PAST_SHOWN + 1
    assert answer["causes"][1]["number"] == PAST_SHOWN + 9
