"""What a process of the agent's own reads: its latest orders, one line of JSON each."""

import os
import select
from typing import Generic, TypeVar

import msgspec

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
