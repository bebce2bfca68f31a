"""The rate and the queue of a port (TBF), and what it drops by chance (an eBPF classifier on clsact)."""

import math

from pyroute2 import IPRoute

_ROOT_HANDLE = 0x10000
_CLOCK_GRAIN_S = 2e-6  # netlink carries the bucket as a time in whole microseconds


def set_rate(ip: IPRoute, index: int, rate_bps: int, queue_bytes: int, frame_bytes: int) -> None:
    """Shape what leaves by an interface to `rate_bps` behind a queue of `queue_bytes`.

    The bucket holds one frame, so that a queue forms as soon as frames come faster than the rate.
    """
    burst_bytes = frame_bytes + math.ceil(rate_bps / 8 * _CLOCK_GRAIN_S)
    ip.tc(
        "replace",
        "tbf",
        index=index,
        handle=_ROOT_HANDLE,
        rate=f"{rate_bps}bit",
        burst=burst_bytes,
        limit=queue_bytes,
    )
