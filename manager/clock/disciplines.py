"""What disciplines each host's CLOCK_MONOTONIC, as hosts tell it, and how much that has moved of late. No I/O."""

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import get_args

from cwdp.shared.bus.clocks import Discipline, DisciplineSource

LATELY_S = 60.0
LARGEST_PPB = 2e8
"""adjtimex takes no rate beyond a tenth."""

LARGEST_NUMBER = 2**53


@dataclass(frozen=True, slots=True)
class Lately:
    """What became of one host's discipline within the last minute.

    Attributes:
        changes: how often it changed.
        moved_ppb: by how much in all, there and back alike, between one report and the next.
    """

    changes: int
    moved_ppb: float


@dataclass(slots=True)
class _Heard:
    boot_id: str
    told: Discipline
    when_s: float
    moves: deque[tuple[float, int, float]] = field(default_factory=deque)


class Disciplines:
    """The last word of each host; times ending in `_s` are seconds of the manager's monotonic clock."""

    def __init__(self) -> None:
        self._heard: dict[str, _Heard] = {}

    def hear(self, host: str, boot_id: str, told: Discipline, now_s: float) -> bool:
        """Take in what a host tells; False, and nothing is taken, where the numbers are not sane."""
        if not _sane(told):
            return False
        last = self._heard.get(host)
        if last is None or last.boot_id != boot_id or told.changes < last.told.changes:
            self._heard[host] = _Heard(boot_id, told, now_s)
            return True
        changes = told.changes - last.told.changes
        if changes:
            last.moves.append((now_s, changes, abs(told.frequency_ppb - last.told.frequency_ppb)))
        while last.moves and last.moves[0][0] <= now_s - LATELY_S:
            last.moves.popleft()
        last.told, last.when_s = told, now_s
        return True

    def of(self, host: str) -> Discipline | None:
        """What a host told last; None before its first report in full."""
        heard = self._heard.get(host)
        return None if heard is None else heard.told

    def changed_s_ago(self, host: str, now_s: float) -> float | None:
        """How long ago a host's discipline changed; None for never, and where that is not known."""
        heard = self._heard.get(host)
        if heard is None or heard.told.changed_s_ago is None:
            return None
        return heard.told.changed_s_ago + max(0.0, now_s - heard.when_s)

    def lately(self, host: str, now_s: float) -> Lately:
        """What became of a host's discipline within the last minute."""
        heard = self._heard.get(host)
        moves = [] if heard is None else [move for move in heard.moves if move[0] > now_s - LATELY_S]
        return Lately(sum(move[1] for move in moves), sum(move[2] for move in moves))

    def sources(self) -> Counter[str]:
        """How many hosts' discipline is read from where."""
        counts = Counter[str](dict.fromkeys(get_args(DisciplineSource), 0))
        counts.update(heard.told.source for heard in self._heard.values())
        return counts

    def forget(self, host: str) -> None:
        """Drop a host that is gone for good."""
        self._heard.pop(host, None)


def _sane(told: Discipline) -> bool:
    ago_s = 0.0 if told.changed_s_ago is None else told.changed_s_ago
    is_rate = math.isfinite(told.frequency_ppb) and abs(told.frequency_ppb) <= LARGEST_PPB
    return is_rate and 0 <= told.changes <= LARGEST_NUMBER and 0 <= ago_s <= LARGEST_NUMBER
