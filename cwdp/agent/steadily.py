"""Actions that come round at a steady mean rate."""

import asyncio
import random
import time
from collections.abc import Callable


async def every(interval_s: float, action: Callable[[], None], jitter: float = 0.0) -> None:
    """Call `action` at a steady mean rate, for ever; jitter keeps probes from beating with periodic traffic."""
    due = time.monotonic()
    while True:
        action()
        due = max(due + interval_s, time.monotonic() - interval_s)
        spread = interval_s * random.uniform(-jitter, jitter)  # noqa: S311 - not a secret
        await asyncio.sleep(max(0.0, due + spread - time.monotonic()))
