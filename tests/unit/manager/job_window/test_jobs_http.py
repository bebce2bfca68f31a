"""`/v1/trace` and `/v1/job-series` as they are asked for."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from job_fleet import JobFleet

from manager.api.jobs import jobs_http
from manager.api.jobs.jobs_http import JobsHttp


def asked(fleet: JobFleet, *paths: str) -> list[tuple[int, Any]]:
    async def ask() -> list[tuple[int, Any]]:
        application = web.Application()
        application.add_routes(JobsHttp(fleet.state).routes())
        async with TestClient(TestServer(application)) as client:
            return [await _answer(client, path) for path in paths]

    return asyncio.run(ask())


async def _answer(client: TestClient[Any, Any], path: str) -> tuple[int, Any]:
    async with client.get(path) as response:
        return response.status, await response.json()


@pytest.fixture(scope="module")
def fleet() -> JobFleet:
    return JobFleet()


def test_a_window_ends_now(fleet: JobFleet) -> None:
    ((status, answer),) = asked(fleet, "/v1/trace?job=h1&window_ns=5000000000")
    assert status == 200
    assert answer["until_ns"] - answer["since_ns"] == 5_000_000_000
    assert sum(len(each["sent"]) for each in answer["queue_pairs"]) > 10
    ((status, answer),) = asked(fleet, "/v1/trace?job=h1")
    assert answer["until_ns"] - answer["since_ns"] == 10_000_000_000
    ((status, answer),) = asked(fleet, "/v1/job-series?job=h1")
    assert (status, len(answer["from_s"])) == (200, 300)


@pytest.mark.parametrize("text", ["0", "-1", "1e9", "300000000001", "9" * 400, "\u0661\u0660", ""])
def test_a_window_that_cannot_be_is_refused(fleet: JobFleet, text: str) -> None:
    ((status, answer),) = asked(fleet, f"/v1/trace?job=h1&window_ns={text}")
    assert status == 400
    assert "no whole number from 1000000 to 30000000000" in answer["error"]
    assert answer["hint"] == "bursts are looked at for 300 s"


@pytest.mark.parametrize("path", ["/v1/trace", "/v1/trace?job=h9", "/v1/job-series?job=", "/v1/job-series"])
def test_a_job_that_nobody_knows(fleet: JobFleet, path: str) -> None:
    ((status, answer),) = asked(fleet, path)
    assert status == 404
    assert answer["error"].startswith("no job is called ")
    assert "cwdp job" in answer["hint"]


def test_who_asks_for_a_chart_within_a_moment_gets_the_same(
    fleet: JobFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/job-series?job=h1"
    monkeypatch.setattr(jobs_http, "LASTS_S", 600.0)
    first, unknown, second = asked(fleet, path, "/v1/job-series?job=h9", path)
    assert first == second
    assert unknown[0] == 404
    monkeypatch.setattr(jobs_http, "LASTS_S", 0.0)
    first, second = asked(fleet, path, path)
    assert first != second
