"""Two plain filters that the fit is measured against, on the same exchanges."""

import numpy as np

from cwdp.shared.clocksync import Exchanges
from cwdp.shared.clocksync._types import F64


def _detrended(exchanges: Exchanges, slope: float, now_ns: int) -> tuple[F64, F64]:
    """Offset of every exchange, brought to `now_ns` by the slope, and its round trip, ns."""
    up = (exchanges.t2_ns - exchanges.t1_ns).astype(np.float64)
    low = (exchanges.t3_ns - exchanges.t4_ns).astype(np.float64)
    middle = (exchanges.t1_ns + (exchanges.t4_ns - exchanges.t1_ns) // 2 - now_ns).astype(np.float64)
    return (up + low) / 2 - slope * middle, up - low


def minimum_delay(exchanges: Exchanges, slope: float, now_ns: int) -> float:
    """Offset of the exchange of least round trip, as NTP's clock filter takes it; slope as known."""
    offset, trip = _detrended(exchanges, slope, now_ns)
    return float(offset[np.argmin(trip)])


def two_way_median(exchanges: Exchanges, slope: float, now_ns: int) -> float:
    """Median offset of all exchanges; slope as known."""
    offset, _ = _detrended(exchanges, slope, now_ns)
    return float(np.median(offset))
