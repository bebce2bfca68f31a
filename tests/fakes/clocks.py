"""Clocks of hosts against true time, in arithmetic."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass
class ChangingClock:
    """A clock that is ahead of true time, and drifts; it may change its rate, or jump, from a true time on.

    Attributes:
        offset_ns: how far ahead it is at `begin_ns`.
        rate: its rate less one.
        begin_ns: true time.
        changes: since when, by how much faster, and how far ahead at once.
    """

    offset_ns: int = 0
    rate: float = 0.0
    begin_ns: int = 0
    changes: list[tuple[int, float, float]] = field(default_factory=list)

    def change(self, at_ns: int, by: float, jump_ns: float = 0.0) -> None:
        self.changes.append((at_ns, by, jump_ns))

    def at(self, true_ns: ArrayLike) -> NDArray[np.int64]:
        """What it shows at true times; the same shape."""
        true_ns = np.asarray(true_ns, np.float64)
        shown = self.rate * (true_ns - self.begin_ns)
        for since_ns, by, jump_ns in self.changes:
            shown += (true_ns >= since_ns) * (by * (true_ns - since_ns) + jump_ns)
        return np.rint(true_ns + shown).astype(np.int64) + self.offset_ns
