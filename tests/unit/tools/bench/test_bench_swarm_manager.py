"""What a pod's manager is asked, and how it is called."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from manager.config import ManagerConfig, load
from manager.identity.authority import Authority
from tools.bench.swarm.manager import PodManager

METRICS = """\
# TYPE cwdp_manager_duty_seconds counter
cwdp_manager_duty_seconds_total{duty="plan"} 2.5
cwdp_manager_duty_seconds_total{duty="root"} 0.5
# TYPE cwdp_manager_loop_lag_seconds gauge
cwdp_manager_loop_lag_seconds 0.25
# TYPE cwdp_manager_backlog_seconds gauge
cwdp_manager_backlog_seconds 0.125
# TYPE cwdp_bus counter
cwdp_bus_total{reason="lost_on_the_way"} 3
"""


@pytest.fixture
def manager(tmp_path: Path) -> PodManager:
    return PodManager("p2", tmp_path / "p2", "nats://127.0.0.1:1", Authority.new(), (4, 100.0))


async def asked(manager: PodManager, answer: dict[str, Any], metrics: str = METRICS) -> tuple[Any, list[str]]:
    """What it is taken to have said, and what it was asked."""
    queries = []

    async def events(request: web.Request) -> web.Response:
        queries.append(request.query_string)
        return web.json_response(answer)

    async def tell(_: web.Request) -> web.Response:
        return web.Response(text=metrics)

    app = web.Application()
    app.add_routes([web.get("/v1/events", events), web.get("/metrics", tell)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(manager._socket)).start()
    try:
        return (await manager.events(7.5, "kind=manager_leads"), await manager.metrics()), queries
    finally:
        await runner.cleanup()


def test_events_are_those_of_its_whole_history_or_none(manager: PodManager) -> None:
    event = {"kind": "manager_leads"}
    (found, _), queries = asyncio.run(asked(manager, {"events": [event], "more": False}))
    assert found == [event]
    assert queries == ["since=7.5&limit=10000&kind=manager_leads"]
    (found, _), _ = asyncio.run(asked(manager, {"events": [event], "more": True, "incomplete": "stopped"}))
    assert found is None


def test_metrics_are_added_up_and_what_is_absent_is_nothing(manager: PodManager) -> None:
    answer: dict[str, Any] = {"events": [], "more": False}
    (_, found), _ = asyncio.run(asked(manager, answer))
    assert found == {"duty plan": 2.5, "duty root": 0.5, "lag": 0.25, "wait": 0.125, "lost": 3.0}
    (_, found), _ = asyncio.run(asked(manager, answer, metrics=""))
    assert found == {"lag": 0.0, "wait": 0.0, "lost": 0.0}


def test_it_is_of_its_pod_and_has_the_fleets_authority(manager: PodManager, tmp_path: Path) -> None:
    settings = load(tmp_path / "p2" / "manager.toml")
    assert isinstance(settings, ManagerConfig)
    assert (settings.pod, settings.name) == ("p2", "p2")
    Authority.load(tmp_path / "p2" / "state" / "authority")
