"""Where one iteration of a job ends and the next begins for all its NICs, and what they do within. Pure."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from manager.jobs.flows import FlowBursts, Ints, Places, Told

PHASES, QUIET = 50, 0.1
"""Into so many parts an iteration is divided; quiet are those in which less than this share of the most begins."""

NEVER, NOT_YET = np.iinfo(np.int64).min, np.iinfo(np.int64).max

Floats = NDArray[np.float64]


class Iterations:
    """What the NICs of a job do in its iterations.

    Args:
        flows: all of the job.
        starts_ns: when its iterations began, on the timeline, shape (iterations + 1,); what follows is known of two or more.

    Attributes:
        flows, starts_ns: as given.
    """

    def __init__(self, flows: FlowBursts, starts_ns: Ints) -> None:
        self.flows, self.starts_ns = flows, starts_ns

    @cached_property
    def bounds_ns(self) -> Ints:
        """When iterations begin for all, shape (iterations + 1,)."""
        return bounds(self.flows.left.bursts.start_ns, self.starts_ns)

    @cached_property
    def first_ns(self) -> Floats:
        """How long after the bound of each iteration each NIC begins to send, NaN where it does not, shape (nics, iterations)."""
        start_ns, place = self.flows.left.bursts.start_ns, self._left_place - 1
        shape = len(self.flows.nics), len(self.bounds_ns) - 1
        inside = (place >= 0) & (place < shape[1])
        start_ns, place, nic = (
            start_ns[inside],
            place[inside],
            self.flows.left.each(self.flows.ends[0])[inside],
        )
        first = np.full(shape, NOT_YET)
        np.minimum.at(first.reshape(-1), nic * shape[1] + place, start_ns - self.bounds_ns[place])
        return np.where(first < NOT_YET, first, np.nan)

    @cached_property
    def idle_ns(self) -> Floats:
        """How long before each NIC began an iteration all was over that it sent or was sent before, NaN where that is not known.

        Shape (nics, iterations).
        """
        told, place = self.flows.arrived, self._place(self.flows.arrived)
        ends_ns = np.maximum(self._left_ends_ns, self._ends_ns(told, self.flows.ends[1], place))
        return self.first_ns + self._over_ns(ends_ns)[:, :-1]

    @cached_property
    def sending_ns(self) -> Floats:
        """From when the last NIC begins to send to when all is over, of each iteration, NaN where that is not known, shape (iterations,).

        How long ranks compute is no part of it.
        """
        found: Floats = np.diff(self.bounds_ns) - self.over_ns - np.fmax.reduce(self.first_ns)
        return found

    @cached_property
    def over_ns(self) -> Floats:
        """How long before the end of each iteration all was over that began before, negative where it was so after it, shape (iterations,)."""
        return self._over_ns(self._left_ends_ns.max(axis=0))[1:]

    @cached_property
    def over_of_each_ns(self) -> Floats:
        """The same of what each NIC sent, shape (nics, iterations)."""
        return self._over_ns(self._left_ends_ns)[:, 1:]

    def _over_ns(self, ends_ns: Ints) -> Floats:
        until_ns = np.maximum.accumulate(ends_ns, axis=-1)
        return np.where(until_ns > NEVER, self.bounds_ns - until_ns, np.nan)

    @cached_property
    def _left_ends_ns(self) -> Ints:
        return self._ends_ns(self.flows.left, self.flows.ends[0], self._left_place)

    def _ends_ns(self, told: Told, nic_of_flows: Places, place: Places) -> Ints:
        """When the last burst ended of those of each NIC that began between two bounds, shape (nics, iterations + 1)."""
        width = len(self.bounds_ns) + 1
        found = np.full((len(self.flows.nics), width), NEVER)
        np.maximum.at(found.reshape(-1), told.each(nic_of_flows) * width + place, told.bursts.end_ns)
        return found[:, :-1]

    @cached_property
    def _left_place(self) -> Places:
        return self._place(self.flows.left)

    def _place(self, told: Told) -> Places:
        """Before which bound each burst begins, shape (n,)."""
        return np.searchsorted(self.bounds_ns, told.bursts.start_ns, "right")


def bounds(begins_ns: Ints, starts_ns: Ints) -> Ints:
    """When iterations begin, in the middle of the longest time of one in which hardly anything begins, shape (iterations + 1,).

    Where an iteration begins is a matter of which flows it was found by: those of a straggler begin when the others have long begun.

    Args:
        begins_ns: when bursts began, shape (n,).
        starts_ns: when iterations began, on the timeline, at least two, shape (iterations + 1,).
    """
    period_ns = float(np.diff(starts_ns).mean())
    begins_ns = begins_ns[(begins_ns >= starts_ns[0]) & (begins_ns < starts_ns[-1])]
    begun_ns = starts_ns[np.searchsorted(starts_ns, begins_ns, "right") - 1]
    phase = ((begins_ns - begun_ns) / period_ns * PHASES).astype(np.intp) % PHASES
    counts = np.bincount(phase, minlength=PHASES)
    quiet = np.tile(counts < QUIET * counts.max(), 2)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], quiet, [False]]).astype(np.int8)))
    if not len(edges):
        return starts_ns
    lengths = edges[1::2] - edges[::2]
    longest = int(np.argmax(lengths))
    middle = float(edges[2 * longest] + lengths[longest] / 2) % PHASES
    return starts_ns + round((middle - PHASES) / PHASES * period_ns)


def by_iteration(at_ns: Ints, values: Floats, bounds_ns: Ints, of: "np.ufunc") -> Floats:
    """One of the values in each iteration, NaN where there is none, shape (iterations,)."""
    place = np.searchsorted(bounds_ns, at_ns, "right") - 1
    inside = (place >= 0) & (place < len(bounds_ns) - 1)
    found = np.full(len(bounds_ns) - 1, np.nan)
    of.at(found, place[inside], values[inside])
    return found
