"""How often agents are to report, and over how many paths they probe: so that a manager keeps up with a large fleet. Pure."""

import math

from cwdp.shared.bus.messages import DEFAULT_REPORT_INTERVAL_S

SHARE_LESS = 0.8
"""An interval that a fleet has outgrown is taken up again once it is so much smaller: its size may go to and fro."""

LONGER = ((256, 0.5), (1_024, 1.0))
"""From more NICs than these on, how many seconds."""

MANY, OF_MANY = 1_024, 2
"""With more NICs a pair probes over so many paths at most, each the more often. As many probes cross each link as in a small
fleet, and there are so many more pairs that it is on some 70 of their paths still."""


BEHIND_S, BEHIND_FOR_S = 1.0, 5.0
WELL_S, WELL_FOR_S = 0.25, 60.0
SLOWER = 1.5
"""Where what hosts tell waits for longer than `BEHIND_S` for so many seconds on end, they report so much more seldom, until it has
waited for less than `WELL_S` for a minute. Not more: a NIC is silent of which nothing is heard for two seconds."""


class Pace:
    """How often agents report: as a fleet of its size is to, and more seldom while the manager is behind.

    Times are seconds of the manager's monotonic clock.
    """

    def __init__(self) -> None:
        self._of_size_s = DEFAULT_REPORT_INTERVAL_S
        self._is_slower = False
        self._turns_s = math.inf

    @property
    def interval_s(self) -> float:
        """From one report of an agent to its next."""
        return self._of_size_s * (SLOWER if self._is_slower else 1.0)

    def follow(self, nics: int) -> None:
        """There are so many now."""
        self._of_size_s = report_interval_s(nics, self._of_size_s)

    def keep_up(self, waits_s: float, now_s: float) -> bool:
        """What hosts tell waits for so long now; whether the interval is another one for it."""
        turns = waits_s < WELL_S if self._is_slower else waits_s > BEHIND_S
        if not turns:
            self._turns_s = math.inf
            return False
        self._turns_s = min(self._turns_s, now_s + (WELL_FOR_S if self._is_slower else BEHIND_FOR_S))
        if now_s < self._turns_s:
            return False
        self._is_slower, self._turns_s = not self._is_slower, math.inf
        return True


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
