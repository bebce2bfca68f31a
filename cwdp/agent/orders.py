"""What a process of the agent's own reads, its latest orders, and what it says: lines of JSON."""

import os
import select
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

_T = TypeVar("_T")


class Orders(Generic[_T]):
    """What the agent writes, without waiting for it.

    Args:
        fd: the standard input, as a rule.
        kind: what a line is.
    """

    def __init__(self, fd: int, kind: type[_T]) -> None:
        self._fd = fd
        self._decoder = msgspec.json.Decoder(kind)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._rest = b""

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._fd

    def take(self) -> _T | None:
        """The latest orders; None where there are none that are new.

        Raises:
            EOFError: the agent is gone.
        """
        latest = None
        while self._poll.poll(0):
            data = os.read(self._fd, 1 << 16)
            if not data:
                raise EOFError
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                latest = lines[-1]
        return None if latest is None else self._decoder.decode(latest)


class Words:
    """Writes to the agent without waiting for it: while it reads nothing, nothing more is said.

    Args:
        fd: the standard output, as a rule.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._rest = b""

    def is_free(self) -> bool:
        """Whether all that was said has been written."""
        if self._rest:
            with suppress(BlockingIOError):
                self._rest = self._rest[os.write(self._fd, self._rest) :]
        return not self._rest

    def say(self, word: Struct) -> None:
        """Say something, when free."""
        self._rest = msgspec.json.encode(word) + b"\n"
        self.is_free()
