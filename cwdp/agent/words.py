"""What a process of the agent's own says: lines of JSON, which the agent reads when it comes to it."""

import os
from contextlib import suppress

import msgspec
from msgspec import Struct


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
