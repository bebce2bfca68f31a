"""Key-value buckets of JetStream, whose keys are replaced by compare-and-set only."""

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StorageType
from nats.js.kv import KeyValue

JETSTREAM_ERRORS = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError)
"""What may come of asking for anything; to be tried again."""

Conflict = nats.js.errors.KeyWrongLastSequenceError
"""Somebody else has replaced a key since it was read."""


class Bucket:
    """One bucket; kept on disk, so that its revisions only ever rise.

    Args:
        name: of the bucket.
        ttl_s: after so long without being written a key is gone; None keeps it.
    """

    def __init__(self, name: str, *, ttl_s: float | None = None) -> None:
        self._stream, self._prefix = f"KV_{name}", f"$KV.{name}."
        self._config = KeyValueConfig(
            bucket=name, history=1, ttl=ttl_s, storage=StorageType.FILE, direct=True
        )
        self._opened: tuple[Client, KeyValue] | None = None

    def subject(self, key: str) -> str:
        """Where the bus tells of a key's changes."""
        return self._prefix + key

    async def read(self, client: Client, key: str) -> tuple[int, bytes]:
        """A key's revision and what it holds; 0 and nothing where there is none.

        By direct get, which the stream itself answers: asked through the JetStream API while the bucket is being
        made, nats-server 2.9.10 crashes (a nil store in `jsMsgGetRequest`).

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`; there may be no bucket.
        """
        try:
            found = await client.jetstream().get_last_msg(self._stream, self.subject(key), direct=True)
        except nats.js.errors.NotFoundError:
            return 0, b""
        return found.seq or 0, found.data or b""

    async def replace(self, client: Client, key: str, data: bytes, *, revision: int) -> int:
        """Have `data` in place of what the key held at `revision`, 0 for nothing; the new revision.

        Raises:
            Conflict: it holds something else by now.
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`; it may have been replaced or not.
        """
        store = await self.open(client)
        return await store.update(key, data, last=revision)

    async def delete(self, client: Client, key: str, *, revision: int) -> None:
        """Empty a key.

        Raises:
            Conflict: it holds something else than at `revision`.
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        store = await self.open(client)
        await store.delete(key, last=revision)

    async def open(self, client: Client) -> KeyValue:
        """Make the bucket unless it is there; once a session.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        if self._opened is None or self._opened[0] is not client:
            self._opened = client, await client.jetstream().create_key_value(self._config)
        return self._opened[1]

    def close(self) -> None:
        """Make the bucket anew, if need be, when it is used next: it may have been taken away."""
        self._opened = None
