"""The lease is kept while the manager's loop is busy, and given up where it stands still for long."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from asynchronous import asynchronous
from fakes import until

from manager.bus.connection import manager_bus
from manager.bus.lease import LEASE_S, Claim
from manager.bus.lease_thread import LeaseThread
from manager.bus.nats_server import NatsServer
from manager.identity.authority import Authority
from tools.free_ports import free_port

pytestmark = pytest.mark.timeout(60)


def _thread(
    server: NatsServer, authority: Authority, name: str, told: list[bool], is_well: Callable[[], bool]
) -> LeaseThread:
    bus = manager_bus(server.url, authority, name=name)
    return LeaseThread([bus], Claim(manager=name, name=name), told.append, is_well)


@asynchronous
async def test_a_loop_that_is_busy_keeps_the_lease_and_one_that_stands_loses_it(tmp_path: Path) -> None:
    authority, told, well = Authority.new(), list[bool](), [True]
    server = NatsServer("127.0.0.1", free_port(), tmp_path, authority)
    await server.start()
    lease = _thread(server, authority, "a", told, lambda: well[0])
    try:
        lease.start()
        await until(lambda: lease.leads)
        epoch = lease.epoch
        time.sleep(LEASE_S + 1)  # noqa: ASYNC251 - as a manager that works off much at once
        assert (lease.leads, lease.epoch) == (True, epoch)
        assert await lease.confirm()
        assert told == [True]
        well[0] = False
        await until(lambda: not lease.leads)
        await asyncio.sleep(0.5)
        assert told == [True, False]
        well[0] = True
        await until(lambda: lease.leads)
        assert lease.epoch > epoch
    finally:
        await lease.close()
        await server.stop()


@asynchronous
async def test_who_ends_lets_another_have_it_and_does_not_take_it_again(tmp_path: Path) -> None:
    authority = Authority.new()
    server = NatsServer("127.0.0.1", free_port(), tmp_path, authority)
    await server.start()
    one, two = (_thread(server, authority, name, [], lambda: True) for name in "ab")
    try:
        one.start()
        await until(lambda: one.leads)
        two.start()
        await asyncio.sleep(1)
        assert not two.leads
        await one.close()
        await until(lambda: two.leads)
        assert one.counters["taken"] == 1
    finally:
        await one.close()
        await two.close()
        await server.stop()
