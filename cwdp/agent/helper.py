"""Keeps a process of the agent's own running: for what must not be late for anything else that the agent does.

It reads orders from standard input and ends with it; what it writes to standard output are lines of JSON.
"""

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

Wanted = TypeVar("Wanted")

RESTART_AFTER_S = 0.5
LINE_LIMIT_BYTES = 1 << 20

_log = logging.getLogger("cwdp.agent")


class Helper(Generic[Wanted]):
    """One such process, as the agent sees it; its kinds say what it is ordered, and what is made of its words.

    Attributes:
        restart_after_s: after it has ended.

    Args:
        module: what it runs.
        arguments: of its command line.
        restarts: name of the counter of its ends.
        wanted: its first orders.
        inherits: descriptors that it has too, by the same numbers.
    """

    restart_after_s = RESTART_AFTER_S

    def __init__(
        self, module: str, arguments: list[str], restarts: str, wanted: Wanted, inherits: Sequence[int] = ()
    ) -> None:
        self._module, self._arguments, self._restarts = module, arguments, restarts
        self._inherits = inherits
        self._wanted = wanted
        self._process: Process | None = None
        self._ended: Counter[str] = Counter({restarts: 0})
        self._current: Counter[str] = Counter()

    @property
    def counters(self) -> Counter[str]:
        """Totals of all its processes, by name, up to the last word."""
        total = self._ended.copy()
        total.update(self._current)
        return total

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None

    @property
    def unread_bytes(self) -> int:
        """What has been ordered and not been read by it."""
        pipe = None if self._process is None else self._process.stdin
        return 0 if pipe is None else pipe.transport.get_write_buffer_size()

    async def run(self) -> None:
        """Keep it running until cancelled."""
        while True:
            try:
                await self._live()
            except OSError as error:
                _log.warning("cannot start a process module=%s error=%s", self._module, error)
            await asyncio.sleep(self.restart_after_s)
            self._ended[self._restarts] += 1

    def _hear(self, line: bytes) -> dict[str, int]:
        """Take in what it says; the counters that it names."""
        return msgspec.json.decode(line, type=dict[str, int])

    def _want(self, wanted: Wanted) -> None:
        """Give it these orders, unless it has them."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._write()

    def _orders(self) -> bytes:
        """The latest orders, as one line without its end."""
        return msgspec.json.encode(self._wanted)

    def _write(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(self._orders() + b"\n")

    async def _live(self) -> None:
        """Through the life of one process."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            *self._arguments,
            stdin=PIPE,
            stdout=PIPE,
            limit=LINE_LIMIT_BYTES,
            pass_fds=self._inherits,
        )
        self._process = process
        self._write()
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                self._current = Counter(self._hear(line))
            _log.warning("a process ended module=%s status=%s", self._module, await process.wait())
        finally:
            self._process = None
            self._ended.update(self._current)
            self._current = Counter()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
