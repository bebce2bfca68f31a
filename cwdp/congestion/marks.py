"""Which destinations have sent congestion notification packets (CNP, IBTA A17.9.3) of late."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import Direction


class Tables(Protocol):
    """What is read of the open maps of an interface; see `cwdp.dataplane.pinned.maps.Maps`."""

    qps: dict[Direction, NDArray[np.void]]


class MarkReader:
    """Follows the notifications that come in.

    They name a queue pair of this host's, whose far end has another number; what is known of it is the address that they
    come from.
    """

    def __init__(self, tables: Tables) -> None:
        self._incoming = tables.qps[Direction.INGRESS]
        self._last = self._incoming["cnps"].copy()
        self._marked: set[bytes] = set()

    def look(self) -> None:
        """See what has come since the last call."""
        cnps = self._incoming["cnps"].copy()
        rows = np.flatnonzero(cnps > self._last)
        self._last = cnps
        self._marked = {address.tobytes() for address in self._incoming["key"]["addr"][rows]}

    def marked(self, addresses: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which of these destinations have sent some between the last two calls of `look`; shape (n,).

        Args:
            addresses: shape (n, 4), as the maps have them.
        """
        if not self._marked:
            return np.zeros(len(addresses), dtype=bool)
        return np.array([address.tobytes() in self._marked for address in addresses], dtype=bool)
