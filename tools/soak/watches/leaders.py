"""Who leads, as each manager says itself."""

from dataclasses import dataclass, replace
from itertools import combinations

from cwdp.errors import ManagerError
from tools.soak.stage import Stage
from tools.soak.watches.looking import Watch

EVERY_S = 0.25


@dataclass(frozen=True)
class Led:
    """A manager led from one answer to another, all those between them included.

    Attributes:
        begin_s: when the first answer had come.
        end_s: when the last one was asked for.
    """

    manager: str
    epoch: int
    begin_s: float
    end_s: float


class LeaderWatch(Watch):
    """Asks one manager; each needs a watch of its own, as one that stands still answers late.

    Attributes:
        led: when it led, since the start.
        leads: whether it did when it last answered.
    """

    def __init__(self, stage: Stage, manager: str) -> None:
        super().__init__(EVERY_S)
        self._stage, self.manager = stage, manager
        self.led: list[Led] = []
        self.leads = False

    def look(self) -> None:
        """Ask it."""
        asked_s, was_leading = self._stage.now_s, self.leads
        try:
            said = self._stage.client(self.manager).get("/v1/manager")
            self.leads = bool(said["leads"])
        except ManagerError:
            self.leads = False
        if not self.leads:
            return
        epoch = int(said["epoch"])
        if was_leading and self.led[-1].epoch == epoch:
            self.led[-1] = replace(self.led[-1], end_s=asked_s)
        else:
            self.led.append(Led(self.manager, epoch, self._stage.now_s, asked_s))


def two_at_once(led: list[Led]) -> list[str]:
    """Where two led at one time, surely."""
    ordered = sorted((each for each in led if each.end_s > each.begin_s), key=lambda each: each.begin_s)
    return [
        f"{one.manager} and {other.manager} at {other.begin_s:.0f} s"
        for one, other in combinations(ordered, 2)
        if other.begin_s < one.end_s and (one.manager, one.epoch) != (other.manager, other.epoch)
    ]


def unled(led: list[Led], from_s: float, until_s: float) -> list[tuple[float, float]]:
    """From when to when nobody led, by what managers said: too long by up to two looks."""
    gaps, at_s = [], from_s
    for each in sorted(led, key=lambda each: each.begin_s):
        if each.begin_s > at_s + 4 * EVERY_S:
            gaps.append((at_s, each.begin_s))
        at_s = max(at_s, each.end_s)
    if until_s > at_s + 4 * EVERY_S:
        gaps.append((at_s, until_s))
    return gaps
