"""By how much the counters of an InfiniBand subnet's ports grow, as arrays. Pure.

IBTA Architecture Specification, volume 1, 16.1.3.5 (PortCounters) and 16.1.4.11 (PortCountersExtended).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ERRORS = (
    "symbol_errors", "link_recoveries", "link_downed", "receive_errors", "remote_physical_errors", "relay_errors",
    "send_discards", "vl15_dropped",
)  # fmt: skip
WAIT = "send_wait"
"""Ticks in which a port had something to send and could not, as the far end gave no credit."""

DATA = ("sent_words", "received_words", "sent_packets", "received_packets")
NAMES: tuple[str, ...] = (*ERRORS, WAIT, *DATA)
"""The columns of what is counted."""

WORD_BYTES = 4
"""Data is counted in words."""


@dataclass(frozen=True)
class Growth:
    """Between two readings.

    Attributes:
        per_s: of each counter, NaN where it is not known, shape (ports, counters).
        stuck: counters that stand at their most: nobody can say whether they grow, shape (ports, counters).
    """

    per_s: NDArray[np.float64]
    stuck: NDArray[np.bool_]
