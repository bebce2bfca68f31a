"""What a manager begins to lead with, where the bus answers late or takes nothing, and what becomes of earlier leaders' words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.api
import nats.js.kv
import nats.js.manager
import pytest
from asynchronous import asynchronous
from bus_fakes import bus_server, manager_bus
from fakes import until

from cwdp.errors import BusError
from manager.bus.state import BusState
from manager.overrides.steering import SteerOverride, SteerTable

pytestmark = pytest.mark.needs("nats-server")

Found = nats.js.api.RawStreamMsg


def _override(qpn: int) -> SteerOverride:
    return SteerOverride(host="h1", nic="eth0", dst="10.0.0.8", qpn=qpn, sport=50_002)


class _Manager:
    """What one keeps on the bus."""

    def __init__(self, kept: BusState, steering: SteerTable) -> None:
        self.kept, self.steering = kept, steering
        self.leads, self.news = True, 0
        kept.on_news = self._count

    def _count(self) -> None:
        self.news += 1

    @property
    def wanted(self) -> list[int | None]:
        return [override.qpn for override in self.steering.all()]


@asynccontextmanager
async def _manager(url: str, name: str) -> AsyncIterator[_Manager]:
    bus = manager_bus(url, name=name)

    async def confirm() -> bool:
        return made.leads

    steering = SteerTable(None)
    made = _Manager(BusState(bus, confirm, {"steer": steering}, shared={}), steering)
    bus.start()
    try:
        await until(lambda: bus.connected)
        yield made
    finally:
        await bus.close()


@asynccontextmanager
async def _two(tmp_path: Path) -> AsyncIterator[tuple[_Manager, _Manager]]:
    """One that leads and wants something, and one that waits."""
    async with (
        bus_server(tmp_path / "nats") as server,
        _manager(server.url, "a") as first,
        _manager(server.url, "b") as second,
    ):
        assert await first.kept.take_over("ours") == "ours"
        first.steering.set(_override(1))
        await first.kept.send()
        yield first, second


async def _silence(*_: Any, **__: Any) -> Any:
    raise nats.errors.TimeoutError


@asynchronous
async def test_who_has_looked_begins_at_once_while_no_copy_answers_or_takes_anything(tmp_path: Path) -> None:
    async with _two(tmp_path) as (first, second):
        await second.kept.look()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats.js.manager.JetStreamManager, "get_last_msg", _silence)
            patch.setattr(nats.js.kv.KeyValue, "update", _silence)
            assert await second.kept.take_over("another") == "ours"
            assert second.wanted == [1]
            with pytest.raises(BusError, match="cannot be kept"):
                await second.kept.seal()
            second.steering.set(_override(2))
            with pytest.raises(BusError, match="cannot be kept"):
                await second.kept.send()
            second.kept.revert()
            assert second.wanted == [1]
        await second.kept.seal()
        first.leads = False
        first.steering.set(_override(3))
        with pytest.raises(BusError):
            await first.kept.send()


@asynchronous
async def test_who_has_not_looked_begins_with_nothing_that_cannot_be_read(tmp_path: Path) -> None:
    async with _two(tmp_path) as (_, second):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats.js.manager.JetStreamManager, "get_last_msg", _silence)
            assert await second.kept.take_over("another") is None
        assert second.wanted == []
        assert await second.kept.take_over("another") == "ours"
        assert second.wanted == [1]


@asynchronous
async def test_a_change_of_the_leader_before_that_comes_late_counts_and_later_ones_are_refused(
    tmp_path: Path,
) -> None:
    async with _two(tmp_path) as (first, second):
        await second.kept.look()
        assert await second.kept.take_over("another") == "ours"
        first.steering.set(_override(3))
        await first.kept.send()
        await second.kept.seal()
        assert second.wanted == [1, 3]
        assert second.news == 1
        first.leads = False
        first.steering.set(_override(4))
        with pytest.raises(BusError):
            await first.kept.send()
        second.steering.set(_override(5))
        await second.kept.send()
        await first.kept.look("steer")
        assert first.wanted == second.wanted == [1, 3, 5]


@asynchronous
async def test_a_copy_that_lags_delays_nothing(tmp_path: Path) -> None:
    """It answers what is read, and would go on to for many seconds."""
    read = nats.js.manager.JetStreamManager.get_last_msg
    async with _two(tmp_path) as (first, second):
        lagging: dict[str, Found] = {}

        async def lags(self: Any, stream: str, subject: str, direct: bool = False) -> Found:
            found = await read(self, stream, subject, direct=direct)
            return lagging.setdefault(subject, found) if direct else found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats.js.manager.JetStreamManager, "get_last_msg", lags)
            await second.kept.look()
            first.steering.set(_override(2))
            await first.kept.send()
            assert await second.kept.take_over("another") == "ours"
            assert second.wanted == [1]
            await second.kept.seal()
            assert second.wanted == [1, 2]


@asynchronous
async def test_who_leads_a_bus_without_a_timeline_first_gives_it_one(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server, _manager(server.url, "a") as first:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats.js.kv.KeyValue, "update", _silence)
            assert await first.kept.take_over("ours") is None
        async with _manager(server.url, "b") as second:
            await first.kept.look()
            assert await second.kept.take_over("theirs") == "theirs"
            assert await first.kept.take_over("ours") == "theirs"
