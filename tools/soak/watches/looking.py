"""A watch: looks again and again in a thread of its own, as a context."""

import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Watch(ABC):
    """Calls `look` every so often; what that raises ends the watch, and is raised again at its end.

    Args:
        every_s: from a look to the next.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s, self._done = every_s, threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if self._error is not None:
            raise self._error

    @abstractmethod
    def look(self) -> None:
        """Look once."""

    def _run(self) -> None:
        try:
            while not self._done.is_set():
                due_s = time.monotonic() + self._every_s
                self.look()
                self._done.wait(max(0.0, due_s - time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - it is raised again by who waits
            self._error = error
