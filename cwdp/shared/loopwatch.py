"""Watches that a service's event loop turns: how late it comes round, and systemd's watchdog, which it feeds."""

import asyncio
import math
import os
import time

from cwdp.shared.service import notify

INTERVAL_S = 0.1
WINDOW_S = 15.0
FEEDS_PER_TIMEOUT = 3


class Worst:
    """The largest of the values of late."""

    def __init__(self) -> None:
        self._now = self._before = 0.0
        self._since_s = time.monotonic()

    @property
    def value(self) -> float:
        """Of those of the last 15 to 30 s."""
        return max(self._now, self._before)

    def add(self, value: float, now_s: float) -> None:
        """Take one in."""
        if now_s - self._since_s > WINDOW_S:
            self._before, self._now, self._since_s = self._now, 0.0, now_s
        self._now = max(self._now, value)


class LoopWatch:
    """Run it beside all else; where the loop stands still, so does this."""

    def __init__(self) -> None:
        self._late_s, self._due_s = 0.0, math.inf
        self._worst = Worst()
        self._feed_s = _watchdog_timeout_s() / FEEDS_PER_TIMEOUT

    @property
    def late_s(self) -> float:
        """By how much the loop has come round late, all times together and now."""
        return self._late_s + max(0.0, time.monotonic() - self._due_s)

    @property
    def stands_s(self) -> float:
        """For how long the loop has not come round, though it should have; may be asked in any thread."""
        return max(0.0, time.monotonic() - self._due_s)

    @property
    def worst_s(self) -> float:
        """The longest delay of the last 15 to 30 s."""
        return self._worst.value

    async def run(self) -> None:
        """Watch for ever."""
        fed_s = time.monotonic()
        while True:
            self._due_s = time.monotonic() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            now_s = time.monotonic()
            self._add(now_s - self._due_s, now_s)
            if now_s - fed_s >= self._feed_s:
                fed_s = now_s
                notify("WATCHDOG=1")

    def _add(self, late_s: float, now_s: float) -> None:
        self._late_s += max(0.0, late_s)
        self._worst.add(late_s, now_s)


def _watchdog_timeout_s() -> float:
    """After which systemd ends this process unless it is told of life (sd_watchdog_enabled(3)); infinite for never."""
    timeout_us = os.environ.get("WATCHDOG_USEC", "")
    mine = os.environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
    return int(timeout_us) * 1e-6 if timeout_us.isdecimal() and mine else math.inf
