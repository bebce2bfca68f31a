"""Keeps the process that has queue pairs go back (`cwdp.agent.goback.process`) running, where there are any that can."""

import asyncio

from cwdp.agent.goback.process import GoBackOrder, is_proved_device_there
from cwdp.agent.helper import Helper

DEVICE_INTERVAL_S = 10.0
"""Between two looks whether there is such a device; until then there is no process."""


class GoBackKeeper(Helper[list[GoBackOrder]]):
    """The process as the agent sees it.

    Args:
        interval_ms: between two looks at the paths.
    """

    def __init__(self, interval_ms: float) -> None:
        super().__init__("cwdp.agent.goback.process", [str(interval_ms)], "go_back_restarts", [])

    async def run(self) -> None:
        """Keep it running until cancelled, from the first device on."""
        await self._device()
        await super().run()

    def order(self, orders: list[GoBackOrder]) -> None:
        """Have it look after the queue pairs of these NICs."""
        self._want(orders)

    async def _device(self) -> None:
        while True:
            if await asyncio.to_thread(is_proved_device_there):
                return
            await asyncio.sleep(DEVICE_INTERVAL_S)
