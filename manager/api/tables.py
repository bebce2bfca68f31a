"""The tables of queue pairs, copied so that a thread may read them while the manager's loop goes on to change them."""

import asyncio
from collections.abc import Mapping
from copy import copy

from manager.queue_pairs.counters import NicTable

AT_ONCE = 1_000

Tables = Mapping[tuple[str, str], NicTable]


async def copied(known: Tables) -> Tables:
    """As they are now; of many NICs a batch at a time, so that the loop goes on in between."""
    found: dict[tuple[str, str], NicTable] = {}
    for i, (nic, table) in enumerate(list(known.items())):
        if i % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        found[nic] = copy(table)
    return found
