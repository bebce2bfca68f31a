"""Many attributes at once: requests under way together, those that are lost asked for again, what becomes of each counted."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.errors import RdmaError
from cwdp.ib.umad import DATA_BYTES, NO_ANSWER, Answers, Request

AT_ONCE = 64
"""Under way together: switches answer one after the other, and have little room for more. Once half have come back others are sent:
to wake up for each costs more than to read it."""

TIMEOUT_MS, TRIES = 200, 3
MOST_NUMBER = 0xFFFFFFFF
MOST_LATE = 2
"""So many timeouts after the last answer nothing comes any more."""

COUNTERS = ("asked", "answered", "refused", "timed_out", "unexpected")

_UNDER_WAY, _ANSWERED, _REFUSED, _LOST = range(4)
"""What becomes of a request."""


class FellSilentError(RdmaError):
    """More requests were in vain than may be: what was there is gone."""


class Port(Protocol):
    """See `cwdp.ib.umad.Umad`."""

    def prepare(self, requests: Sequence[Request], timeout_ms: int) -> Any:
        """Have requests ready to be sent."""

    def send(self, made: Any, places: NDArray[np.intp], number: int) -> None:
        """Ask."""

    def receive(self, least: int, most: int, timeout_ms: int) -> Answers:
        """What has come back."""


@dataclass(frozen=True)
class Told:
    """What came of requests, in their order.

    Attributes:
        data: of each answer, anything where there is none, uint8, shape (requests, `DATA_BYTES`).
        came: which have an answer that is no refusal, shape (requests,).
    """

    data: NDArray[np.uint8]
    came: NDArray[np.bool_]

    def each(self) -> list[bytes | None]:
        """The data of each; None for what is refused, or has no answer."""
        return [
            data.tobytes() if came else None for data, came in zip(self.data, self.came.tolist(), strict=True)
        ]


class _Round:
    """Requests that are asked once each, their transactions' numbers one after the other.

    Args:
        first: number.
        places: of the requests, in the order in which they are sent.
        told: where is put down what they tell.

    Attributes:
        sent: how many are.
    """

    def __init__(self, first: int, places: NDArray[np.intp], told: Told) -> None:
        self.first, self.sent = first, 0
        self._places, self._told = places, told
        self._fates = np.full(len(places), _UNDER_WAY, np.uint8)

    @property
    def under_way(self) -> int:
        """How many have been sent and have not come back."""
        return self.sent - int(np.count_nonzero(self._fates))

    @property
    def lost(self) -> NDArray[np.intp]:
        """Places of those to which nothing came."""
        lost: NDArray[np.intp] = self._places[self._fates == _LOST]
        return lost

    def count(self, fate: int) -> int:
        """How many came to that."""
        return int(np.count_nonzero(self._fates == fate))

    def take(self, answers: Answers) -> int:
        """Put down what has come back; what is not under way passes by. Returns how many came back unanswered."""
        at, statuses, data = answers.numbers - self.first, answers.statuses, answers.data
        is_ours = (at >= 0) & (at < self.sent)
        if is_ours.all():
            is_ours = self._fates[at] == _UNDER_WAY
        else:
            is_ours[is_ours] = self._fates[at[is_ours]] == _UNDER_WAY
        if not is_ours.all():
            at, statuses, data = at[is_ours], statuses[is_ours], data[is_ours]
        places = self._places[at]
        self._told.data[places], self._told.came[places] = data, statuses == 0
        self._fates[at] = _ANSWERED
        if not statuses.any():
            return 0
        is_lost = statuses == NO_ANSWER
        self._fates[at[statuses != 0]] = _REFUSED
        self._fates[at[is_lost]] = _LOST
        return int(np.count_nonzero(is_lost))

    def give_up(self) -> int:
        """What is under way is lost; returns how many."""
        late = np.flatnonzero(self._fates[: self.sent] == _UNDER_WAY)
        self._fates[late] = _LOST
        return len(late)


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
        return self.ask_again(self.prepare(requests)).each()

    def prepare(self, requests: Sequence[Request]) -> Any:
        """Have requests ready, for `ask_again`."""
        return self._port.prepare(requests, TIMEOUT_MS)

    def ask_again(self, made: Any, tries: int = TRIES, places: NDArray[np.intp] | None = None) -> Told:
        """Ask what is ready, or those of it at some places; each so often at most; see `ask`."""
        told = Told(np.zeros((len(made), DATA_BYTES), np.uint8), np.zeros(len(made), bool))
        left = np.arange(len(made)) if places is None else places
        for _ in range(tries):
            left = self._ask_once(made, left, told)
            if not len(left):
                break
        return told

    def _ask_once(self, made: Any, places: NDArray[np.intp], told: Told) -> NDArray[np.intp]:
        """Ask some, and put down what they tell; returns those that are lost."""
        round_ = _Round(self._numbers(len(places)), places, told)
        try:
            self._run(made, places, round_)
        finally:
            self.counters.update(answered=round_.count(_ANSWERED), refused=round_.count(_REFUSED))
        return round_.lost

    def _run(self, made: Any, places: NDArray[np.intp], round_: _Round) -> None:
        last_s = time.monotonic()
        while round_.sent < len(places) or round_.under_way:
            due = places[round_.sent : round_.sent + self._at_once - round_.under_way]
            self._port.send(made, due, round_.first + round_.sent)
            round_.sent += len(due)
            self.counters["asked"] += len(due)
            under_way = round_.under_way
            answers = self._port.receive((under_way + 1) // 2, under_way, TIMEOUT_MS)
            if len(answers.numbers):
                last_s = time.monotonic()
                lost = round_.take(answers)
                self.counters["unexpected"] += len(answers.numbers) - (under_way - round_.under_way)
                self._lose(lost)
            elif time.monotonic() - last_s > MOST_LATE * TIMEOUT_MS / 1e3:
                last_s = time.monotonic()
                self._lose(round_.give_up())

    def _numbers(self, count: int) -> int:
        """The first of so many of transactions."""
        if self._number + count > MOST_NUMBER:
            self._number = 0
        first = self._number + 1
        self._number += count
        return first

    def _lose(self, count: int) -> None:
        self.counters["timed_out"] += count
        self._in_vain += count
        if self._in_vain > self._most_in_vain:
            raise FellSilentError(
                f"{self._in_vain} requests in vain", "what was there is gone; ask what there is"
            )
