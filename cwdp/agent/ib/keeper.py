"""Keeps the process that reads InfiniBand (`cwdp.agent.ib.process`) running, and says what it reads to the manager."""

import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from cwdp.agent.config import AgentConfig
from cwdp.agent.helper import Helper
from cwdp.agent.ib.orders import IbOrder, IbWord
from cwdp.shared.bus.messages import EventName, FromAgent

_log = logging.getLogger("cwdp.agent")


class HostIb(Helper[IbOrder]):
    """The subnet as the agent sees it; nothing where it is not to be read.

    Args:
        config: the agent's.
        say: publishes a message of a kind.
        tell: an event, by its kind, NIC and detail.
    """

    restart_after_s = 5.0

    def __init__(
        self,
        config: AgentConfig,
        say: Callable[[str, FromAgent], Any],
        tell: Callable[[EventName, str | None, str], None],
    ) -> None:
        self._reads = config.ib.read
        order = IbOrder(host=config.host, device=config.ib.device, port=config.ib.port)
        super().__init__("cwdp.agent.ib.process", [], "ib_restarts", order)
        self._say, self._tell = say, tell
        self._told: tuple[str, list[str]] | None = None

    @property
    def counters(self) -> Counter[str]:
        """Totals by name; none where nothing is read."""
        return super().counters if self._reads else Counter()

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run for as long as the agent does."""
        return [self.run()] if self._reads else []

    def tell_again(self) -> None:
        """Have the subnet told whole: the manager may not know it."""
        self._want(msgspec.structs.replace(self._wanted, tell=self._wanted.tell + 1))

    def _hear(self, line: bytes) -> dict[str, int]:
        word = msgspec.json.decode(line, type=IbWord)
        for kind, message in (
            ("ib-subnet", word.subnet),
            ("ib-tables", word.tables),
            ("ib-growth", word.growth),
        ):
            if message is not None:
                self._say(kind, message)
        self._note(word)
        return word.counters

    def _note(self, word: IbWord) -> None:
        """Tell what is news, once."""
        told = word.trouble, word.doubts
        if told == self._told:
            return
        before, self._told = self._told, told
        if word.trouble:
            self._tell("ib_failed", None, word.trouble)
            return
        if before is None or before[0]:
            self._tell("ib_opened", None, "the subnet is read")
        for doubt in word.doubts:
            if before is None or doubt not in before[1]:
                self._tell("ib_doubted", None, doubt)
