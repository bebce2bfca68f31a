"""Uprobes as the agent has them: nothing where no cgroup is named; else a process that traces, and what it said."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from cwdp.agent.collectives.orders import NcclWord
from cwdp.agent.config import AgentConfig
from cwdp.agent.helper import Helper
from cwdp.agent.programs.programs import started
from cwdp.agent.uprobes.orders import STATES, UprobesOrder, UprobesWord
from cwdp.agent.uprobes.queuepairs import SeenQueuePairs
from cwdp.agent.verbs.orders import VerbsQp
from cwdp.agent.verbs.owners import Owners
from cwdp.agent.verbs.sources import sources

MOST_WAITING = 64
"""Words of calls that have not been taken."""

LOOK_S = 5.0

_log = logging.getLogger("cwdp.agent")


class HostUprobes(Helper[UprobesOrder]):
    """What programs of named cgroups are seen to do.

    Args:
        config: the agent's.

    Attributes:
        on_change: called when queue pairs have changed.
    """

    restart_after_s = 30.0
    """It compiles when it begins."""

    def __init__(self, config: AgentConfig) -> None:
        self._cgroups, self._nics = config.uprobes.cgroups, config.nics
        super().__init__(
            "cwdp.agent.uprobes.process", [], "uprobes_restarts", UprobesOrder(cgroups=self._cgroups)
        )
        self.on_change: Callable[[], None] = lambda: None
        self._seen, self._owners = SeenQueuePairs(), Owners()
        self._words: list[NcclWord] = []
        self._dropped = 0
        self._trouble = ""

    @property
    def counters(self) -> Counter[str]:
        """Totals by name; none where nothing is traced."""
        if not self._cgroups:
            return Counter()
        total = super().counters
        total["uprobes_words_dropped"] = self._dropped
        total["uprobes_queue_pairs_refused"] = self._seen.refused
        return total

    @property
    def queue_pairs(self) -> list[VerbsQp]:
        """Those that were seen to be connected, and that the kernel does not say are gone or others'."""
        return [qp for qp in self._seen.told() if self._owners.admit(qp)]

    def take_calls(self) -> list[NcclWord]:
        """Calls of NCCL since the last time."""
        taken, self._words = self._words, []
        return taken

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run for as long as the agent does."""
        if not self._cgroups:
            return []
        return [self.run(), self._owners.follow(lambda: bool(self._seen)), self._tidy()]

    def _hear(self, line: bytes) -> dict[str, int]:
        word = msgspec.json.decode(line, type=UprobesWord)
        for seen, owner in word.queue_pairs:
            self._seen.hear(seen, owner)
        if word.queue_pairs:
            self._owners.look_soon()
            self.on_change()
        if word.calls is not None:
            if len(self._words) < MOST_WAITING:
                self._words.append(word.calls)
            else:
                self._dropped += 1
        self._note(word.trouble)
        return {name: n for name, n in word.counters.items() if name.removeprefix("uprobes_") not in STATES}

    def _note(self, trouble: str) -> None:
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble:
            _log.warning("not all programs are traced that should be error=%s", trouble)
        else:
            _log.info("all programs are traced that should be")

    async def _tidy(self) -> None:
        """Forget queue pairs of programs that have ended, and know the GIDs that there are, for ever."""
        while True:
            self._seen.bury(started)
            with contextlib.suppress(OSError, ValueError):  # a device that goes while it is read
                self._seen.know(await asyncio.to_thread(sources, self._nics))
            await asyncio.sleep(LOOK_S)
