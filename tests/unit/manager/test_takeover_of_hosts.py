"""What a manager that takes over makes of hosts that it remembers and that are gone."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import bus_server, manager_bus
from fakes import hello, until
from nats.aio.client import Client

from cwdp.shared.bus.messages import Desired, Leader
from cwdp.shared.tasks import end
from manager.bus.lease import Claim, Lease
from manager.bus.state import BusState
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.state import FleetState
from manager.takeover import TakeOver

pytestmark = pytest.mark.needs("nats-server")


@asynchronous
async def test_a_host_that_another_manager_has_put_out_is_forgotten_and_one_that_is_away_is_not(
    tmp_path: Path,
) -> None:
    async with bus_server(tmp_path / "nats") as server:
        bus, reader = manager_bus(server.url), manager_bus(server.url)
        bus.start()
        reader.start()
        try:
            await until(lambda: bus.connected and reader.connected)
            state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
            for host in ("put-out", "joined-anew", "away"):
                state.hear_hello(hello(host), 0.0)
                bus.put(Desired(host=host, version=1, epoch=1, probes=[]))
            await until(lambda: bus.documents.unwritten == 0)
            for host in ("put-out", "joined-anew"):
                await bus.documents.remove(host)
            state.expire(60.0)
            state.hear_hello(hello("joined-anew"), 60.0)
            lease = Lease([bus], Claim(manager="1", name="m"), lambda _leads: None)
            kept = BusState(bus, lease.confirm, {}, shared={})
            taking_over = TakeOver(
                bus, lease, state, kept, reader, identity=tmp_path, direct=lambda _documents: None
            )
            state.lead(60.0, Leader(2, 0.0), timeline="t", others_led=True)
            await taking_over._take_up_hosts()
            assert set(state.members.hosts) == {"joined-anew", "away"}
            assert not state.not_taken_up()
        finally:
            await bus.close()
            await reader.close()


@asynchronous
async def test_hosts_that_come_one_after_the_other_are_taken_up_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause after each look would hold up the last of them; who cannot be read is tried again after one."""
    async with bus_server(tmp_path / "nats") as server:
        bus, reader = manager_bus(server.url), manager_bus(server.url)
        bus.start()
        try:
            await until(lambda: bus.connected)
            state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
            lease = Lease(bus, Claim(manager="1", name="m"), lambda _leads: None)
            kept = BusState(bus, lease.confirm, {}, shared={})
            taking_over = TakeOver(
                bus, lease, state, kept, reader, identity=tmp_path, direct=lambda _documents: None
            )
            state.lead(60.0, Leader(2, 0.0), timeline="t", others_led=True)
            asked_s: list[float] = []

            async def read(_client: Client, host: str) -> tuple[bool, Desired | None]:
                asked_s.append(time.monotonic())
                await asyncio.sleep(0.2)
                return host != "unread", None

            monkeypatch.setattr(taking_over, "_read", read)
            running = asyncio.create_task(taking_over.run())
            for host in ("first", "second", "third", "unread"):
                state.hear_hello(hello(host), 60.0)
                await until(lambda: not set(state.not_taken_up()) - {"unread"})
            await until(lambda: len(asked_s) == 5)
            await end(running)
            pauses_s = [later - before for before, later in pairwise(asked_s)]
            assert max(pauses_s[:3]) < 0.8 < pauses_s[3]
        finally:
            await bus.close()
