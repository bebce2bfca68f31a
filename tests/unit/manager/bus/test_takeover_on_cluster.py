"""Another manager leads soon, though the servers still elect who leads the copies of what it has to know."""

import asyncio
import time
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import authority

from cwdp.shared.bus.buckets import stream_of
from manager.bus.state import BUCKET
from tools.bench.bus.takeover import Managers
from tools.bus_cluster import BusCluster

pytestmark = pytest.mark.needs("nats-server")

MOST_S = 10.0
"""How long it takes is measured by `python -m tools.bench takeover`: 3.8 s are the lease, the rest the servers' election."""


@pytest.mark.parametrize("stops", [False, True], ids=["killed", "stopped"])
@asynchronous
async def test_a_leader_that_ends_with_the_server_that_leads_the_copies_is_replaced(
    tmp_path: Path, stops: bool
) -> None:
    async with BusCluster(tmp_path, authority()) as servers, Managers(tmp_path, servers) as managers:
        name, epoch = await managers.until_led()
        await servers.until_whole(stream_of(BUCKET))
        server = await servers.leader(stream_of(BUCKET))
        assert server is not None
        await asyncio.sleep(1.5)
        managers.kill(name)
        (servers.suspend if stops else servers.kill)(server)
        began_s = time.monotonic()
        other, later = await managers.until_led(epoch, waiting=0)
        assert time.monotonic() - began_s < MOST_S
        assert other != name
        assert later > epoch
