"""The page's listener: only reading, only for itself, whatever viewers do."""

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from manager.access.callers import Callers
from manager.access.grants import Grants
from manager.access.listeners import Listener
from manager.config import RoleSettings
from manager.page.server import Page
from manager.state import FleetState
from tools.free_ports import free_port
from tools.sim.fleet.known import KnownFleet, break_link, known_state
from tools.sim.fleet.served import page_of

SIZE = KnownFleet(leaves=5, spines=3, hosts_per_leaf=3)


@contextlib.asynccontextmanager
async def _page(state: FleetState) -> AsyncIterator[tuple[Page, aiohttp.ClientSession]]:
    async with page_of(state, f"127.0.0.1:{free_port()}") as page:
        assert page.url is not None
        async with aiohttp.ClientSession(page.url, timeout=aiohttp.ClientTimeout(10)) as session:
            yield page, session


async def _json(session: aiohttp.ClientSession, path: str, status: int = 200) -> Any:
    async with session.get(path) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


def _run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_every_answer_bears_the_headers_that_browsers_heed() -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (_, session):
            for path in ("/", "/v1/fleet", "/v1/nothing", "/nothing.js", "/v1/leaf", "/v1/stream"):
                async with session.get(path) as answer:
                    assert answer.headers["X-Content-Type-Options"] == "nosniff"
                    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]

    _run(look)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(method: str) -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (_, session), session.request(method, "/v1/steer") as answer:
            assert answer.status == 405

    _run(look)


def test_a_foreign_name_is_refused_and_an_address_is_not() -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (_, session):
            for host, status in (
                ("evil.example", 403),
                ("localhost", 200),
                ("127.0.0.1", 200),
                ("[::1]:9", 200),
            ):
                async with session.get("/v1/fleet", headers={"Host": host}) as answer:
                    assert answer.status == status

    _run(look)


def test_files_are_compressed_and_not_sent_twice_and_nothing_else_is_served() -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (page, session):
            assert page.url is not None
            async with session.get("/") as answer:
                assert answer.headers["Content-Encoding"] == "gzip"
                etag = answer.headers["ETag"]
            async with session.get("/", headers={"If-None-Match": etag}) as answer:
                assert answer.status == 304
            for path in ("/../server.py", "/%2e%2e/server.py", "//etc/passwd", "/vendor/"):
                async with session.get(page.url.rstrip("/") + path) as answer:
                    assert answer.status == 404

    _run(look)


def test_a_manager_that_waits_serves_too_and_says_so() -> None:
    async def look() -> None:
        state = known_state(SIZE)
        state.stand_by()
        async with _page(state) as (_, session):
            told = await _json(session, "/v1/fleet")
            assert [each["text"] for each in told["notices"] if each["state"] == "standby"] == [
                "This manager stands by; simulated leads."
            ]
            assert told["nics"]["probed"] == SIZE.hosts

    _run(look)


def test_a_taken_port_leaves_the_manager_without_a_page_and_no_more() -> None:
    async def look() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = Listener("127.0.0.1", taken.getsockname()[1])
            callers = Callers(RoleSettings(), Grants(None))
            page = Page(listen, callers, [], lambda: asyncio.sleep(0, {}))
            await page.start()
            assert page.url is None
            await page.stop()

    _run(look)


def test_the_stream_ticks_and_says_goodbye() -> None:
    async def look() -> None:
        state = known_state(SIZE)
        async with _page(state) as (page, session), session.get("/v1/stream") as answer:
            assert answer.content_type == "text/event-stream"
            assert await answer.content.readline() == b"event: tick\n"
            tick = json.loads((await answer.content.readline()).removeprefix(b"data: "))
            assert tick["finding_count"] == 0
            break_link(state, "l1", "s1")
            while tick["finding_count"] == 0:
                line = await answer.content.readline()
                if line.startswith(b"data: "):
                    tick = json.loads(line.removeprefix(b"data: "))
            assert tick["verdict"]["severity"] == "critical"
            await asyncio.gather(page.stop(), _until_goodbye(answer))

    _run(look)


async def _until_goodbye(answer: aiohttp.ClientResponse) -> None:
    while (await answer.content.readline()) != b"event: bye\n":
        pass


def test_a_viewer_that_reads_nothing_costs_the_others_nothing() -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (page, session):
            assert page.url is not None
            host, port = page.url.removeprefix("http://").rstrip("/").split(":")
            with socket.create_connection((host, int(port))) as silent:
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                silent.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
                async with session.get("/v1/stream") as answer:
                    for _ in range(3):
                        assert await answer.content.readline() == b"event: tick\n"
                        await answer.content.readline()
                        await answer.content.readline()

    _run(look)


def test_a_matrix_travels_whole_and_then_by_its_changes() -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (_, session):
            whole = await _json(session, "/v1/matrix?metric=spread")
            assert len(whole["names"]) == SIZE.leaves
            changes = whole
            while changes["version"] == whole["version"]:
                changes = await _json(session, f"/v1/matrix?metric=spread&from={whole['version']}")
            assert changes["from"] == whole["version"]
            assert "names" not in changes
            unknown = await _json(session, "/v1/matrix?metric=spread&from=3")
            assert unknown["names"] == whole["names"]

    _run(look)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/leaf", 400),
        ("/v1/leaf?name=<img src=x>", 404),
        ("/v1/link-view?a=l1&b=nowhere", 404),
        ("/v1/qp-view?host=h1&nic=nic0&dst_addr=rubbish&qpn=4", 404),
        ("/v1/qp-view?host=h1&nic=nic0&dst_addr=10.0.0.2&qpn=-4", 400),
        ("/v1/job?name=nobody", 404),
        ("/v1/matrix?metric=beauty", 400),
        ("/v1/matrix?from=x", 400),
        ("/v1/fleet?at=-60", 400),
        ("/v1/fleet?at=yesterday", 400),
    ],
)
def test_what_cannot_be_answered_is_said_with_a_way_on(path: str, status: int) -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (_, session):
            told = await _json(session, path, status)
            assert told["error"]
            assert told["hint"]

    _run(look)


def test_who_asks_for_the_same_in_a_moment_gets_the_same_bytes_once_made() -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (_, session):
            bodies = []
            for _ in range(2):
                async with session.get("/v1/fleet") as answer:
                    bodies.append(await answer.read())
            assert bodies[0] == bodies[1]
            async with session.get("/v1/fleet", headers={"Accept-Encoding": "identity"}) as answer:
                assert "Content-Encoding" not in answer.headers
                assert await answer.read() == bodies[0]
            assert json.loads(gzip.decompress(gzip.compress(bodies[0])))["is_live"]

    _run(look)


def test_long_answers_are_compressed_for_who_takes_it() -> None:
    async def look() -> None:
        async with _page(known_state(SIZE)) as (_, session):
            for path in ("/v1/events", "/v1/host", "/v1/clock", "/v1/link"):
                async with session.get(path) as answer:
                    assert answer.headers["Content-Encoding"] == "gzip"
                    assert await answer.json()
                async with session.get(path, headers={"Accept-Encoding": "identity"}) as answer:
                    assert "Content-Encoding" not in answer.headers
                    assert await answer.json()

    _run(look)
