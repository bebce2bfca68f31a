"""Keeps the process that controls congestion (`cwdp.agent.pacing.process`) running, with the latest orders."""

from collections.abc import Callable

import msgspec

from cwdp.agent.helper import Helper
from cwdp.congestion.order import Happened, Order, Word
from cwdp.shared.bus.messages import PacedQp


class CongestionKeeper(Helper[list[Order]]):
    """The process as the agent sees it.

    Args:
        tell: told of everything that has happened.
    """

    def __init__(self, tell: Callable[[Happened], None]) -> None:
        super().__init__("cwdp.agent.pacing.process", [], "congestion_restarts", [])
        self._tell = tell
        self._paced: dict[str, list[PacedQp]] = {}

    def order(self, orders: list[Order]) -> None:
        """Have it control congestion on these NICs."""
        self._want(orders)

    def paced(self, ifname: str) -> list[PacedQp]:
        """The queue pairs of a NIC that are held to a rate, by its last word."""
        return self._paced.get(ifname, []) if self.is_running else []

    def _hear(self, line: bytes) -> dict[str, int]:
        word = msgspec.json.decode(line, type=Word)
        self._paced = word.paced
        for happened in word.happened:
            self._tell(happened)
        return word.counters
