"""What the leaders of pods tell each other: heard on the bus, and counted."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import nats.errors
from nats.aio.msg import Msg

from cwdp.shared.bus.session import dial, hang_up, until_closed
from cwdp.shared.bus.subjects import PODS
from cwdp.shared.tasks import end
from manager.identity.authority import Authority

AGAIN_S = 0.5


class BetweenPods:
    """Hears all messages between pods; a connection that is lost, as of a process that is late, is made anew.

    Args:
        bus: the URL of the fleet's bus.
        authority: the fleet's.

    Attributes:
        heard: their bytes, by what follows in their subjects.
        lost: how often the connection was.
    """

    def __init__(self, bus: str, authority: Authority) -> None:
        self.heard: Counter[str] = Counter()
        self.lost = 0
        self._bus, self._credential = bus, authority.manager_credential("counts")

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        """Hear them meanwhile."""
        running = asyncio.create_task(self._run())
        try:
            yield
        finally:
            await end(running)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await self._count()
            self.lost += 1
            await asyncio.sleep(AGAIN_S)

    async def _count(self) -> None:
        """Until the connection is lost."""
        closed = asyncio.Event()

        async def tell() -> None:
            closed.set()

        client = await dial(self._bus, self._credential, name="counts what pods say", on_closed=tell)
        try:
            await client.subscribe(f"{PODS}.>", cb=self._hear)
            await until_closed(client, closed)
        finally:
            await hang_up(client)

    async def _hear(self, message: Msg) -> None:
        self.heard[message.subject.removeprefix(f"{PODS}.")] += len(message.data)
