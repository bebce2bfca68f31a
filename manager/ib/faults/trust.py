"""What counters cannot be believed, and what is told of them. No I/O."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.counters import NAMES, WORD_BYTES, Growth
from cwdp.shared.ib.subnet import Subnet
from manager.ib.faults.holding import Key, Seen
from manager.ib.faults.ports import Ports, grown
from manager.ib.faults.words import rate

MOST_SHARE = 2.0
"""Of a link's rate: ports are not read at the same moment in each second, so that a second's data may seem to be two's."""

DISTRUST_S = 30.0
REASONS = ("no_growth", "rows", "nonsense")
"""Why growth was not taken in: there was none, it is not of these ports, a port tells of more than its link can carry."""

_DATA = [NAMES.index("sent_words"), NAMES.index("received_words")]


class Trust:
    """Which ports' counters can be believed.

    Attributes:
        refused: polls without growth that fits, and readings of single ports, by reason (`REASONS`).
    """

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._until_s: NDArray[np.float64] = np.zeros(0)

    def believed(
        self, ports: Ports, subnet: Subnet, growth: Growth | None, now_s: float
    ) -> tuple[NDArray[np.float64], dict[Key, Seen]]:
        """What grows by the second, NaN where it is not known or not believed, shape (rows, counters); and ports to be told of."""
        shape = (len(subnet.ports), len(NAMES))
        if growth is None or growth.per_s.shape != shape or growth.stuck.shape != shape:
            self.refused["no_growth" if growth is None else "rows"] += 1
            return np.full(shape, np.nan), {}
        self._until_s = grown(self._until_s, len(ports.ends), -np.inf)
        seen: dict[Key, Seen] = {}
        widest_bps = subnet.ports["widest"].astype(np.float64) * subnet.ports["fastest_bps"]
        link_bps = np.maximum(subnet.rates_bps, widest_bps)
        told_bps = (
            8 * WORD_BYTES * np.nan_to_num(growth.per_s[:, _DATA], posinf=np.inf).max(axis=1, initial=0.0)
        )
        is_odd = (link_bps > 0) & (told_bps > MOST_SHARE * link_bps)
        is_odd |= (growth.per_s < 0).any(axis=1) | np.isinf(growth.per_s).any(axis=1)
        self.refused["nonsense"] += int(is_odd.sum())
        for row in np.flatnonzero(is_odd).tolist():
            slot = int(ports.slots[row])
            self._until_s[slot] = now_s + DISTRUST_S
            evidence = f"its counters tell of {rate(told_bps[row])} over a link that can carry {rate(link_bps[row])}: none of them is believed"
            seen["counters", (ports.ends[slot],)] = Seen(ports.port(slot), (evidence,))
        for row in np.flatnonzero(growth.stuck.any(axis=1)).tolist():
            slot = int(ports.slots[row])
            names = [name for name, is_stuck in zip(NAMES, growth.stuck[row], strict=True) if is_stuck]
            evidence = (
                f"{', '.join(names)} stand at their most, so nobody can say whether they grow: clear them"
            )
            seen.setdefault(("counters", (ports.ends[slot],)), Seen(ports.port(slot), (evidence,)))
        is_believed = self._until_s[ports.slots] <= now_s
        return np.where(is_believed[:, None] & ~growth.stuck, growth.per_s, np.nan), seen
