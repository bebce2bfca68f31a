"""How grave things are. Pure."""

from collections.abc import Iterable
from typing import Literal

Severity = Literal["ok", "info", "warning", "critical", "unknown"]
FindingSeverity = Literal["info", "warning", "critical"]

GRAVEST = (
    "dead",
    "silent",
    "flapping",
    "lossy",
    "bit_errors",
    "slow",
    "degraded",
    "slow_sender",
    "slow_receiver",
    "congested",
    "suspected",
    "avoided",
    "full",
    "ok",
    "unknown",
)
"""States of a link, the gravest first."""

_CRITICAL = ("dead", "silent")
_INFO = ("congested", "counters")
_ORDER: tuple[Severity, ...] = ("critical", "warning", "unknown", "info", "ok")


def severity(kind: str) -> FindingSeverity:
    """Of a kind of finding: critical is what takes traffic away, warning what slows it down, info what is no fault of hardware."""
    if kind in _CRITICAL:
        return "critical"
    return "info" if kind in _INFO else "warning"


def severity_rank(each: Severity) -> int:
    """The gravest have the lowest numbers."""
    return _ORDER.index(each)


def state_rank(state: str) -> int:
    """The same of a link's state, which may be a kind of finding that is not about links."""
    return GRAVEST.index(state) if state in GRAVEST else GRAVEST.index("slow_receiver")


def worst_state(states: Iterable[str]) -> str:
    """The gravest; `ok` of none."""
    return min(states, key=state_rank, default="ok")
