"""Keeps floods of hosts away from the manager, and names these hosts."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

import nkeys
from msgspec import Struct

from cwdp.shared.bus.packing import MOST_BYTES
from cwdp.shared.bus.sealing import OverLimitError
from cwdp.shared.bus.subjects import token
from cwdp.shared.tasks import every
from manager.bus.floods import Floods
from manager.duties import CountedSeal, Duties

LOOK_S = 1.0

_Message = TypeVar("_Message", bound=Struct)


class LimitedSeal(CountedSeal):
    """Drops what is over a host's limits, before it is unpacked.

    Args:
        key: the fleet's control key.
        duties: where the time is counted.
        floods: keeps account of hosts.
    """

    def __init__(self, key: nkeys.KeyPair, duties: Duties, floods: Floods) -> None:
        super().__init__(key, duties)
        self._floods = floods

    def decode(self, subject: str, of: type[_Message], data: bytes) -> _Message:
        """As every leader's.

        Raises:
            msgspec.DecodeError: the bytes are no such message.
            NotTheirsError: they are, of somebody else.
            OverLimitError: its host sends too much.
        """
        if not self._floods.admits(subject, len(data), time.monotonic()):
            raise OverLimitError("its host sends more than is taken in")
        return super().decode(subject, of, data)

    def _unpacked(self, subject: str, data: bytes) -> bytes:
        """What cannot be unpacked counts as the most that it may have cost."""
        size_bytes = MOST_BYTES
        try:
            message = super()._unpacked(subject, data)
            size_bytes = len(message)
        finally:
            self._floods.unpacked(subject, size_bytes)
        return message


async def name_floods(
    floods: Floods, hosts: Collection[str], note: Callable[[str, str, str], object]
) -> None:
    """Note which hosts begin to flood, and which do no more, for ever.

    Args:
        floods: keeps account of them.
        hosts: those that are there, by name.
        note: told of each: its host, its kind, and its detail.
    """

    def look() -> None:
        for told in floods.step(time.monotonic()):
            name = next((host for host in hosts if token(host) == told.host), told.host)
            note(name, told.kind, told.detail)

    await every(LOOK_S, look)
