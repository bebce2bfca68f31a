"""How far a manager is behind what hosts tell it."""

import asyncio
import math
import time

from nats.aio.client import Client

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.session import until_closed
from cwdp.shared.loopwatch import Worst
from cwdp.shared.tasks import first_end

ASKED_EVERY_S = 0.5
ANSWERED_WITHIN_S = 3600
"""So long a connection does not last that is not read."""


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
            if client is not None:
                await first_end(self._ask(client), until_closed(client, asyncio.Event()))
            self._asked_s, self._waited_s = math.inf, 0.0
            await asyncio.sleep(ASKED_EVERY_S)

    async def _ask(self, client: Client) -> None:
        while not client.is_closed:
            self._asked_s = time.monotonic()
            try:
                await client.flush(ANSWERED_WITHIN_S)
            except JETSTREAM_ERRORS:
                return
            now_s = time.monotonic()
            self._waited_s, self._asked_s = now_s - self._asked_s, math.inf
            self._worst.add(self._waited_s, now_s)
            await asyncio.sleep(ASKED_EVERY_S)
