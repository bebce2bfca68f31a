"""Many attributes at once: requests under way together, those that are lost asked for again, what becomes of each counted."""

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Protocol

from cwdp.errors import RdmaError
from cwdp.ib.umad import Answer, Request

AT_ONCE = 64
"""Under way together: switches answer one after the other, and have little room for more."""

TIMEOUT_MS, TRIES = 200, 3
MOST_NUMBER = 0xFFFFFFFF
MOST_LATE = 2
"""So many timeouts after the last answer nothing comes any more."""

COUNTERS = ("asked", "answered", "refused", "timed_out", "unexpected")


class FellSilentError(RdmaError):
    """More requests were in vain than may be: what was there is gone."""


class Port(Protocol):
    """See `cwdp.ib.umad.Umad`."""

    def prepare(self, requests: Sequence[Request]) -> Any:
        """Have requests ready to be sent."""

    def send(self, made: Any, place: int, number: int, timeout_ms: int) -> None:
        """Ask."""

    def receive(self, timeout_ms: int) -> Answer | None:
        """The next that comes back."""


class Asker:
    """Asks by a port.

    Args:
        port: by which.
        at_once: so many requests may be under way.

    Attributes:
        counters: totals by name (`COUNTERS`).
    """

    def __init__(self, port: Port, at_once: int = AT_ONCE) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._port, self._at_once = port, at_once
        self._number = 0
        self._in_vain, self._most_in_vain = 0, sys.maxsize

    def bear(self, most_in_vain: int = sys.maxsize) -> None:
        """Raise `FellSilentError` when more requests than this have had no answer from now on, each try counted."""
        self._in_vain, self._most_in_vain = 0, most_in_vain

    def ask(self, requests: Sequence[Request]) -> list[bytes | None]:
        """The data of each answer, in the order of the requests; None for what is refused, or has no answer in `TRIES`.

        Raises:
            RdmaError: the port cannot send or receive.
            FellSilentError: see `bear`.
        """
        return self.ask_again(self._port.prepare(requests), len(requests))

    def prepare(self, requests: Sequence[Request]) -> Any:
        """Have requests ready, for `ask_again`."""
        return self._port.prepare(requests)

    def ask_again(self, made: Any, count: int, tries: int = TRIES) -> list[bytes | None]:
        """Ask what is ready, each so often at most; see `ask`."""
        found: list[bytes | None] = [None] * count
        waiting = deque((place, tries) for place in range(count))
        under_way: dict[int, tuple[int, int]] = {}
        last_s = time.monotonic()
        while waiting or under_way:
            while waiting and len(under_way) < self._at_once:
                place, left = waiting.popleft()
                self._number = self._number % MOST_NUMBER + 1
                under_way[self._number] = place, left - 1
                self._port.send(made, place, self._number, TIMEOUT_MS)
                self.counters["asked"] += 1
            answer = self._port.receive(TIMEOUT_MS)
            if answer is not None:
                last_s = time.monotonic()
                self._take(answer, under_way, waiting, found)
            elif time.monotonic() - last_s > MOST_LATE * TIMEOUT_MS / 1e3:
                for number in list(under_way):
                    self._lose(number, under_way, waiting)
                last_s = time.monotonic()
        return found

    def _take(
        self,
        answer: Answer,
        under_way: dict[int, tuple[int, int]],
        waiting: deque[tuple[int, int]],
        found: list[bytes | None],
    ) -> None:
        number = answer.number & MOST_NUMBER  # the kernel has the upper half
        if number not in under_way:
            self.counters["unexpected"] += 1
        elif answer.status is None:
            self._lose(number, under_way, waiting)
        else:
            place, _ = under_way.pop(number)
            self.counters["refused" if answer.status else "answered"] += 1
            found[place] = None if answer.status else answer.data

    def _lose(
        self, number: int, under_way: dict[int, tuple[int, int]], waiting: deque[tuple[int, int]]
    ) -> None:
        place, left = under_way.pop(number)
        self.counters["timed_out"] += 1
        self._in_vain += 1
        if self._in_vain > self._most_in_vain:
            raise FellSilentError(
                f"{self._in_vain} requests in vain", "what was there is gone; ask what there is"
            )
        if left:
            waiting.append((place, left))
