"""When what is seen becomes a finding, and when that is over. No I/O."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from manager.faults.finding import Kind, Subject
from manager.ib.faults.ports import End

APART_S = 0.5
"""What comes sooner after a poll is of the same one: a subnet that has changed, and then its counters."""

Key = tuple[Kind, tuple[End | str, ...]]
"""The kind of a finding, and what it is about by GUIDs and numbers, as names may change."""


@dataclass(frozen=True)
class Rule:
    """Of a kind.

    Attributes:
        polls: so many in a row must show it.
        calm_s: it is over when it has not been seen for so long.
    """

    polls: int
    calm_s: float


RULES: Mapping[Kind, Rule] = {
    "dead": Rule(2, 0.0),
    "flapping": Rule(1, 0.0),
    "degraded": Rule(2, 2.5),
    "bit_errors": Rule(1, 0.0),
    "congested": Rule(2, 5.0),
    "slow_receiver": Rule(2, 5.0),
    "counters": Rule(2, 10.0),
}


@dataclass(frozen=True)
class Seen:
    """What a poll shows.

    Attributes:
        also: what explains it as well.
        is_sure: whether it may begin now; else it has to be seen further.
    """

    subject: Subject
    evidence: tuple[str, ...]
    also: tuple[Subject, ...] = ()
    is_sure: bool = True


class Holding:
    """What is seen, what holds."""

    def __init__(self) -> None:
        self.held: dict[Key, float] = {}
        self._row: dict[Key, int] = {}
        self._counted_s = -math.inf

    @property
    def known(self) -> frozenset[Key]:
        """What was seen at the last poll, and what holds."""
        return frozenset(self._row.keys() | self.held.keys())

    def step(
        self, seen: Mapping[Key, Seen], unsure: Iterable[Key], now_s: float
    ) -> tuple[list[Key], list[Key]]:
        """Take in a poll.

        Args:
            seen: what it shows.
            unsure: what it can tell nothing about: that stays as it is.
            now_s: the manager's monotonic clock.

        Returns:
            What begins, and what is over.
        """
        stays = set(unsure)
        more = now_s - self._counted_s >= APART_S
        if more:
            self._counted_s = now_s
        self._row = {key: self._row[key] + more if key in self._row else 1 for key in seen} | {
            key: count for key, count in self._row.items() if key in stays and key not in seen
        }
        for key in seen.keys() | stays:
            if key in self.held:
                self.held[key] = now_s
        over = [
            key
            for key, last_s in self.held.items()
            if key not in seen and key not in stays and now_s - last_s > RULES[key[0]].calm_s
        ]
        for key in over:
            del self.held[key]
        begun = [
            key
            for key, one in seen.items()
            if key not in self.held and one.is_sure and self._row[key] >= RULES[key[0]].polls
        ]
        self.held.update(dict.fromkeys(begun, now_s))
        return begun, over
