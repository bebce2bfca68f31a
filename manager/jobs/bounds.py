"""Where one iteration of a job ends and the next begins for all its NICs, and what they do within. Pure."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from manager.jobs.flows import FlowBursts, Rows

PHASES, QUIET = 50, 0.1
"""Into so many parts an iteration is divided; quiet are those in which less than this share of the most begins."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def bounds(flows: Sequence[FlowBursts], starts_ns: Ints) -> Ints:
    """When iterations begin, in the middle of the longest time of one in which hardly anything begins, shape (iterations + 1,).

    Where an iteration begins is a matter of which flows it was found by: those of a straggler begin when the others have long begun.

    Args:
        flows: all of the job.
        starts_ns: when its iterations began, on the timeline, at least two, shape (iterations + 1,).
    """
    period_ns = float(np.diff(starts_ns).mean())
    begins = np.concatenate([each.left["start_ns"] for each in flows])
    begins = begins[(begins >= starts_ns[0]) & (begins < starts_ns[-1])]
    phase = ((begins - bound_of(begins, starts_ns)) / period_ns * PHASES).astype(np.intp) % PHASES
    counts = np.bincount(phase, minlength=PHASES)
    quiet = np.tile(counts < QUIET * counts.max(), 2)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], quiet, [False]]).astype(np.int8)))
    if not len(edges):
        return starts_ns
    lengths = edges[1::2] - edges[::2]
    longest = int(np.argmax(lengths))
    middle = float(edges[2 * longest] + lengths[longest] / 2) % PHASES
    return starts_ns + round((middle - PHASES) / PHASES * period_ns)


def bound_of(at_ns: Ints, bounds_ns: Ints) -> Ints:
    """The beginning of the iteration in which each moment is."""
    found: Ints = bounds_ns[(np.searchsorted(bounds_ns, at_ns, "right") - 1).clip(0)]
    return found


def by_iteration(at_ns: Ints, values: Floats, bounds_ns: Ints, of: "np.ufunc") -> Floats:
    """One of the values in each iteration, NaN where there is none, shape (iterations,)."""
    place = np.searchsorted(bounds_ns, at_ns, "right") - 1
    inside = (place >= 0) & (place < len(bounds_ns) - 1)
    found = np.full(len(bounds_ns) - 1, np.nan)
    of.at(found, place[inside], values[inside])
    return found


def first_ns(sent: Sequence[Rows], bounds_ns: Ints) -> Floats:
    """How long after the bound of each iteration a NIC begins to send, NaN where it does not, shape (iterations,)."""
    begins = np.concatenate([rows["start_ns"] for rows in sent])
    return by_iteration(begins, (begins - bound_of(begins, bounds_ns)).astype(np.float64), bounds_ns, np.fmin)


def over_ns(rows: Sequence[Rows], bounds_ns: Ints) -> Floats:
    """How long before each bound all was over that began before it, NaN before the first burst, shape (bounds,); negative after it."""
    bursts = np.concatenate(rows)
    bursts = bursts[np.argsort(bursts["start_ns"], kind="stable")]
    place = np.searchsorted(bursts["start_ns"], bounds_ns) - 1
    ends_ns = np.maximum.accumulate(bursts["end_ns"])[place.clip(0)]
    found: Floats = np.where(place >= 0, bounds_ns - ends_ns, np.nan)
    return found


def sending_ns(flows: Sequence[FlowBursts], bounds_ns: Ints) -> Floats:
    """From when the last NIC begins to send to when all is over, of each iteration, NaN where that is not known, shape (iterations,).

    How long ranks compute is no part of it.
    """
    sent: defaultdict[str, list[Rows]] = defaultdict(list)
    for each in flows:
        sent[each.flow.src].append(each.left)
    begins = np.fmax.reduce([first_ns(rows, bounds_ns) for rows in sent.values()])
    over = over_ns([each.left for each in flows], bounds_ns[1:])
    found: Floats = np.diff(bounds_ns) - over - begins
    return found
