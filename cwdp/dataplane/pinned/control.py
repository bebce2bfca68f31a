"""What may be changed of a dataplane while packets flow: the one record of the map `control`."""

import secrets

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi

DEAD_AFTER_NS = 10_000_000
HOLD_DOWN_NS = 500_000_000
HOLD_DOWN_MAX_NS = 60_000_000_000
SAMPLE_EVERY = 256


def sample_below(every: int) -> int:
    """The threshold under which the hash of one packet in `every` lies; 0 samples none."""
    return min(round(2**32 / every), 2**32 - 1) if every > 0 else 0


def initial() -> NDArray[np.void]:
    """The record of a new dataplane, dtype `abi.CONTROL`."""
    record = np.zeros((), dtype=abi.CONTROL)
    record["generation"] = 1
    record["sample_below"] = sample_below(SAMPLE_EVERY)
    record["hash_seed"] = secrets.randbits(64)
    record["dead_after_ns"] = DEAD_AFTER_NS
    record["hold_down_ns"] = HOLD_DOWN_NS
    record["hold_down_max_ns"] = HOLD_DOWN_MAX_NS
    return record
