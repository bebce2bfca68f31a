"""Operators' wishes on the bus, so that a manager that takes over knows them; the leader's file is what counts."""

import logging
from collections.abc import Mapping
from typing import Any

import nats.errors
import nats.js.errors
from nats.js.api import KeyValueConfig, StorageType

from cwdp.errors import ManagerError
from cwdp.shared.bus import Bus
from manager.wishes import WishTable

BUCKET = "cwdp-wishes"

_ERRORS = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError)

_log = logging.getLogger("cwdp.manager")


class WishMirror:
    """Copies tables to the bus, and back.

    Args:
        bus: where.
        tables: by the key under which each is kept.
    """

    def __init__(self, bus: Bus, tables: Mapping[str, WishTable[Any]]) -> None:
        self._bus = bus
        self._tables = tables
        self._sent: dict[str, int] = {}

    async def send(self) -> None:
        """Have on the bus what is in the tables; what fails is tried again with the next call."""
        revisions = {key: table.revision for key, table in self._tables.items()}
        client = self._bus.session
        if client is None or revisions == self._sent:
            return
        try:
            config = KeyValueConfig(bucket=BUCKET, history=1, storage=StorageType.FILE, direct=True)
            store = await client.jetstream().create_key_value(config)
            for key, table in self._tables.items():
                await store.put(key, table.dump())
            self._sent = revisions
        except _ERRORS as error:
            _log.debug("wishes are not on the bus yet error=%s", error)

    async def fetch(self) -> bool:
        """Take the tables from the bus, where another manager put them; False where that must be tried again."""
        client = self._bus.session
        if client is None:
            return False
        for key, table in self._tables.items():
            try:
                found = await client.jetstream().get_last_msg(
                    f"KV_{BUCKET}", f"$KV.{BUCKET}.{key}", direct=True
                )
                table.load(found.data or b"[]")
            except nats.js.errors.NotFoundError:
                continue
            except ManagerError as error:
                _log.warning("the wishes of the manager before are not taken over: %s", error.message)
            except _ERRORS as error:
                _log.debug("wishes cannot be read yet error=%s", error)
                return False
        return True
