"""What disciplines a host's CLOCK_MONOTONIC, as its agent tells the manager."""

from typing import Literal

from msgspec import Struct

Source = Literal["adjtimex", "raw", "none"]


class Discipline(Struct, frozen=True, kw_only=True):
    """What disciplines a host's CLOCK_MONOTONIC, which is taken out of its local time.

    Attributes:
        source: whether the kernel tells of it; else it is seen in `raw`, CLOCK_MONOTONIC_RAW; or neither is readable.
        frequency_ppb: how much faster CLOCK_MONOTONIC runs than CLOCK_MONOTONIC_RAW.
        changes: how often that changed since the agent's start.
        changed_s_ago: when it did so the last time; None for never.
    """

    source: Source
    frequency_ppb: float
    changes: int
    changed_s_ago: float | None
