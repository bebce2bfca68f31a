"""History over a bus: shared, whole after trouble, and in nobody's way."""

import asyncio
import contextlib
import itertools
import json
import os
import pwd
import resource
import shutil
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest
from asynchronous import asynchronous
from bus_fakes import bus_server, manager_bus, save_authority
from click.testing import CliRunner
from fakes import fleet, until
from nats.aio.msg import Msg
from nats.js.client import JetStreamContext

from cwdp.cli import main
from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from cwdp.shared.tasks import end
from manager.clock.timeline import Identity
from manager.config import HistorySettings, ManagerConfig, ProbeSettings
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, cable
from manager.history import queries, samples
from manager.history.queries import Wanted
from manager.history.rings import LEVELS
from manager.history.service import LOOK_EVERY_S, PAIRS_EVERY_S, History, rest_s
from manager.history.store import FILE, Store
from manager.history.writer import RETRY_S, StoppedError
from manager.overrides.steering import SteerOverride
from manager.service import Manager
from manager.state import FleetState
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")


class _One:
    """What of a manager history needs."""

    def __init__(self, name: str, directory: Path, url: str) -> None:
        self.state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
        self.state.stand_by()
        self.bus = manager_bus(url, name=name)
        self.history = History(HistorySettings(max_bytes=1 << 26), directory, self.state, self.bus, name)
        self.files = directory / "history"
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.bus.start()
        self._task = asyncio.create_task(self.history.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        await end(self._task)
        await self.bus.close()

    def lead(self) -> None:
        self.state.leads = True

    def note(self, *kinds: str) -> None:
        for kind in kinds:
            self.state.note("h1", kind, f"about {kind}", nic="nic0")

    async def kinds(self) -> list[str]:
        wanted = Wanted(since_s=0.0, until_s=1e11, host="h1", limit=10_000)
        rows, _ = await self.history.ask(lambda db: queries.events(db, wanted))
        return [row["kind"] for row in rows]

    async def until_kinds(self, *kinds: str) -> None:
        for _ in range(400):
            with contextlib.suppress(StoppedError):
                if await self.kinds() == list(kinds):
                    return
            await asyncio.sleep(0.05)
        assert await self.kinds() == list(kinds)

    def told(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.state.events)


@pytest.mark.parametrize("now_s", [1_000.0, 1_004.9, 1_009.99])
def test_a_job_that_takes_long_and_wakes_late_leaves_out_no_bucket(now_s: float) -> None:
    buckets = []
    for i in range(1_000):
        begun_s = now_s
        buckets.append(LEVELS[0].number(begun_s))
        now_s += 0.01 + i % 80 / 10
        now_s += rest_s(begun_s, now_s, PAIRS_EVERY_S) + i % 10 / 100 - 0.01
    assert buckets == list(range(buckets[0], buckets[0] + 1_000))


def test_a_clock_that_is_set_back_lets_no_job_wait_long() -> None:
    assert rest_s(5_000.0, 1_400.0, 10.0) == 15.0


@asynchronous
async def test_every_manager_has_the_history_of_who_led(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server, _One("b", tmp_path / "b", server.url) as second:
        async with _One("a", tmp_path / "a", server.url) as first:
            first.lead()
            first.note("one")
            second.note("one")
            first.note("two")
            await second.until_kinds("one", "two")
        second.note("three")
        second.lead()
        await second.until_kinds("one", "two", "three")
        async with _One("c", tmp_path / "c", server.url) as fresh:
            await fresh.until_kinds("one", "two", "three")
        async with _One("a", tmp_path / "a", server.url) as again:
            await again.until_kinds("one", "two", "three")
            second.note("four")
            await again.until_kinds("one", "two", "three", "four")
            await asyncio.sleep(0.5)
            await again.until_kinds("one", "two", "three", "four")


@asynchronous
async def test_an_empty_answer_of_the_bus_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As its client gives one where the server says first that time is up."""
    fetch, empty = JetStreamContext.PullSubscription.fetch, itertools.cycle([True, False])

    async def answered(self: JetStreamContext.PullSubscription, *args: Any, **how: Any) -> list[Msg]:
        return [] if next(empty) else await fetch(self, *args, **how)

    monkeypatch.setattr(JetStreamContext.PullSubscription, "fetch", answered)
    async with bus_server(tmp_path / "nats") as server, _One("a", tmp_path / "a", server.url) as one:
        one.lead()
        async with _One("b", tmp_path / "b", server.url) as other:
            for kind in ("one", "two", "three"):
                one.note(kind)
            await other.until_kinds("one", "two", "three")
    assert "failed" not in caplog.text


@asynchronous
async def test_findings_and_the_fabric_are_shared_and_end_with_who_told_them(tmp_path: Path) -> None:
    link = cable(DirectedLink("l1", "s1"))

    def finding(start_s: float) -> Finding:
        return Finding(number=0, kind="silent", subject=link, confidence=0.9, evidence=["e"], start_s=start_s)

    async def held(one: _One, at_s: float) -> list[float]:
        found = await one.history.ask(lambda db: queries.findings(db, at_s, at_s))
        return [each.start_s for each in found]

    async with bus_server(tmp_path / "nats") as server, _One("b", tmp_path / "b", server.url) as second:
        async with _One("a", tmp_path / "a", server.url) as first:
            first.lead()
            first.state.faults.open(finding(1.0))
            for _ in range(200):
                if await held(second, time.time()) == [1.0]:
                    break
                await asyncio.sleep(0.05)
        during_s = time.time()
        assert await held(second, during_s) == [1.0]
        second.state.faults.open(finding(2.0))
        second.lead()
        for _ in range(200):
            if await held(second, time.time()) == [2.0]:
                break
            await asyncio.sleep(0.05)
        assert await held(second, time.time()) == [2.0]
        assert await held(second, during_s) == [1.0]
        second.state.faults.close(second.state.faults.current[1], time.time())
        for _ in range(200):
            if await held(second, time.time()) == []:
                break
            await asyncio.sleep(0.05)
        assert await held(second, time.time()) == []


@asynchronous
async def test_without_a_bus_it_is_kept_here_and_sent_later(tmp_path: Path) -> None:
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    async with _One("a", tmp_path / "a", url) as first:
        first.lead()
        first.note("one", "two")
        await first.until_kinds("one", "two")
    async with _One("a2", tmp_path / "a", url) as first:
        first.lead()
        first.note("three")
        await first.until_kinds("one", "two", "three")
        async with bus_server(tmp_path / "nats", port), _One("b", tmp_path / "b", url) as second:
            await second.until_kinds("one", "two", "three")
            first.note("four")
            await second.until_kinds("one", "two", "three", "four")
        first.note("five")
        shutil.rmtree(tmp_path / "nats")  # a bus that has lost its store
        async with bus_server(tmp_path / "nats", port), _One("b", tmp_path / "b", url) as second:
            await second.until_kinds("one", "two", "three", "four", "five")
            first.note("six")
            await second.until_kinds("one", "two", "three", "four", "five", "six")
        await first.until_kinds("one", "two", "three", "four", "five", "six")


@pytest.mark.parametrize("what", ["head", "middle"])
@asynchronous
async def test_a_damaged_database_is_set_aside_told_of_and_read_again_from_the_bus(
    tmp_path: Path, what: str
) -> None:
    async with bus_server(tmp_path / "nats") as server:
        async with _One("a", tmp_path / "a", server.url) as first:
            first.lead()
            first.note(*(f"kind{i}" for i in range(2_000)))
            await first.until_kinds(*(f"kind{i}" for i in range(2_000)))
            await until(lambda: first.history.figures.records["sent"] > 0)
        path = first.files / FILE
        content = bytearray(path.read_bytes())
        start = 0 if what == "head" else 8 * 4096
        content[start:] = os.urandom(len(content) - start)
        path.write_bytes(content)
        async with _One("a2", tmp_path / "a", server.url) as again:
            again.lead()
            again.note("after")
            await until(lambda: again.told("history_set_aside") == 1)
            await again.until_kinds(*(f"kind{i}" for i in range(2_000)), "after")
            assert len(list(again.files.glob(f"{FILE}.corrupt-*"))) >= 1
            assert again.told("history_stopped") == 0


@asynchronous
async def test_a_full_disk_stops_history_and_nothing_else(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with _One("a", tmp_path / "a", "nats://127.0.0.1:1") as one:
        one.lead()
        one.note("one")
        await one.until_kinds("one")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            for i in range(50):
                one.note(f"full{i}")
            await until(lambda: one.history.figures.stopped)
            await asyncio.sleep(2 * RETRY_S)
            assert one.told("history_stopped") == 1
            with pytest.raises(StoppedError):
                await one.kinds()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        await one.until_kinds("one", *(f"full{i}" for i in range(50)))
        assert one.told("history_goes_on") == 1
        assert not one.history.figures.stopped
        assert one.history.figures.records["dropped"] == 0


@asynchronous
async def test_a_slow_disk_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Store.append

    def slowly(self: Store, message: Any) -> None:
        time.sleep(0.7)
        append(self, message)

    monkeypatch.setattr(Store, "append", slowly)

    async with _One("a", tmp_path / "a", "nats://127.0.0.1:1") as one:
        one.lead()
        turns, until_s = 0, time.monotonic() + 3.0
        while time.monotonic() < until_s:
            one.note(f"kind{turns}")
            turns += 1
            await asyncio.sleep(0.01)
        assert turns > 60
        await one.until_kinds(*(f"kind{i}" for i in range(turns)))


@asynchronous
async def test_whatever_fails_in_it_is_told_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, failed = samples.of_links, threading.Event()

    def once(*arguments: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError("unforeseen")
        return measure(*arguments)

    monkeypatch.setattr(samples, "of_links", once)
    async with _One("a", tmp_path, "nats://127.0.0.1:1") as one:
        one.lead()
        await until(failed.is_set)
        one.note("afterwards")
        await one.until_kinds("afterwards")
        assert one.told("history_failed") == 1


@asynchronous
async def test_who_is_stopped_while_it_writes_writes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, is_written = Store.append, threading.Event()

    def slowly(self: Store, message: Any) -> None:
        append(self, message)
        is_written.set()
        time.sleep(0.5)

    monkeypatch.setattr(Store, "append", slowly)
    async with _One("a", tmp_path, "nats://127.0.0.1:1") as one:
        one.lead()
        one.note("one", "two")
        await until(is_written.is_set)
    monkeypatch.undo()
    async with _One("b", tmp_path, "nats://127.0.0.1:1") as again:
        await again.until_kinds("one", "two")


@asynchronous
async def test_what_the_manager_answers_of_the_past(tmp_path: Path) -> None:
    port = free_port()
    config = ManagerConfig(
        authority=save_authority(tmp_path),
        bus_listen=f"127.0.0.1:{port}",
        state_dir=str(tmp_path / "state"),
        socket=str(tmp_path / "sock"),
        page="",
    )
    hosts = fleet(2, f"nats://127.0.0.1:{port}")
    manager = Manager(config)
    running = asyncio.create_task(manager.run())
    for host in hosts:
        host.start()
    try:
        await until(lambda: manager.state.leads and len(manager.state.members.hosts) == 2)
        override = SteerOverride(host="h1", nic="eth0", dst="10.0.0.1", qpn=7, sport=50_000)
        await asyncio.sleep(2 * LOOK_EVERY_S)
        await asyncio.to_thread(_ask, config.socket, override)
    finally:
        for host in hosts:
            await host.stop()
        manager.stop()
        await running


def _ask(socket: str, override: SteerOverride) -> None:
    client = ManagerClient(f"unix://{socket}")
    fields = {"host": "h1", "nic": "eth0", "dst": override.dst, "qpn": 7, "sport": 50_000}
    client.put("/v1/steer", fields, why="Zoë mends s1: #7 & 50 %")
    client.delete("/v1/steer", {"host": "h1", "nic": "eth0", "dst": override.dst, "qpn": 7})
    changes = client.get("/v1/history", {"what": "override"})["rows"]
    assert [(row["what"], row["action"], row["wanted"]["qpn"]) for row in changes] == [
        ("steer", "set", 7),
        ("steer", "withdrawn", 7),
    ]
    for kinds in ("steer_set,steer_withdrawn", "change"):
        events = client.get("/v1/events", {"kind": kinds, "since": "-60"})["events"]
        assert [event["kind"] for event in events] == ["steer_set", "steer_withdrawn"]
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert events[0]["detail"] == f"by {user}: 10.0.0.1 QPN 7 leaves from 50000; before: nothing"
    assert [event["why"] for event in events] == [
        "Zoë mends s1: #7 & 50 %",
        None,
    ]
    assert [(row["author"], row["why"], row["before"] is None) for row in changes] == [
        (user, "Zoë mends s1: #7 & 50 %", True),
        (user, None, False),
    ]
    assert client.get("/v1/events", {"kind": "change", "since": "-60", "limit": 1}) == {
        "events": events[1:],
        "more": True,
    }
    assert client.get("/v1/events", {"until": "-3600"}) == {"events": [], "more": False}
    for path, query in (
        ("/v1/events", {"since": "yesterday"}),
        ("/v1/events", {"since": "nan"}),
        ("/v1/events", {"limit": 0}),
        ("/v1/events", {"since": "-10", "until": "-20"}),
        ("/v1/fabric", {"at": "-1e12"}),
        ("/v1/link", {"at": "1e99"}),
        ("/v1/link", {"at": "-60"}),
        ("/v1/fabric", {"at": "-60"}),
        ("/v1/leaf-pair", {"at": "-60"}),
        ("/v1/series", {"a": "x"}),
        ("/v1/series", {"a": "x", "b": "<script>"}),
        ("/v1/history", {"what": "sqlite_master"}),
    ):
        with pytest.raises(ManagerError, match="refused") as raised:
            client.get(path, query)
        assert raised.value.hint
    future = CliRunner().invoke(main, ["link", "--at", "2999-01-01", "--manager", f"unix://{socket}"])
    assert future.exit_code == 1
    assert "is in the future" in future.stderr
    shown = CliRunner().invoke(
        main, ["event", "--since", "5m", "--kind", "steer set", "--manager", f"unix://{socket}"]
    )
    assert shown.exit_code == 0, shown.output
    assert f"by {user}" in shown.output
    assert json.loads(json.dumps(client.get("/v1/history", {"what": "finding"}))) == {"rows": []}
