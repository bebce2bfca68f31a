"""Has every stream of the bus in three copies where the bus is a cluster; those too that were made with fewer."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import nats.js.errors
from nats.aio.client import Client

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, copies_on
from cwdp.shared.bus.connection import Bus

LOOK_EVERY_S = 5.0
ANSWER_S = 5.0

_log = logging.getLogger("cwdp.manager")


class Copies:
    """Looks after the copies of streams, where this manager leads.

    Args:
        bus: where they are.
        leads: whether this manager does.
        streams: their names; one that is not there yet is looked for again.
    """

    def __init__(self, bus: Bus, leads: Callable[[], bool], streams: Sequence[str]) -> None:
        self._bus, self._leads, self._streams = bus, leads, streams

    async def run(self) -> None:
        """Look again and again, for ever: a bus grows while it runs."""
        while True:
            client = self._bus.session
            if client is not None and self._leads() and copies_on(client) > 1:
                for stream in self._streams:
                    await self._look_after(client, stream)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look_after(self, client: Client, stream: str) -> None:
        manager, copies = client.jsm(timeout=ANSWER_S), copies_on(client)
        try:
            config = (await manager.stream_info(stream)).config
            if (config.num_replicas or 1) < copies:
                await manager.update_stream(config.evolve(num_replicas=copies))
                _log.info("the bus keeps %d copies of %s", copies, stream)
        except nats.js.errors.APIError as error:
            _log.debug("too few copies stream=%s error=%s", stream, error.description)
        except JETSTREAM_ERRORS as error:
            _log.debug("too few copies stream=%s error=%s", stream, error)
