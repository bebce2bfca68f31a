"""What is remembered of each queue pair, as columns."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLEAR_S = 2.0
"""So long after the last queue on its way a queue pair's rate may still be on the rise, and smoothed."""

CALM_RESTS = 3.0
"""Left alone for so many of its rests, a queue pair is moved as freely again as one that never was."""

MOST_RESTS = 16
"""The longest rest, in those after a first move."""

SMOOTHING = 0.5

NO_PORT = 0

FRESH: dict[str, Any] = {
    "used": True,
    "nic": 0,
    "first_s": math.nan,
    "active_s": math.nan,
    "told_s": math.nan,
    "sport": NO_PORT,
    "backup_sport": NO_PORT,
    "asked_s": -math.inf,
    "moved_s": -math.inf,
    "rest_s": 0.0,
    "refused_s": -math.inf,
    "rate_bps": math.nan,
    "clear_s": math.inf,
    "chosen_of": -1,
    "chosen_without": -1,
}
"""Of a queue pair of which nothing is known yet; see `Entries`."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]


def unused(count: int) -> Columns:
    """So many rows of nobody, by the names of `FRESH`."""
    return {name: np.zeros(count, np.array(value).dtype) for name, value in FRESH.items()}


def _column(name: str) -> Any:
    """An attribute that is a column of the rows chosen."""

    def read(entries: "Entries") -> Any:
        return entries.rows[name][entries.chosen]

    def write(entries: "Entries", value: Any) -> None:
        entries.rows[name][entries.chosen] = value

    return property(read, write)


class Entries:
    """Some queue pairs. Times are seconds of the manager's monotonic clock; each attribute has the shape of `chosen`.

    Args:
        rows: each column of `FRESH`, shape (rows,).
        chosen: those of them that these are, each once, shape (n,); or one.

    Attributes:
        first_s, active_s: when it was first and last seen to send.
        told_s: how many seconds its NIC's reports told of when it was first found not to send; NaN while it does.
        sport, backup_sport: what its host was told; `NO_PORT`: nothing.
        asked_s: when that was.
        moved_s: when it was moved last of the planner's own accord.
        rest_s: for so long from then it is left alone.
        refused_s: until when its host is taken not to do as it is told.
        rate_bps: smoothed, NaN while unknown.
        clear_s: since when no queue was on its way, in the future while one may be.
        chosen_of: the number of the choices of which its backup was found to be as good as can be.
        chosen_without: the number of the set of links that were dead then.
    """

    first_s, active_s, told_s = _column("first_s"), _column("active_s"), _column("told_s")
    sport, backup_sport, asked_s = _column("sport"), _column("backup_sport"), _column("asked_s")
    moved_s, rest_s, refused_s = _column("moved_s"), _column("rest_s"), _column("refused_s")
    rate_bps, clear_s = _column("rate_bps"), _column("clear_s")
    chosen_of, chosen_without = _column("chosen_of"), _column("chosen_without")

    def __init__(self, rows: Columns, chosen: NDArray[np.intp] | int) -> None:
        self.rows, self.chosen = rows, chosen

    def begin(self, nic: NDArray[np.int64] | int, now_s: float) -> None:
        """They are of others from now on, of which nothing is known yet but their NIC, by its number, and that they send."""
        for name, value in (FRESH | {"first_s": now_s, "active_s": now_s, "nic": nic}).items():
            self.rows[name][self.chosen] = value

    def see(self, rate_bps: Floats, now_s: float) -> None:
        """They send, at rates that are NaN where they are not known."""
        self.active_s, self.told_s = now_s, math.nan
        before = np.where(np.isnan(self.rate_bps), rate_bps, self.rate_bps)
        self.rate_bps = np.where(np.isnan(rate_bps), self.rate_bps, before + SMOOTHING * (rate_bps - before))

    def port(self, seen: NDArray[np.int64], now_s: float) -> NDArray[np.int64]:
        """The port of the primary path: as it was told, or as was seen where it does not do so."""
        return np.where((self.sport == NO_PORT) | (self.refused_s > now_s), seen, self.sport)

    def idle_s(self, told_s: Floats) -> Floats:
        """For how many seconds the NIC, whose reports tell of so many, has told that it does not send; NaN: of none."""
        self.told_s = np.fmin(self.told_s, told_s)
        return np.where(np.isnan(told_s), 0.0, told_s - self.told_s)

    def may_queue(self, queueing: Mask | bool, now_s: float) -> Mask:
        """Take in whether a queue may be on its way; whether one may have been lately, so that its rate tells of that."""
        self.clear_s = np.where(queueing, math.inf, np.minimum(self.clear_s, now_s))
        return np.asarray(now_s - self.clear_s < CLEAR_S)

    def is_rested(self, now_s: float) -> Mask:
        """Whether it may be moved for more room."""
        return np.asarray(now_s - self.moved_s >= self.rest_s)

    def move(self, now_s: float, hold_s: float) -> None:
        """It is moved for more room: it rests for `hold_s`, and twice as long each time that this did not last."""
        lasted = now_s - self.moved_s > CALM_RESTS * self.rest_s
        self.rest_s = np.where(lasted, hold_s, np.minimum(2 * self.rest_s, MOST_RESTS * hold_s))
        self.moved_s = now_s
        self.clear_s = math.inf
