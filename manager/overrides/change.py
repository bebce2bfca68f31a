"""A change of what operators want."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class OverrideChange:
    """What somebody has changed: who, what for where they said, and what was wanted before."""

    action: Literal["set", "withdrawn"]
    what: Literal["steer", "slice"]
    host: str
    nic: str
    wanted: dict[str, Any]
    before: dict[str, Any] | None
    by: str
    why: str | None
