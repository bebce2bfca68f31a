"""How often agents are to report, and over how many paths they probe: so that a manager keeps up with a large fleet. Pure."""

from cwdp.shared.bus.messages import DEFAULT_REPORT_INTERVAL_S

SHARE_LESS = 0.8
"""An interval that a fleet has outgrown is taken up again once it is so much smaller: its size may go to and fro."""

LONGER = ((256, 0.5), (1_024, 1.0))
"""From more NICs than these on, how many seconds."""

MANY, OF_MANY = 1_024, 2
"""With more NICs a pair probes over so many paths at most, each the more often. As many probes cross each link as in a small
fleet, and there are so many more pairs that it is on some 70 of their paths still."""


def report_interval_s(nics: int, present_s: float) -> float:
    """The interval for a fleet of so many NICs that has had another one until now."""
    wanted_s, kept_s = _interval_s(nics), _interval_s(nics / SHARE_LESS)
    return min(max(present_s, wanted_s), kept_s)


def paths_of_pair(nics: int, wanted: int, present: int) -> int:
    """Over how many paths each pair probes in a fleet of so many NICs, one at least.

    Args:
        nics: of the fleet.
        wanted: where nothing speaks against it.
        present: as many as until now.
    """
    few = min(wanted, OF_MANY)
    return few if nics > MANY or (present == few and nics > SHARE_LESS * MANY) else wanted


def _interval_s(nics: float) -> float:
    return max((s for more, s in LONGER if nics > more), default=DEFAULT_REPORT_INTERVAL_S)
