"""A host that joins where a clock is wrong or a bus server's certificate is out of date is told the next step."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import POD, authority, bus_server, credential_of, host_bus
from fakes import until

from cwdp.agent.joining import join
from cwdp.errors import BusError, IdentityError
from cwdp.shared.bus.session import dial_any, hang_up
from cwdp.shared.identity.joining import Invitation
from manager.bus.nats_server import NatsServer
from manager.identity import certificates
from manager.identity.authority import Authority
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")

HOUR_S, DAY_S = 3_600.0, 86_400.0
EXPIRED, NOT_YET_VALID = timedelta(days=3), timedelta(hours=-2)

Sets = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Sets:
    """Sets the clock of this process: so far ahead of what it is."""
    now = time.time

    def ahead(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: now() + seconds)

    return ahead


def _invitation(bus: str, of: Authority | None = None) -> Invitation:
    joiner = (of or authority()).joiner_credential("h1", POD, 1.0)
    said = {name: getattr(joiner, name) for name in ("token", "seed", "authority", "control")}
    return Invitation(bus=bus, host="h1", pod=POD, secret=b"", **said)


@asynccontextmanager
async def _server(path: Path, holds_before: timedelta) -> AsyncIterator[str]:
    """A server whose certificate holds from so long ago, for a day; its address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "SKEW", holds_before)
        patch.setattr(certificates, "SERVER_DAYS", 1 if holds_before == NOT_YET_VALID else -1)
        async with bus_server(path) as server:
            yield server.url


async def _told(invitation: Invitation) -> IdentityError:
    with pytest.raises(IdentityError) as caught:
        await join(invitation)
    return caught.value


@asynchronous
async def test_a_certificate_that_has_expired(tmp_path: Path) -> None:
    async with _server(tmp_path, EXPIRED) as url:
        told = await _told(_invitation(url))
    assert told.message == f"the certificate of the bus server at {url} has expired by this host's clock"
    assert told.hint.startswith(
        "set this host's clock if it is wrong; otherwise renew it: restart the manager"
    )
    assert "cwdp fleet server NAME" in told.hint


@asynchronous
async def test_a_certificate_that_is_not_valid_yet(tmp_path: Path) -> None:
    async with _server(tmp_path, NOT_YET_VALID) as url:
        told = await _told(_invitation(url))
    assert told.message == f"the certificate of the bus server at {url} is not valid yet by this host's clock"
    assert told.hint.startswith("set this host's clock if it is wrong; otherwise set that of the machine")


@asynchronous
async def test_a_certificate_is_told_of_though_other_servers_are_down(tmp_path: Path) -> None:
    async with _server(tmp_path, EXPIRED) as url:
        down = [f"nats://127.0.0.1:{free_port()}" for _ in range(4)]
        for _ in range(3):
            assert "has expired" in (await _told(_invitation(",".join([url, *down])))).message


@asynchronous
async def test_a_server_whose_certificate_is_right_is_found_beside(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "right") as right, _server(tmp_path / "wrong", EXPIRED) as wrong:
        for _ in range(8):
            await hang_up(await dial_any(f"{right.url},{wrong}", credential_of("h1"), name="h1"))


@asynchronous
async def test_a_bus_of_another_fleet(tmp_path: Path) -> None:
    server = NatsServer("127.0.0.1", free_port(), tmp_path, Authority.new())
    await server.start()
    try:
        told = await _told(_invitation(server.url))
    finally:
        await server.stop()
    assert told.message.startswith(f"what answers at {server.url} is no bus server of this host's fleet")
    assert "cwdp fleet invite HOST --bus URL" in told.hint


@asynchronous
async def test_nothing_at_that_address() -> None:
    with pytest.raises(BusError, match="no bus of this fleet") as caught:
        await join(_invitation(f"nats://127.0.0.1:{free_port()}"))
    assert caught.value.hint.startswith("let this host reach that address")


@pytest.mark.parametrize(
    ("ahead_s", "message"),
    [
        (-5 * HOUR_S, "was signed 5 hours ahead of this host's clock"),
        (-3 * DAY_S, "was signed 3 days ahead of this host's clock"),
        (4 * DAY_S, "expired 3 days ago"),
    ],
)
@asynchronous
async def test_a_host_whose_clock_is_wrong(clock: Sets, ahead_s: float, message: str) -> None:
    invitation = _invitation(f"nats://127.0.0.1:{free_port()}")
    clock(ahead_s)
    told = await _told(invitation)
    assert told.message.endswith(message)
    assert told.hint.startswith("set this host's clock")


@asynchronous
async def test_a_host_whose_clock_is_behind_so_that_its_token_seems_to_hold(
    tmp_path: Path, clock: Sets
) -> None:
    async with bus_server(tmp_path) as server:
        clock(-26 * HOUR_S)
        invitation = _invitation(server.url)
        clock(-4 * HOUR_S)
        told = await _told(invitation)
    assert told.message.endswith("it has expired by the clock of the bus server")
    assert told.hint.startswith("set this host's clock and the bus server's, whichever is wrong")


@asynchronous
async def test_an_agent_says_once_that_a_certificate_has_expired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _server(tmp_path, EXPIRED) as url:
        bus = host_bus(url, "h1")
        with caplog.at_level(logging.ERROR, "cwdp.bus"):
            bus.start()
            try:
                await until(lambda: bus.counters["connect_failed"] > 2)
            finally:
                await bus.close()
    (said,) = [each.getMessage() for each in caplog.records if each.name == "cwdp.bus"]
    assert said.startswith(f"the bus is not trusted url={url}: the certificate of the bus server at {url}")
