"""Keeps the process that sends pulses (`cwdp.agent.pulse`) running, with the latest orders."""

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter

import msgspec

from cwdp.agent.pulses import PulseOrder

RESTART_AFTER_S = 0.5

_log = logging.getLogger("cwdp.agent")


class PulseKeeper:
    """The pulse process as the agent sees it.

    Args:
        interval_ms: between two pulses over a path.

    Attributes:
        counters: totals of all its processes, by name.
    """

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._orders: list[PulseOrder] = []
        self._process: Process | None = None
        self._ended: Counter[str] = Counter(pulse_restarts=0)
        self._current: Counter[str] = Counter()

    @property
    def counters(self) -> Counter[str]:
        """What was counted up to its last word."""
        total = self._ended.copy()
        total.update(self._current)
        return total

    def order(self, orders: list[PulseOrder]) -> None:
        """Have it send from these NICs."""
        if orders != self._orders:
            self._orders = orders
            self._write()

    async def run(self) -> None:
        """Keep it running until cancelled."""
        while True:
            try:
                await self._live()
            except OSError as error:
                _log.warning("cannot start the pulse process error=%s", error)
            await asyncio.sleep(RESTART_AFTER_S)
            self._ended["pulse_restarts"] += 1

    async def _live(self) -> None:
        """Through the life of one process."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cwdp.agent.pulse", str(self._interval_ms), stdin=PIPE, stdout=PIPE
        )
        self._process = process
        self._write()
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                self._current = Counter(msgspec.json.decode(line, type=dict[str, int]))
            _log.warning("the pulse process ended status=%s", await process.wait())
        finally:
            self._process = None
            self._ended.update(self._current)
            self._current = Counter()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    def _write(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(self._orders) + b"\n")
