"""The one thread that touches history's files, and what becomes of trouble with them.

Damaged files are set aside under another name and begun anew. Any other trouble, such as a full disk, stops history:
nothing is tried for a while, then it is opened anew. Either is told once.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from cwdp.shared.aside import set_aside
from manager.history import store as stores
from manager.history.coding import LINK_FIELDS, PAIR_FIELDS
from manager.history.measured import Measured
from manager.history.rings import Ring
from manager.history.store import Store

RETRY_S = 2.0

_T = TypeVar("_T")
Tell = Callable[[str, str], None]
_log = logging.getLogger("cwdp.manager.history")


class StoppedError(Exception):
    """Nothing can be read or written now."""


class Disk:
    """Everything that is open: the store, and the rings of links and of leaf pairs. One thread uses it."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory)
        try:
            generation = self.store.generation
            self.links = Measured(Ring(directory, "links", generation), "links", LINK_FIELDS, self.store)
            self.pairs = Measured(Ring(directory, "pairs", generation), "pairs", PAIR_FIELDS, self.store)
        except BaseException:
            self.store.close()
            raise

    @property
    def rings_bytes(self) -> int:
        """What the files of all rings may grow to."""
        return self.links.ring.size_bytes + self.pairs.ring.size_bytes

    def set_aside(self) -> list[Path]:
        """Ring files that were not this store's, each told once."""
        found = [*self.links.ring.set_aside, *self.pairs.ring.set_aside]
        self.links.ring.set_aside.clear()
        self.pairs.ring.set_aside.clear()
        return found

    def close(self) -> None:
        """Let go of all files."""
        self.links.ring.close()
        self.pairs.ring.close()
        self.store.close()


class Writer:
    """Does things to the files, one after the other.

    Args:
        directory: where they are.
        tell: told of trouble, and of its end: the kind of an event, and its text.

    Attributes:
        stopped: why nothing is kept now; empty while it is.
    """

    def __init__(self, directory: Path, tell: Tell) -> None:
        self.stopped = ""
        self._directory, self._tell = directory, tell
        self._thread = ThreadPoolExecutor(1, "history")
        self._disk: Disk | None = None
        self._retry_s = 0.0

    async def do(self, work: Callable[[Disk], _T]) -> _T:
        """Have the thread do something.

        Raises:
            StoppedError: it could not be done; it may be later.
        """
        if self.stopped and time.monotonic() < self._retry_s:
            raise StoppedError(self.stopped)
        loop = asyncio.get_running_loop()
        try:
            done, aside = await loop.run_in_executor(self._thread, self._work, work)
        except (OSError, sqlite3.Error) as error:
            self._stop(error)
            raise StoppedError(self.stopped) from error
        for path in aside:
            _log.error("history was damaged and begins anew; set aside as %s", path)
            self._tell("history_set_aside", f"damaged, or of another version; begun anew; kept as {path}")
        if self.stopped:
            self.stopped = ""
            self._tell("history_goes_on", "it can be written again")
        return done

    async def close(self) -> None:
        """End, with the files closed."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._abandon)
        self._thread.shutdown(wait=False)

    def _stop(self, error: Exception) -> None:
        self._retry_s = time.monotonic() + RETRY_S
        if not self.stopped:
            self.stopped = str(error)
            _log.error("history cannot be written and stops dir=%s error=%s", self._directory, error)
            self._tell("history_stopped", f"{self._directory}: {error}; all else goes on")

    def _work(self, work: Callable[[Disk], _T]) -> tuple[_T, list[Path]]:
        """In the thread: do it, with damaged files out of the way; those under their new names."""
        try:
            return self._try(work)
        except sqlite3.Error as error:
            if not stores.is_corrupt(error):
                raise
        self._abandon()
        aside = [set_aside(self._directory / stores.FILE, stores.ENDINGS)]
        done, more = self._try(work)
        return done, aside + more

    def _try(self, work: Callable[[Disk], _T]) -> tuple[_T, list[Path]]:
        try:
            if self._disk is None:
                self._disk = Disk(self._directory)
            done = work(self._disk)
            return done, self._disk.set_aside()
        except (OSError, sqlite3.Error):
            self._abandon()
            raise

    def _abandon(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            disk.close()
