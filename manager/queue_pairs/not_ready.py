"""Who has answered senders of late that it is not ready to receive: RNR NAKs (IBTA 9.7.5.2). Pure: time is an argument."""

from collections import Counter, deque

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import DIRECTIONS, NAK_KINDS

LATELY_S = 10.0
MOST_REPORTS = 64
"""That told of any, of a NIC; within the time above there are hardly more."""

RNR = NAK_KINDS.index("rnr")
INGRESS = DIRECTIONS.index("ingress")


class RnrNaks:
    """RNR NAKs that came to one NIC."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, Counter[bytes]]] = deque(maxlen=MOST_REPORTS)

    def take(self, rows: NDArray[np.void], grown: NDArray[np.uint64], now_s: float) -> None:
        """A report has told of more of them.

        Args:
            rows: of its queue pairs, dtype QP_ROW, shape (n,).
            grown: by how many of each, shape (n,).
            now_s: the manager's clock.
        """
        came = (rows["direction"] == INGRESS) & (grown > 0)
        if came.any():
            found: Counter[bytes] = Counter()
            for addr, count in zip(rows["addr"][came], grown[came].tolist(), strict=True):
                found[addr.tobytes()] += count
            self._told.append((now_s, found))

    def lately(self, now_s: float) -> Counter[bytes]:
        """How many came in the last `LATELY_S`, by the packed address that they came from."""
        return sum((found for at_s, found in self._told if at_s > now_s - LATELY_S), Counter())
