"""What the manager spends its processor time on, by duty."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


class Duties:
    """Adds up processor time, in whichever thread a duty is done.

    Attributes:
        seconds: of each duty.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def of(self, duty: str) -> Iterator[None]:
        """Count what is done meanwhile, without giving way to others, as a duty's."""
        started_s = time.thread_time()
        try:
            yield
        finally:
            self.seconds[duty] += time.thread_time() - started_s

    def timed(self, duty: str, work: Callable[[], _T]) -> _T:
        """Do some work that counts as a duty's."""
        with self.of(duty):
            return work()
