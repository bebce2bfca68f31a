"""The clock of its own that a host of the lab has."""

import math


def test_clock_ns(monotonic_ns: int, base_ns: int, offset_ns: int, drift_ppb: float) -> int:
    """What a clock shows that stood `offset_ns` ahead of the real one at `base_ns`, and drifts since."""
    return monotonic_ns + offset_ns + math.floor((monotonic_ns - base_ns) * drift_ppb * 1e-9)
