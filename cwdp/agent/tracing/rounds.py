"""One round of one path: which hop limits are still to be asked, and what was answered. No I/O."""

import math
from collections.abc import Collection

from cwdp.agent.tracing.packets import Answer, FlowPath, HopProbe

STRIDE = 4
MOST_HOPS = 16
ATTEMPTS = 3
TAIL_ATTEMPTS = 2
"""For hop limits behind the last one that answers: mostly there is but a destination that never does."""

ANSWER_S = 0.4
GRACE_S = 0.05
"""Answers that disagree with those that have come are waited for so long, once there is one from every hop."""


class Round:
    """Asks each hop up to an extent, and goes further while something answers and the end has not been found.

    Args:
        path: the path.
        extent: at which hop limit it is known to end; None to search.
        ends: whether the destination answers there.
        ask_end: ask the destination too, once.
        given_up: hop limits that have been silent for long; they are asked once, not `ATTEMPTS` times.

    Attributes:
        probes: those that were sent, in order.
        is_search: whether the end is searched for, as it is not known or has turned out to be further on.
    """

    def __init__(
        self,
        path: FlowPath,
        extent: int | None = None,
        *,
        ends: bool = False,
        ask_end: bool = False,
        given_up: Collection[int] = (),
    ) -> None:
        self.path = path
        self.probes: list[HopProbe] = []
        self.is_search = extent is None
        self._has_answered = False
        self._limit = STRIDE if extent is None else extent - ends
        self._end: int | None = extent if ends else None
        self._asks_end = ends and ask_end
        self._given_up = given_up
        self._answers: dict[int, str | None] = {}
        self._attempts = 1
        self._due_s = -math.inf
        self._to_ask = list(range(1, self._limit + 1 + (ends and ask_end)))

    @property
    def reached(self) -> bool:
        """Whether the destination answered, or is known to, and something on the way to it did this time."""
        if self._end is None or self._has_answered:
            return self._end is not None
        before = self._end - 1
        return before == 0 or before in self._answers or before in self._given_up

    @property
    def extent(self) -> int:
        """The hop limit at which the destination answers or, if it does not, behind the last hop that does."""
        if self._end is not None:
            return self._end
        return max((limit for limit, hop in self._answers.items() if hop is not None), default=0) + 1

    def next_limit(self, now_s: float) -> int | None:
        """The hop limit of the probe to send now; None while answers are waited for."""
        if not self._to_ask and now_s >= self._wait_s() and not self._is_settled():
            self._ask_again()
        if not self._to_ask:
            return None
        self._due_s = now_s + ANSWER_S
        return self._to_ask.pop(0)

    def is_over(self, now_s: float) -> bool:
        """Whether nothing more can come of it."""
        return not self._to_ask and now_s >= self._wait_s() and self._is_settled()

    def hear(self, probe: HopProbe, answer: Answer) -> bool:
        """Take in an answer to one of the probes; False where it disagrees with an earlier one."""
        limit = probe.hop_limit
        if answer.kind == "unreachable":
            if answer.responder == self.path.destination:
                self._has_answered = True
                self._end = limit if self._end is None else min(limit, self._end)
            return True
        if limit in self._answers and self._answers[limit] != answer.responder:
            self._answers[limit] = None
            return False
        self._answers[limit] = answer.responder
        if self._end is not None and limit >= self._end:
            self._end, self._has_answered, self.is_search = None, False, True
            self._limit = max(self._limit, limit)
        return True

    def is_heard(self, limit: int) -> bool:
        """Whether somebody answered at a hop limit, even if two disagreed."""
        return limit in self._answers

    def hop(self, limit: int) -> str | None:
        """Who answered at a hop limit."""
        return self._answers.get(limit)

    def hops(self) -> tuple[str | None, ...]:
        """Who answered on the way to the end, one entry a hop limit."""
        return tuple(self._answers.get(limit) for limit in self._limits())

    def _limits(self) -> range:
        """Hop limits of the switches on the way, as far as is known."""
        return range(1, self._limit + 1 if self._end is None else min(self._limit + 1, self._end))

    def _wait_s(self) -> float:
        """Until when answers are waited for."""
        is_complete = all(limit in self._answers for limit in self._limits())
        if is_complete and (self._has_answered or not self._asks_end):
            return self._due_s - ANSWER_S + GRACE_S
        return self._due_s

    def _is_settled(self) -> bool:
        return not self._worth_asking() and not self._goes_on()

    def _worth_asking(self) -> list[int]:
        if self._attempts >= ATTEMPTS:
            return []
        last = max(self._answers, default=0)
        return [
            limit
            for limit in self._limits()
            if limit not in self._answers
            and limit not in self._given_up
            and (limit < last or not last or self._attempts < TAIL_ATTEMPTS)
        ]

    def _goes_on(self) -> bool:
        """Whether the end may lie further on: the last stride was not silent as a whole."""
        if not self.is_search or self._end is not None or self._limit >= MOST_HOPS:
            return False
        return any(limit in self._answers for limit in range(self._limit - STRIDE + 1, self._limit + 1))

    def _ask_again(self) -> None:
        self._to_ask = self._worth_asking()
        goes_on = self._goes_on()
        self._attempts = self._attempts + 1 if self._to_ask else 1
        if goes_on and (not self._to_ask or self._limit in self._to_ask):
            self._to_ask += range(self._limit + 1, self._limit + STRIDE + 1)
            self._limit += STRIDE
