"""How far a manager is behind what hosts tell it."""

import asyncio
import math
import time

from nats.aio.client import Client

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.connection import Bus
from cwdp.shared.loopwatch import Worst

ASKED_EVERY_S, GLANCE_S = 0.5, 0.25

_GONE = (*JETSTREAM_ERRORS, AttributeError, RuntimeError)
"""What may come of writing to a connection that is lost, TLS's included, before its client says so."""


class Backlog:
    """Asks the bus server for an answer again and again: it comes behind all that waits to be read.

    Args:
        bus: the manager's.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._asked_s, self._waited_s = math.inf, 0.0
        self._worst = Worst()

    @property
    def waits_s(self) -> float:
        """How long what arrives waits: as long as the last answer took, or the next one has taken already."""
        return max(self._waited_s, time.monotonic() - self._asked_s)

    @property
    def worst_s(self) -> float:
        """The longest wait of the last 15 to 30 s."""
        return max(self._worst.value, self.waits_s)

    async def run(self) -> None:
        """Ask for ever, as long as there is a connection."""
        while True:
            client = self._bus.session
            waited_s = 0.0 if client is None else await self._ask(client)
            self._waited_s, self._asked_s = waited_s, math.inf
            self._worst.add(self._waited_s, time.monotonic())
            await asyncio.sleep(ASKED_EVERY_S)

    async def _ask(self, client: Client) -> float:
        """How long one answer takes; 0 where the connection ends before.

        Not by `Client.flush`: the client reads no more where an answer comes for which nobody waits any longer, as at the end.
        """
        answered = asyncio.get_running_loop().create_future()
        self._asked_s = asked_s = time.monotonic()
        try:
            await client._send_ping(answered)  # noqa: SLF001
        except _GONE:
            return 0.0
        while not answered.done():
            if client.is_closed:
                return 0.0
            await asyncio.wait([answered], timeout=GLANCE_S)
        return time.monotonic() - asked_s
