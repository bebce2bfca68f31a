"""Brings this host's NICs to the state that the manager desires, and tries again what was refused."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from cwdp.errors import CwdpError
from cwdp.shared.tasks import set_within

RETRY_S = 5.0


class Reconciler(ABC):
    """Reconciles one kind of desired state, NIC by NIC.

    Args:
        ifnames: the NICs.
        refuse: told, once, of each thing that cannot be applied: the NIC and why.
        counter: under which refusals are counted.

    Attributes:
        counters: totals by name.
    """

    def __init__(self, ifnames: Sequence[str], refuse: Callable[[str, str], None], counter: str) -> None:
        self.counters: Counter[str] = Counter({counter: 0})
        self._ifnames = tuple(ifnames)
        self._counter = counter
        self._refuse = refuse
        self._refused: dict[str, set[str]] = {ifname: set() for ifname in ifnames}
        self._stale: set[str] = set()
        self._wake = asyncio.Event()

    @abstractmethod
    def loaded(self, ifname: str) -> None:
        """The dataplane of a NIC was found or loaded."""

    async def follow(self) -> None:
        """Apply what is wanted whenever that changes, in a thread, for ever."""
        while True:
            self._wake.clear()
            for ifname in sorted(self._stale):
                self._stale.discard(ifname)
                self._tell(ifname, await asyncio.to_thread(self._try, ifname))
            if not await set_within(self._wake, self._wait_s()):
                self._stale |= self._unsettled()

    @abstractmethod
    def _reconcile(self, ifname: str) -> Collection[CwdpError]:
        """Make a NIC what is wanted, in a thread.

        Returns:
            Why some of it could not be.

        Raises:
            CwdpError: nothing of it could be.
            OSError: its maps cannot be opened or changed.
        """

    def _wait_s(self) -> float:
        """How long it may take until something is looked at again, while nothing else is wanted."""
        return RETRY_S

    def _unsettled(self) -> set[str]:
        """The NICs that are to be looked at again after a while."""
        return {ifname for ifname, refused in self._refused.items() if refused}

    def _look_at(self, ifnames: Iterable[str]) -> None:
        self._stale.update(ifnames)
        self._wake.set()

    def _try(self, ifname: str) -> set[str]:
        try:
            return {error.message for error in self._reconcile(ifname)}
        except CwdpError as error:
            return {error.message}
        except OSError as error:
            return {f"the maps of {ifname} cannot be used: {error.strerror}"}

    def _tell(self, ifname: str, refused: set[str]) -> None:
        for message in sorted(refused - self._refused[ifname]):
            self.counters[self._counter] += 1
            self._refuse(ifname, message)
        self._refused[ifname] = refused
