"""What both ways of holding slices to their rates have in common."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cwdp.dataplane import abi
from cwdp.shared.slices import Share


@dataclass(frozen=True)
class Usage:
    """What a slice has sent since it was made, what waits in it, and what found no room to wait."""

    sent_bytes: int = 0
    backlog_bytes: int = 0
    dropped_packets: int = 0


class Enforcer(Protocol):
    """Holds the slices of one interface to their rates.

    A change goes in this order, so that nothing is lost: `hold` what is wanted, `release` what is not, tell
    the dataplane by records that were `describe`d, `remove` what it does not use any more. The end of all:
    `let_go`, tell the dataplane, `dismantle`.
    """

    kind: abi.Enforcer
    probe_class: int
    """What the agent's probes are to have in skb->priority; 0 for nothing."""

    def hold(self, wanted: Mapping[int, Share], link_bps: int) -> None:
        """Make room for these slices, by number, and give those that are there already their rates."""

    def describe(self, record: np.void, number: int, share: Share) -> None:
        """Write what the dataplane needs into a record of `abi.SLICE`."""

    def release(self, numbers: Collection[int]) -> None:
        """Hold some slices back no more, and wait until nothing waits in them, a second at most."""

    def remove(self, numbers: Collection[int]) -> None:
        """Have some slices no more; what is still told of them goes with what is in none."""

    def usage(self) -> dict[int, Usage]:
        """What passes, by number of slice; 0 is all that is in none."""

    def let_go(self) -> None:
        """Hold nothing back any more, and wait until nothing waits in a slice, a second at most."""

    def dismantle(self) -> bool:
        """Take the qdisc away as soon as nothing waits or passes for 2 ms; False where that does not come within a second."""
