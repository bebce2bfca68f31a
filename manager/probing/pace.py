"""How often agents are to report: seldom enough that a manager keeps up with a large fleet. Pure."""

from cwdp.shared.bus.messages import DEFAULT_REPORT_INTERVAL_S

SHARE_LESS = 0.8
"""An interval that a fleet has outgrown is taken up again once it is so much smaller: its size may go to and fro."""

LONGER = ((256, 0.5), (1_024, 1.0))
"""From more NICs than these on, how many seconds."""


def report_interval_s(nics: int, present_s: float) -> float:
    """The interval for a fleet of so many NICs that has had another one until now."""
    wanted_s, kept_s = _interval_s(nics), _interval_s(nics / SHARE_LESS)
    return min(max(present_s, wanted_s), kept_s)


def _interval_s(nics: float) -> float:
    return max((s for more, s in LONGER if nics > more), default=DEFAULT_REPORT_INTERVAL_S)
