"""What the manager spends its processor time on, by duty."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

import nkeys
from msgspec import Struct

from cwdp.shared.bus.sealing import LeaderSeal

PROMPT_S = 0.5
LEAST_OF_SHARE = 0.25
"""Where what arrives waits for longer than that, duties take by so much less than their share, but this part of it."""

UNPACK = "unpack"
"""To make out what a message says and whether it is from whom it says, before it is heard."""

_T = TypeVar("_T")
_Message = TypeVar("_Message", bound=Struct)


class Duties:
    """Adds up processor time, in whichever thread a duty is done.

    Attributes:
        seconds: of each duty.
        waits_s: how long what arrives waits to be heard.
    """

    def __init__(self) -> None:
        self.waits_s: Callable[[], float] = lambda: 0.0
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def of(self, duty: str) -> Iterator[None]:
        """Count what is done meanwhile, without giving way to others, as a duty's."""
        started_s = time.thread_time()
        try:
            yield
        finally:
            self.seconds[duty] += time.thread_time() - started_s

    @contextlib.asynccontextmanager
    async def paced(self, *duties: str, least_s: float, share: float) -> AsyncIterator[None]:
        """One turn of a loop; then it rests for so long at least, or for what its duties took by that share of a processor."""
        before_s = self.spent_s(*duties)
        yield
        await asyncio.sleep(max(least_s, (self.spent_s(*duties) - before_s) / self.room(share)))

    def room(self, share: float) -> float:
        """What a loop may take now that may take a share of a processor: less where what arrives waits to be heard.

        What is done seldom is late; what is not heard in time is lost, hosts with it.
        """
        return share * max(LEAST_OF_SHARE, PROMPT_S / max(self.waits_s(), PROMPT_S))

    def spent_s(self, *duties: str) -> float:
        """The processor time that some duties have taken until now."""
        return sum(self.seconds[duty] for duty in duties)

    def timed(self, duty: str, work: Callable[[], _T]) -> _T:
        """Do some work that counts as a duty's."""
        with self.of(duty):
            return work()


class CountedSeal(LeaderSeal):
    """Counts the time in which messages are made out as that of the duty `UNPACK`.

    Args:
        key: the fleet's control key.
        duties: where it is counted.
    """

    def __init__(self, key: nkeys.KeyPair, duties: Duties) -> None:
        super().__init__(key)
        self._duties = duties

    def decode(self, subject: str, of: type[_Message], data: bytes) -> _Message:
        """As every leader's."""
        with self._duties.of(UNPACK):
            return super().decode(subject, of, data)
