"""What all views need to make plain data of what the manager knows."""

import math
from typing import Any

Json = dict[str, Any]


def is_at(nic: str, wanted: str) -> bool:
    """Whether a NIC is the one that is asked for, or of the host that is."""
    return wanted in (nic, nic.rpartition("/")[0])


def rounded(value: float) -> int | None:
    """A number as a whole one; None where nothing is known."""
    return round(float(value)) if math.isfinite(value) else None
