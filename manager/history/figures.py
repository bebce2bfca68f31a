"""What history says of itself, for metrics."""

from dataclasses import dataclass, field

STORES = ("database", "rings")
WAITING = ("disk", "bus", "stream")
OUTCOMES = ("written", "dropped", "sent", "failed", "refused", "unsent_dropped")


@dataclass(kw_only=True)
class Figures:
    """As of the last look.

    Attributes:
        records: totals by outcome (`OUTCOMES`).
        waiting: records for the disk, messages for the bus, and messages of the stream that are not taken in.
        size_bytes: of each of `STORES`; the rings' is what their files may grow to.
        stopped: whether nothing is kept now.
        names_without_room: links and pairs of leaves that have no ring.
    """

    records: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    waiting: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAITING, 0))
    size_bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STORES, 0))
    stopped: bool = False
    names_without_room: int = 0
