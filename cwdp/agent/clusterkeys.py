"""Keeps the cluster's probe keys in this host's file: asks the leader for them, as it changes them now and then."""

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path

import msgspec

from cwdp.errors import CwdpError, IdentityError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.subjects import up
from cwdp.shared.identity.probe_keys import (
    KEYS,
    KeyFile,
    KeysAnswer,
    KeysRequest,
    write_keys,
)
from cwdp.shared.tasks import set_within

FIRST_INTERVAL_S, NO_ANSWER_S = 0.5, 10.0

_log = logging.getLogger("cwdp.agent")


class ClusterKeys:
    """This host's part in keeping them.

    Args:
        bus: this host's.
        host, pod: who it is.
        path: the file.
    """

    def __init__(self, bus: Bus, host: str, pod: str, path: Path) -> None:
        self._bus, self._host, self._pod, self._path = bus, host, pod, path
        self._is_due = asyncio.Event()

    async def ask(self, have: KeyFile | None) -> float | None:
        """See to it that the file holds what it should; after how many seconds to ask again, None where nobody answers.

        Raises:
            IdentityError: it cannot be written.
        """
        question = KeysRequest(host=self._host, have=have.fingerprint if have else "")
        try:
            answer = await self._bus.ask(up(self._pod, self._host, KEYS), KEYS, question, KeysAnswer)
        except (*JETSTREAM_ERRORS, msgspec.DecodeError) as error:
            _log.debug("no leader tells the cluster's keys error=%s", error)
            return None
        if answer.keys is not None:
            await asyncio.to_thread(write_keys, self._path, answer.keys)
        return answer.again_s

    async def first(self) -> None:
        """Ask until a leader answers."""
        again_s = await self.ask(None)
        while again_s is None:
            await asyncio.sleep(FIRST_INTERVAL_S)
            again_s = await self.ask(None)

    def ask_soon(self) -> None:
        """They may have changed meanwhile: whoever comes back to the bus has missed what was told."""
        self._is_due.set()

    async def run(self, have: Callable[[], KeyFile], tell: Callable[[CwdpError], None]) -> None:
        """Ask again and again, for ever.

        Args:
            have: the keys in use.
            tell: is told why they cannot be kept.
        """
        again_s = FIRST_INTERVAL_S
        while True:
            if await set_within(self._is_due, _about(again_s)):
                await asyncio.sleep(_about(FIRST_INTERVAL_S))
            self._is_due.clear()
            again_s = NO_ANSWER_S
            try:
                again_s = await self.ask(have()) or NO_ANSWER_S
            except IdentityError as error:
                tell(error)


def _about(seconds: float) -> float:
    """Not all hosts at once."""
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, not a secret
