"""Collectives as the agent has them: what a process that reads rings says, where it is configured, and what uprobes have seen."""

import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from cwdp.agent.collectives.orders import STATES, NcclOrder, NcclWord
from cwdp.agent.helper import Helper
from cwdp.agent.programs.listening import listen_soon
from cwdp.nccl.ring import SOCKET
from cwdp.shared.bus.collectives import CALL_ROW, CHUNK_ROW, CollectiveReport
from cwdp.shared.bus.packing import row_bytes, rows_of

MOST_WAITING = 64
"""Words that have not been said yet."""


class NcclConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Programs that have loaded the profiler plug-in for NCCL and RCCL are read.

    Attributes:
        socket: by which they connect.
    """

    socket: str = SOCKET


class NcclKeeper(Helper[NcclOrder]):
    """The process as the agent sees it; `words` are those that have not been taken."""

    def __init__(self, config: NcclConfig) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inherits = (self._listener.fileno(),)
        super().__init__(
            "cwdp.agent.collectives.process", [str(inherits[0])], "nccl_restarts", NcclOrder(), inherits
        )
        self._socket = Path(config.socket)
        self.words: list[NcclWord] = []
        self.own: Counter[str] = Counter(nccl_unusable=0, nccl_words_dropped=0, nccl_unsynced=0)

    @property
    def counters(self) -> Counter[str]:
        """Totals of all its processes and its own, by name."""
        total = super().counters
        total.update(self.own)
        return total

    async def run(self) -> None:
        """Keep it running until cancelled, once programs can connect; once only."""
        try:
            await listen_soon(self._listener, self._socket, self.own, "nccl_unusable")
            await super().run()
        finally:
            self.close()

    def close(self) -> None:
        """Give back its socket."""
        self._listener.close()

    def _hear(self, line: bytes) -> dict[str, int]:
        word = msgspec.json.decode(line, type=NcclWord)
        if word.comms and len(self.words) < MOST_WAITING:
            self.words.append(word)
        elif word.comms:
            self.own["nccl_words_dropped"] += 1
        return {f"nccl_{name}": n for name, n in word.counters.items() if name not in STATES}


class Settings(Protocol):
    """See `cwdp.agent.config.AgentConfig`."""

    @property
    def host(self) -> str:
        """The host's name."""

    @property
    def nccl(self) -> NcclConfig | None:
        """None for nothing."""


class HostCollectives:
    """What the programs of a host do.

    Args:
        config: the agent's.
        local_ns: local time now.
        offset_ns: the timeline less local time now; None while that is not known.
        take_seen: what uprobes have seen since the last time.
    """

    def __init__(
        self,
        config: Settings,
        local_ns: Callable[[], int],
        offset_ns: Callable[[], int | None],
        take_seen: Callable[[], list[NcclWord]] = list,
    ) -> None:
        self._host, self._local_ns, self._offset_ns = config.host, local_ns, offset_ns
        self._take_seen = take_seen
        self._counters: Counter[str] = Counter()
        self.keeper = None if config.nccl is None else NcclKeeper(config.nccl)

    @property
    def counters(self) -> Counter[str]:
        """Totals by name."""
        total = self._counters.copy()
        total.update({} if self.keeper is None else self.keeper.counters)
        return total

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run for as long as the agent does."""
        return [] if self.keeper is None else [self.keeper.run()]

    def tell(self, say: Callable[[str, CollectiveReport], object]) -> None:
        """Say what is over since the last time."""
        for report in self.reports():
            say("collective", report)

    def reports(self) -> Iterator[CollectiveReport]:
        """What is over since the last time, on the timeline; what was while that is not known is lost."""
        words = self._take_seen()
        if self.keeper is not None:
            words, self.keeper.words = words + self.keeper.words, []
        if not words:
            return
        offset_ns = self._offset_ns()
        if offset_ns is None:
            self._counters["nccl_unsynced"] += len(words)
            return
        ahead_ns = offset_ns + self._local_ns() - time.monotonic_ns()
        for word in words:
            yield CollectiveReport(
                host=self._host,
                comms=word.comms,
                calls=_moved(word.calls, CALL_ROW, ("enqueued_ns", "start_ns", "end_ns"), ahead_ns),
                peers=word.peers,
                chunks=_moved(word.chunks, CHUNK_ROW, ("begin_ns",), ahead_ns),
            )


def _moved(data: bytes, dtype: np.dtype[np.void], times: tuple[str, ...], ahead_ns: int) -> bytes:
    """Rows with their times on the timeline; those that are not known stay 0."""
    rows = rows_of(data, dtype)
    for name in times:
        rows[name][rows[name] != 0] += ahead_ns
    return row_bytes(rows)
