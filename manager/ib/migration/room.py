"""Which connections over InfiniBand move for room: few, each seldom, off links that are full to such that are not. No I/O."""

import math
from collections.abc import Iterable

import numpy as np

from cwdp.shared.bus.records import EGRESS, QP_ROW, packed_address, qp_keys
from manager.ib.migration.connections import Connection, Key
from manager.ib.migration.targets import Choice
from manager.ib.paths import Paths
from manager.queue_pairs.counters import QueuePairStore
from manager.queue_pairs.verbs import Name

CALM_S = 30.0
"""After a connection was moved the links that it left and took are left alone: loads are averages of 10 s."""

STAYS_S = 300.0
"""A connection that was moved is not moved for room again sooner."""


Link = tuple[int, int]
"""A directed link: the name of its subnet, and the row of the port that packets leave by."""


class Room:
    """Remembers what was moved.

    Args:
        queue_pairs: what each sends.
    """

    def __init__(self, queue_pairs: QueuePairStore) -> None:
        self._queue_pairs = queue_pairs
        self._calm_until_s: dict[Link, float] = {}
        self._moved_s: dict[Key, float] = {}

    def better(
        self, key: Key, connection: Connection, choice: Choice, paths: Paths, now_s: float
    ) -> int | None:
        """The path that a connection should be moved to; None where it should stay."""
        number = connection.number
        if number is None or now_s - self._moved_s.get(key, -math.inf) < STAYS_S:
            return None
        if not choice.is_full(number, paths.loads):
            return None
        sends_bps = max(self._rate_bps(end.name, now_s) for end in connection.ends)
        can_bps = paths.now.subnet.rates_bps
        more = sends_bps / np.where(can_bps > 0, can_bps, np.inf)
        return choice.roomier(number, more, paths.loads) if sends_bps > 0 else None

    def is_calm(self, links: Iterable[Link], now_s: float) -> bool:
        """Whether it can be seen by now what earlier moves did to these links."""
        return all(self._calm_until_s.get(link, -math.inf) <= now_s for link in links)

    def moved(self, key: Key, links: Iterable[Link], now_s: float) -> None:
        """A connection is moved, off and onto these links."""
        self._moved_s = {each: at_s for each, at_s in self._moved_s.items() if now_s - at_s < STAYS_S}
        self._moved_s[key] = now_s
        calm = {link: until_s for link, until_s in self._calm_until_s.items() if until_s > now_s}
        self._calm_until_s = calm | dict.fromkeys(links, now_s + CALM_S)

    def _rate_bps(self, name: Name, now_s: float) -> float:
        """What a queue pair sends; 0 where that is not known."""
        host, nic, dst_addr, qpn = name
        table = self._queue_pairs.tables.get((host, nic))
        if table is None or not len(table.keys):
            return 0.0
        wanted = np.zeros(1, QP_ROW)
        wanted["addr"] = np.frombuffer(packed_address(dst_addr), np.uint8)
        wanted["qpn"], wanted["direction"] = qpn, EGRESS
        place = int(np.searchsorted(table.keys, qp_keys(wanted))[0])
        if place == len(table.keys) or table.keys[place] != qp_keys(wanted)[0]:
            return 0.0
        if not table.sends(now_s)[place]:
            return 0.0
        return 8.0 * float(np.nan_to_num(table.rates[place, 1]))
