"""Keeps the process that sends pulses (`cwdp.agent.pulse`) running, with the latest orders."""

import msgspec

from cwdp.agent.helper import Helper
from cwdp.agent.pulses import PulseOrder


class PulseKeeper(Helper):
    """The pulse process as the agent sees it.

    Args:
        interval_ms: between two pulses over a path.
    """

    def __init__(self, interval_ms: float) -> None:
        super().__init__("cwdp.agent.pulse", [str(interval_ms)], "pulse_restarts")
        self._wanted: list[PulseOrder] = []

    def order(self, orders: list[PulseOrder]) -> None:
        """Have it send from these NICs."""
        if orders != self._wanted:
            self._wanted = orders
            self._write()

    def _orders(self) -> bytes:
        return msgspec.json.encode(self._wanted)

    def _hear(self, line: bytes) -> dict[str, int]:
        return msgspec.json.decode(line, type=dict[str, int])
