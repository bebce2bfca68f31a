"""What agents and manager tell each other of clocks; parts of `cwdp.shared.bus.messages`."""

from typing import Literal

from msgspec import Struct

DisciplineSource = Literal["adjtimex", "raw", "none"]


class Discipline(Struct, frozen=True, kw_only=True):
    """What disciplines a host's CLOCK_MONOTONIC, which is taken out of its local time.

    Attributes:
        source: whether the kernel tells of it; else it is seen in `raw`, CLOCK_MONOTONIC_RAW; or neither is readable.
        frequency_ppb: how much faster CLOCK_MONOTONIC runs than CLOCK_MONOTONIC_RAW.
        changes: how often that changed since the agent's start.
        changed_s_ago: when it did so the last time; None for never.
        kept: whether local time goes on as the agent before had it, whatever the discipline has done meanwhile.
    """

    source: DisciplineSource
    frequency_ppb: float
    changes: int
    changed_s_ago: float | None
    kept: bool = False


class OwnChange(Struct, frozen=True, kw_only=True):
    """What a host's clock does since it has changed unannounced, against what it would show had it not, by all of its edges.

    At `ref_local_ns` it was `ahead_ns` ahead, and gained `rate` per unit of its time.
    """

    since_local_ns: int
    ref_local_ns: int
    ahead_ns: float
    rate: float
    sigma_ns: float
    sigma_rate: float


class ChangedClock(Struct, frozen=True, kw_only=True):
    """A host whose clock goes otherwise since a time of the timeline: what was measured of it before holds no more."""

    host: str
    since_ns: int


def short_id(boot_id: str) -> str:
    """Enough of an agent's `boot_id` to tell it from the one before on the same host."""
    return boot_id[:8]
