"""The loops of links: how often they come round, and what they wait for."""

import asyncio
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asynchronous import asynchronous
from fakes import until

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Desired
from cwdp.shared.tasks import end
from manager.analysis import LINKS_INTERVAL_S, TRACES_AT_ONCE, Analysis
from manager.duties import Duties
from manager.fabric.model import KnownLinks
from manager.fabric.routes import DirectedLink, Routes
from manager.first_plan import AWAITED_S, TAKE_OVER_S, FirstPlan
from manager.hosts.happening import Move
from manager.jobs.flows import Flow
from manager.jobs.steps import Steps
from manager.state import FleetState


def _direct(_documents: Iterable[Desired]) -> None:
    """Nobody is told anything."""


def _analysis(**state: Any) -> Analysis:
    fake = SimpleNamespace(**{"leads": False, "planner": SimpleNamespace(on_moves=[]), **state})
    return Analysis(cast(Bus, None), cast(FleetState, fake), Duties(), direct=_direct)


def _waits(_now_s: float) -> None:
    time.sleep(0.2)


def _works(_now_s: float) -> None:
    until_s = time.thread_time() + 0.2
    while time.thread_time() < until_s:
        pass


@pytest.mark.parametrize(("look", "most"), [(_waits, 0.39), (_works, 10.0)])
@asynchronous
async def test_links_are_looked_at_as_often_as_processor_time_allows(
    look: Callable[[float], None], most: float
) -> None:
    """Time in which threads have had the interpreter is none of that."""
    began_s: list[float] = []

    def watch_links(now_s: float) -> None:
        began_s.append(now_s)
        look(now_s)

    watching = asyncio.create_task(
        _analysis(watch_links=watch_links, echo_orders=lambda _now_s: [])._watch_links()
    )
    await until(lambda: len(began_s) == 3)
    await end(watching)
    pauses_s = [began_s[i + 1] - began_s[i] - 0.2 for i in range(2)]
    least = LINKS_INTERVAL_S if look is _waits else 0.39
    assert least <= min(pauses_s) + 0.01
    assert min(pauses_s) < most


def test_moves_of_the_planner_are_told_by_flow_and_those_of_backups_are_none() -> None:
    heard: list[Flow] = []
    planner, members = SimpleNamespace(on_moves=[]), SimpleNamespace(nics_by_address={"10.0.0.2": "h2/eth0"})
    _analysis(planner=planner, members=members, causes=SimpleNamespace(hear_moves=heard.extend))
    (told,) = planner.on_moves
    whats = ("moved", "rerouted", "backed_up", "released")
    told(
        [
            Move(host="h1", nic="eth0", dst_addr="10.0.0.2", qpn=qpn, what=what, sport=1, backup_sport=2)
            for qpn, what in enumerate(whats)
        ]
    )
    assert heard == [Flow("h1/eth0", "h2/eth0", 0), Flow("h1/eth0", "h2/eth0", 1)]


@asynchronous
async def test_models_are_made_once_some_path_is_known() -> None:
    asked: list[Routes] = []

    def due(routes: Routes) -> None:
        asked.append(routes)

    fabric = SimpleNamespace(routes=Routes())
    making = asyncio.create_task(_analysis(watch=SimpleNamespace(due=due), fabric=fabric)._make_models())
    await asyncio.sleep(0.3)
    assert asked == []
    fabric.routes = Routes(version=1, links=(DirectedLink("a/nic0", "s"),))
    await until(lambda: asked != [])
    await end(making)


@asynchronous
async def test_jobs_that_cannot_be_inferred_or_explained_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Iterable[object]] = []
    looked: list[object] = []
    explained: list[object] = []

    def fails() -> list[object]:
        raise ValueError("nonsense")

    def due(jobs: object, _now_s: float, timeline_ns: int, _strays: object) -> Callable[[], object]:
        looked.append((jobs, timeline_ns))
        return fails if len(looked) == 1 else dict

    def inferred(*, well: bool) -> Steps[list[object]]:
        yield
        return [] if well else fails()

    answers = [inferred(well=False), None]
    watch = SimpleNamespace(
        due=lambda _now_s: answers.pop(0) if answers else inferred(well=True),
        take=taken.append,
        jobs=[],
        strays={},
    )
    traffic = SimpleNamespace(timeline_ns=lambda _now_s: 7)
    monkeypatch.setattr("manager.analysis.JOBS_INTERVAL_S", 0.01)
    causes = SimpleNamespace(due=due, take=lambda found, _now_s: explained.append(found))
    analysis = _analysis(jobs=watch, causes=causes, traffic=traffic)
    inferring = asyncio.create_task(analysis._infer_jobs())
    await until(lambda: len(explained) >= 2)
    await end(inferring)
    assert (looked[:3], explained[:2]) == ([({}, 7)] * 3, [{}, {}])
    assert [list(filter(None, each)) for each in taken[:4]] == [[], [], [], []]


@pytest.mark.parametrize(("look", "most_s"), [(_waits, 0.39), (_works, 10.0)])
@asynchronous
async def test_jobs_are_looked_at_as_often_as_processor_time_allows(
    look: Callable[[float], None], most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time in which others have had the processor is none of that."""
    monkeypatch.setattr("manager.analysis.JOBS_INTERVAL_S", 0.01)
    monkeypatch.setattr("manager.analysis.JOBS_SHARE", 0.5)
    began_s: list[float] = []

    def due(now_s: float) -> Steps[list[object]]:
        began_s.append(now_s)
        return infer(now_s)

    def infer(now_s: float) -> Steps[list[object]]:
        look(now_s)
        yield
        return []

    watch = SimpleNamespace(due=due, take=lambda _jobs: None, jobs=[], strays={})
    causes = SimpleNamespace(due=lambda *_known: dict, take=lambda _found, _now_s: None)
    traffic = SimpleNamespace(timeline_ns=lambda _now_s: 0)
    inferring = asyncio.create_task(_analysis(jobs=watch, causes=causes, traffic=traffic)._infer_jobs())
    await until(lambda: len(began_s) == 3)
    await end(inferring)
    pauses_s = [began_s[i + 1] - began_s[i] - 0.2 for i in range(2)]
    assert (0.01 if look is _waits else 0.39) <= min(pauses_s) + 0.01
    assert min(pauses_s) < most_s


@pytest.mark.parametrize("knows_paths", [True, False])
@asynchronous
async def test_orders_and_jobs_wait_for_the_first_plan_of_a_manager_that_has_begun_to_lead(
    monkeypatch: pytest.MonkeyPatch, *, knows_paths: bool
) -> None:
    """And the first paths do."""
    done: list[str] = []
    first_plan = FirstPlan()
    first_plan.lead(time.monotonic())
    monkeypatch.setattr("manager.analysis.JOBS_INTERVAL_S", 0.01)
    monkeypatch.setattr("manager.analysis.DISCOVERY_INTERVAL_S", 0.01)

    def note(what: str, answer: object) -> Callable[..., object]:
        def say(*_of: object) -> object:
            done.append(what)
            return answer

        return say

    state = SimpleNamespace(
        leads=True,
        planner=SimpleNamespace(on_moves=[]),
        first_plan=first_plan,
        jobs=SimpleNamespace(due=note("jobs", None), take=lambda _jobs: None, jobs=[], strays={}),
        traffic=SimpleNamespace(timeline_ns=lambda _now_s: 0, queue_pairs=SimpleNamespace(tables={})),
        causes=SimpleNamespace(due=lambda *_known: dict, take=lambda _found, _now_s: None),
        subnets=SimpleNamespace(links=lambda *_known: KnownLinks()),
        subnet_faults=SimpleNamespace(dead_links=()),
        discovery=SimpleNamespace(
            pending=0,
            goes_on=False,
            learn=note("paths", []),
            fabric=SimpleNamespace(
                store=(), routes=SimpleNamespace(links=("a link",) if knows_paths else ())
            ),
        ),
        note_fabric=lambda _changes: None,
        members=SimpleNamespace(up=lambda: ["h1"]),
        begin_discovery=note("orders", (False, None)),
    )
    bus = cast(Bus, SimpleNamespace(connected=True))
    analysis = Analysis(bus, cast(FleetState, state), Duties(), direct=_direct)
    loops = [asyncio.create_task(loop) for loop in (analysis._discover(), analysis._infer_jobs())]
    await asyncio.sleep(0.1)
    assert set(done) == ({"paths"} if knows_paths else set())
    state.discovery.goes_on = True
    first_plan.make()
    await until(lambda: {"paths", "jobs"} <= set(done))
    assert "orders" not in done
    state.traffic.queue_pairs.tables["h1", "nic0"] = None
    await until(lambda: {"paths", "orders", "jobs"} <= set(done))
    await end(*loops)


@asynchronous
async def test_many_traces_are_taken_in_bit_by_bit() -> None:
    taken: list[int] = []
    discovery = SimpleNamespace(
        pending=3 * TRACES_AT_ONCE + 1, take_in=lambda _now_s, most: taken.append(most)
    )
    analysis = _analysis(discovery=discovery)
    await analysis._take_in_traces()
    assert taken == [TRACES_AT_ONCE] * 3


def test_a_first_plan_is_awaited_for_so_long() -> None:
    first_plan = FirstPlan()
    assert first_plan.may(0.0, lambda: False)
    first_plan.lead(100.0)
    assert not first_plan.may(100.0 + TAKE_OVER_S, lambda: False)
    assert first_plan.is_awaited(100.0 + TAKE_OVER_S)
    assert first_plan.may(100.1 + TAKE_OVER_S, lambda: False)
    assert not first_plan.is_awaited(100.0 + AWAITED_S)
    first_plan.lead(200.0)
    assert first_plan.may(200.0, lambda: True)
    assert first_plan.may(200.0, lambda: False)
    first_plan.make()
    assert not first_plan.is_awaited(200.0)
    assert first_plan.is_lately(200.0)
    assert not first_plan.is_lately(200.0 + AWAITED_S)
