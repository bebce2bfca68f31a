"""Messages about clocks that have changed unannounced; parts of `cwdp.shared.messages`."""

from msgspec import Struct


class OwnChange(Struct, frozen=True, kw_only=True):
    """What a host's clock does since it has changed, against what it would show had it not, by all of its edges.

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
