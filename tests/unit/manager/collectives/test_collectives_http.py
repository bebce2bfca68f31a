"""`/v1/collectives`: what it answers, and what it refuses."""

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from asynchronous import asynchronous

from manager.api.jobs.collectives_http import routes
from manager.collectives.store import CollectiveStore


async def _asked(query: str) -> tuple[int, Any]:
    app = web.Application()
    app.add_routes(routes(CollectiveStore()))
    async with TestClient(TestServer(app)) as client:
        answer = await client.get(f"/v1/collectives{query}")
        return answer.status, await answer.json()


@asynchronous
async def test_none_yet() -> None:
    assert await _asked("?job=x&sort=slowest&limit=3") == (200, {"collectives": [], "count": 0, "jobs": []})


@pytest.mark.parametrize("query", ["?sort=fastest", "?limit=many", "?limit=-1"])
@asynchronous
async def test_what_cannot_be_answered(query: str) -> None:
    status, answer = await _asked(query)
    assert status == 400
    assert "limit a whole number" in answer["error"]
