"""What rows of windows say, column by column, and room for what is kept of paths. No I/O."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import NO_DELAY_NS

WIDEST_BOUND_NS = 100_000
"""A delay that is known less well than this tells nothing of queues."""

WAYS = ("fwd", "rev")

Floats = NDArray[np.float32]
_Scalar = TypeVar("_Scalar", bound=np.generic)


def shares_of(
    counts: list[NDArray[np.uint16]], turn: NDArray[np.int64], times: NDArray[np.int64]
) -> list[NDArray[np.uint16]]:
    """What one window has of counts that are of several each: of a row's `times` it is the `turn`th, from 0; shape (rows,) each."""
    if times.max(initial=1) == 1:
        return counts
    return [
        _upto(count, turn + 1, times) - _upto(count, turn, times) if count.any() else count
        for count in counts
    ]


def _upto(count: NDArray[np.uint16], turn: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.uint16]:
    """What the windows before `turn` have; products and quotients are exact enough in float64 to round down right."""
    return (count * turn / times).astype(np.uint16)


def known_delays(rows: NDArray[np.void]) -> list[Floats]:
    """Mean delays there and back, then the least ones, NaN where one is not known; shape (rows,) each."""
    bound_ns = rows["bound_ns"]
    unknown = bound_ns >= WIDEST_BOUND_NS if bound_ns.max() >= WIDEST_BOUND_NS else None
    delays = []
    for what in ("mean", "min"):
        for way in WAYS:
            told = np.ascontiguousarray(rows[f"{way}_{what}_ns"])
            delay = told.astype(np.float32)
            if told.min() == NO_DELAY_NS:
                delay[told == NO_DELAY_NS] = np.nan
            if unknown is not None:
                delay[unknown] = np.nan
            delays.append(delay)
    return delays


def with_more(array: NDArray[_Scalar], more: int, used: Iterable[int]) -> NDArray[_Scalar]:
    """An array with room for more along its last axis, and of the first one what is used.

    The system gives the memory of the rest when it is written to.
    """
    old = array.shape[-1]
    grown = np.zeros((*array.shape[:-1], old + more), array.dtype)
    for place in used:
        grown[place, ..., :old] = array[place]
    return grown
