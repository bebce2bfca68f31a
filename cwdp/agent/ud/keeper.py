"""Keeps the process that probes by UD queue pairs (`cwdp.agent.ud.process`) running, with the latest orders."""

import asyncio
import time

import msgspec

from cwdp.agent.helper import Helper
from cwdp.agent.ud.orders import Row, UdOrder, UdWord
from cwdp.shared.bus.messages import UdAddress

MOST_ROWS = 100_000
SILENT_NS = 5_000_000_000
MOST_UNREAD_BYTES = 1 << 20


class UdKeeper(Helper[UdOrder | None]):
    """The process as the agent sees it; `rows` are those that have not been taken, of the latest order's version."""

    def __init__(self) -> None:
        super().__init__("cwdp.agent.ud.process", [], "ud_restarts", None)
        self.rows: list[Row] = []
        self._ordered = asyncio.Event()
        self._word: UdWord | None = None
        self._heard_ns = 0

    def tell_by(self, descriptor: int) -> None:
        """Have it tell of paths that are down by this (see `cwdp.agent.verbs.keeper`); to be said before it runs."""
        self._arguments, self._inherits = [str(descriptor)], [descriptor]

    def order(self, order: UdOrder) -> None:
        """Have it do this."""
        if order == self._wanted:
            return
        if self._wanted is not None and order.version != self._wanted.version:
            self.rows.clear()
        self._wanted = order
        self._ordered.set()
        if self.unread_bytes < MOST_UNREAD_BYTES:  # else it hangs; the next order says all of this again
            self._write()

    async def run(self) -> None:
        """Keep it running, from the first order on, until cancelled."""
        await self._ordered.wait()
        await super().run()

    @property
    def address(self) -> UdAddress | None:
        """Where it receives, by its last word; None where that was long ago."""
        word = self._recent()
        return None if word is None else word.address

    @property
    def trouble(self) -> str:
        """Why it has no queue pairs; empty where it has, or has not tried yet."""
        word = self._recent()
        return "" if word is None else word.trouble

    def _recent(self) -> UdWord | None:
        fresh = self.is_running and time.monotonic_ns() - self._heard_ns < SILENT_NS
        return self._word if fresh else None

    def _hear(self, line: bytes) -> dict[str, int]:
        word = msgspec.json.decode(line, type=UdWord)
        self._word, self._heard_ns = word, time.monotonic_ns()
        if self._wanted is not None and word.version == self._wanted.version:
            self.rows += word.rows[: MOST_ROWS - len(self.rows)]
        return word.counters
