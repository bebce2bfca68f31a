"""Who is refused, counted by reason; how often an address may show what is wrong, and how often that is logged.

A limit that held back who shows the right credential as well would let anybody lock out all others behind one address,
and all users of a machine on loopback. Guessing is hopeless at any rate: a token has 256 random bits.
"""

import logging
import time
from collections import Counter, OrderedDict
from typing import Literal, get_args

Reason = Literal["none", "malformed", "unknown", "expired", "not_yet_valid", "role", "too_many"]
REASONS = get_args(Reason)

WRONG = ("malformed", "unknown", "expired", "not_yet_valid")
"""Those that somebody who tries comes by."""

AT_ONCE, PER_S = 10.0, 1.0
"""So many wrong credentials of an address, and one more each second."""

MOST_ADDRESSES = 4_096

_log = logging.getLogger("cwdp.manager.access")


class Refusals:
    """Counts, and limits.

    Attributes:
        counts: by reason.
    """

    def __init__(self) -> None:
        self.counts: Counter[Reason] = Counter(dict.fromkeys(REASONS, 0))
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def add(self, reason: Reason, address: str) -> bool:
        """Count one; whether the address has shown too much that is wrong, and is to be told nothing but that."""
        if reason in WRONG and not self._may_try(address):
            self.counts["too_many"] += 1
            return True
        self.counts[reason] += 1
        if reason in WRONG:
            _log.warning("refused who shows a wrong credential address=%s reason=%s", address, reason)
        return False

    def _may_try(self, address: str) -> bool:
        now_s = time.monotonic()
        left, since_s = self._left.pop(address, (AT_ONCE, now_s))
        left = min(AT_ONCE, left + (now_s - since_s) * PER_S)
        may = left >= 1
        self._left[address] = (left - 1 if may else left), now_s
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return may
