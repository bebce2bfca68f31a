"""A bus server that stands still while it is asked: who asks says so, and does not wait for its leave."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import nats.errors
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, authority, bus_server, connect_as
from nats.aio.msg import Msg

from cwdp.agent.joining import join
from cwdp.errors import BusError
from cwdp.shared.bus.subjects import joining
from cwdp.shared.identity.credential import Credential
from cwdp.shared.identity.joining import Invitation
from manager.identity.accounts import Accounts
from manager.identity.registry import Revoked

pytestmark = pytest.mark.needs("nats-server")

ENOUGH_S = 20
"""TLS waits 30 s for the other end to take its leave."""


@asynccontextmanager
async def _still_once_asked(path: Path, subject: str, credential: Credential) -> AsyncIterator[str]:
    """A server that stands still once anything has come on a subject; its address."""
    async with bus_server(path) as server:
        assert server.pid is not None
        pid = server.pid

        async def stop(_: Msg) -> None:
            os.kill(pid, signal.SIGSTOP)

        client = await connect_as(server.url, credential)
        await client.subscribe(subject, cb=stop)
        await client.flush()
        try:
            yield server.url
        finally:
            os.kill(pid, signal.SIGCONT)
            await client.close()


@asynchronous
async def test_who_joins(tmp_path: Path) -> None:
    joiner = authority().joiner_credential("h1", POD, 1.0)
    said = {name: getattr(joiner, name) for name in ("token", "seed", "authority", "control")}
    asked = _still_once_asked(tmp_path, joining(POD, "*"), authority().manager_credential("test"))
    async with asked as url:
        invitation = Invitation(bus=url, host="h1", pod=POD, secret=b"", **said)
        with pytest.raises(BusError, match="no leader answers"):
            await asyncio.wait_for(join(invitation), ENOUGH_S)


@asynchronous
async def test_who_tells_the_accounts(tmp_path: Path) -> None:
    async with _still_once_asked(tmp_path, "$SYS.REQ.ACCOUNT.>", authority().system_credential()) as url:
        with suppress(nats.errors.TimeoutError):  # unless it was quicker
            await asyncio.wait_for(Accounts(authority()).tell(url, Revoked()), ENOUGH_S)
