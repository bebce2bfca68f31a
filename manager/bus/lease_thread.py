"""The lease in a thread of its own, with connections of its own: no other work of the manager delays its renewal.

Where the manager's loop stands still for long the lease lapses all the same, as somebody else had better lead then.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from cwdp.shared.bus.connection import Bus
from cwdp.shared.tasks import end
from manager.bus.lease import Claim, Lease


class LeaseThread:
    """A `Lease` for a manager that is busy with other things; to be asked in the manager's loop.

    Args:
        buses: by which the lease is reached, as of `Lease`, and nothing else is; not started.
        claim: who this manager is.
        on_change: called in the manager's loop, with True when it has begun to lead, with False when it does no more.
        is_well: whether the manager does its work; may be asked in any thread.
    """

    def __init__(
        self,
        buses: Sequence[Bus],
        claim: Claim,
        on_change: Callable[[bool], None],
        is_well: Callable[[], bool],
    ) -> None:
        self._buses, self._on_change = buses, on_change
        self._lease = Lease(buses, claim, self._tell, is_well)
        self._thread = threading.Thread(target=self._serve, name="lease", daemon=True)
        self._ready = threading.Event()
        self._home: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ended: asyncio.Future[None] | None = None

    @property
    def claim(self) -> Claim:
        """Who this manager is."""
        return self._lease.claim

    @property
    def holder(self) -> Claim | None:
        """Who led when that was last read."""
        return self._lease.holder

    @property
    def epoch(self) -> int:
        """The number of this manager's latest time as the leader; 0 before the first."""
        return self._lease.epoch

    @property
    def others_led(self) -> bool:
        """Whether others may have led before that, since this manager did."""
        return self._lease.others_led

    @property
    def counters(self) -> Counter[str]:
        """Totals by name."""
        return self._lease.counters

    @property
    def leads(self) -> bool:
        """Whether this manager leads, now."""
        return self._lease.leads

    def start(self, gone: str | None = None) -> None:
        """Try for the lease from now on, until `close`; the manager `gone` surely runs no more."""
        self._lease.gone = gone
        self._home = asyncio.get_running_loop()
        self._ended = self._home.create_future()
        self._thread.start()
        self._ready.wait()

    async def ended(self) -> None:
        """Wait for the end of the thread, which only `close` should bring about.

        Raises:
            Exception: what nobody has foreseen.
        """
        assert self._ended is not None
        await asyncio.shield(self._ended)

    async def confirm(self) -> bool:
        """Whether it is certain that this manager has led since this was asked: by renewing the lease."""
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._lease.confirm(), self._loop))

    async def close(self) -> None:
        """Let somebody else have it at once, and end the thread."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._work())
        except Exception as unforeseen:  # noqa: BLE001 - the manager's loop raises it
            error = unforeseen
        self._ready.set()
        assert self._home is not None
        if not self._home.is_closed():
            self._home.call_soon_threadsafe(self._end, error)

    async def _work(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        for bus in self._buses:
            bus.start()
        trying = asyncio.create_task(self._lease.run(), name="lease")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([trying, stopping], return_when=asyncio.FIRST_COMPLETED)
            if trying.done():
                trying.result()
        finally:
            await end(trying, stopping)
            await self._lease.release()
            await asyncio.gather(*(bus.close() for bus in self._buses))

    def _end(self, error: BaseException | None) -> None:
        if self._ended is not None and not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    def _tell(self, leads: bool) -> None:
        assert self._home is not None
        self._home.call_soon_threadsafe(self._on_change, leads)
