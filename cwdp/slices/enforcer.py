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

    A change goes in this order, so that nothing is lost: `hold` what is wanted, tell the dataplane by `describe`d
    records, `retire` what is no longer wanted. The end of all: `release`, tell the dataplane, `remove`.
    """

    kind: abi.Enforcer
    probe_class: int
    """What the agent's probes are to have in skb->priority; 0 for nothing."""

    def hold(self, wanted: Mapping[int, Share], link_bps: int) -> None:
        """Make room for these slices, by number, and give those that are there already their rates."""

    def describe(self, record: np.void, number: int, share: Share) -> None:
        """Write what the dataplane needs into a record of `abi.SLICE`."""

    def retire(self, keep: Collection[int]) -> None:
        """Let all slices run empty that are not to be kept, and remove them."""

    def usage(self) -> dict[int, Usage]:
        """What passes, by number of slice; 0 is all that is in none."""

    def release(self) -> None:
        """Hold nothing back any more."""

    def remove(self) -> None:
        """Let what still waits go, and take the qdisc away."""
