"""Under earliest departure times, slices borrow the bandwidth that others leave unused; decided a few dozen times a second.

A borrowed rate holds for the time of a lease. When nobody renews it, the dataplane goes back to the guarantees.
"""

import numpy as np

from cwdp.dataplane import abi
from cwdp.dataplane.pinned.maps import Maps
from cwdp.slices.allocation import Rates, allocate
from cwdp.slices.edt import NS_BITS_PER_BYTE, PACE_SHIFT

LEASE_NS = 250_000_000
"""Many times as long as the time between two steps."""

BACKLOG_NS = 1_000_000
"""A slice whose next packet would have to wait for longer wants more than it has."""

ROOM_TO_GROW = 1.05


class Borrowing:
    """Gives the slices of one interface what others leave unused.

    Args:
        maps: of the interface; they stay the caller's.
    """

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._last_ns = 0
        self._last_bytes = maps.slices["bytes"].copy()

    def step(self, now_ns: int) -> bool:
        """Divide the link anew; to be called every few dozen milliseconds.

        Args:
            now_ns: CLOCK_MONOTONIC.

        Returns:
            Whether there is anything to divide: False where departure times are not in use.
        """
        table, slices = self._maps.slice_table[0], self._maps.slices
        if table["enforcer"] != abi.Enforcer.EDT:
            return False
        numbers = np.flatnonzero(slices["fair_q18"])
        here = slices[numbers]
        rates = allocate(
            float(table["link_bps"]),
            here["guaranteed_bps"].astype(np.float64),
            here["ceiling_bps"].astype(np.float64),
            here["priority"].astype(np.int64),
            self._demand_bps(now_ns)[numbers],
        )
        slices["pace_q18"][numbers] = np.maximum(np.rint((NS_BITS_PER_BYTE << PACE_SHIFT) / rates), 1)
        slices["lease_ns"][numbers] = now_ns + LEASE_NS
        return True

    def _demand_bps(self, now_ns: int) -> Rates:
        """What each slice would send if it could, shape (SLICES,); infinite where packets wait."""
        slices = self._maps.slices
        sent_bytes = slices["bytes"].copy()
        rates = (sent_bytes - self._last_bytes) * (8e9 / max(now_ns - self._last_ns, 1))
        waiting = slices["departure_ns"] > now_ns + BACKLOG_NS
        self._last_ns, self._last_bytes = now_ns, sent_bytes
        return np.where(waiting, np.inf, rates * ROOM_TO_GROW)
