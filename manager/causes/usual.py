"""How long iterations of jobs take at their best of late. Pure: time is an argument."""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from manager.jobs.flows import Flow
from manager.jobs.inference import Job
from manager.jobs.symptoms import LEAST_LATELY

REMEMBERED_S = 600.0
"""What has been so for longer is usual."""

ALIKE = 0.5
"""Of its queue pairs: so many were in another one before, if it is the same job or a part of it."""

AS_MUCH = 0.7
"""Of the packets of the other: iterations that send so much at least are iterations of one kind. As several may be looked at as one."""

LASTS_S = 5.0
"""For so long looks in a row have to say so: where a job begins or is upset its iterations may be told wrongly for a moment."""


@dataclass
class _Known:
    """What one job took.

    Attributes:
        took: when, the median iteration in ns then, and the packets of one, if that is known; the oldest first.
    """

    flows: frozenset[Flow]
    took: deque[tuple[float, float, float | None]] = field(default_factory=deque)


class Usual:
    """What jobs took, by their queue pairs: a job that is told apart otherwise for a while is taken for what it was.

    One on the same NICs with queue pairs of its own is another job.
    """

    def __init__(self) -> None:
        self._known: list[_Known] = []

    def of(self, job: Job) -> float | None:
        """The least that the medians of late did not exceed for a while, in ns, of iterations that send as much; None where there are too few."""
        known = self._find(job)
        alike = (
            () if known is None else [each for each in known.took if _as_much(each[2], job.lately.packets)]
        )
        if not alike:
            return None
        at_s, took_ns, _ = zip(*alike, strict=True)
        ends = (bisect_left(at_s, since_s + LASTS_S) for since_s in at_s)
        spans = (took_ns[first : end + 1] for first, end in enumerate(ends) if end < len(at_s))
        return min(map(max, spans), default=None)

    def see(self, jobs: Collection[Job], now_s: float) -> None:
        """Take in how long jobs take now."""
        for job in jobs:
            median_ns = job.lately.median_ns
            if median_ns is not None and len(job.lately.lasted_ns) >= LEAST_LATELY:
                flows = frozenset(job.flows)
                known = next((each for each in self._known if each.flows == flows), None)
                if known is None:
                    before = self._find(job)
                    known = _Known(flows, deque() if before is None else deque(before.took))
                    self._known.append(known)
                known.took.append((now_s, median_ns, job.lately.packets))
        for known in self._known:
            while known.took and known.took[0][0] < now_s - REMEMBERED_S:
                known.took.popleft()
        self._known = [known for known in self._known if known.took]

    def _find(self, job: Job) -> _Known | None:
        shares = [
            (len(each.flows.intersection(job.flows)) / len(job.flows), i)
            for i, each in enumerate(self._known)
        ]
        share, i = max(shares, default=(0.0, 0))
        return self._known[i] if share >= ALIKE else None


def _as_much(one: float | None, other: float | None) -> bool:
    """Whether iterations send about as many packets, as far as that is known."""
    return one is None or other is None or min(one, other) >= AS_MUCH * max(one, other)
