"""Key-value buckets of JetStream, whose keys are replaced by compare-and-set only.

With several copies nats-server 2.9.10 compares a key's revision when a message comes in, not when it is stored: of writers
that come within the same milliseconds more than one may succeed. A `OneKey` has one copy and is exact.
"""

import secrets

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import (
    DiscardPolicy,
    Header,
    KeyValueConfig,
    Placement,
    RePublish,
    StorageType,
    StreamConfig,
)
from nats.js.kv import KeyValue

JETSTREAM_ERRORS = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError)
"""What may come of asking for anything; to be tried again."""

Conflict = nats.js.errors.KeyWrongLastSequenceError
"""Somebody else has replaced a key since it was read."""


NO_KEY = "-"
"""Nothing is kept under it."""

KNOWN_S = 0.5
"""So soon a bucket that is there answers, mostly."""

WRONG_LAST = (10071, 10164)
"""What the server says where the last revision is another."""

IN_USE = 10058
"""What the server says of a stream that is there with other settings, as with more copies."""


COPIES = 3

ONE_KEY_BYTES = 1 << 16
"""More than one key takes. It makes nats-server 2.9.10 write blocks of 32 kB: it keeps in memory the block that is written to,
with all that was replaced, and a block is 4 MB where nothing is said."""


def copies_on(client: Client) -> int:
    """How many copies of a stream a bus is to keep: three where the server of a connection is one of several.

    From its beginning: nats-server 2.9.10 has lost messages that it had acknowledged, when servers were killed, of streams
    that had been given more copies later.
    """
    return COPIES if is_clustered(client) else 1


def is_clustered(client: Client) -> bool:
    """Whether the server of a connection is one of several."""
    return bool(client._server_info.get("cluster"))  # noqa: SLF001 - what the server said of itself


def maker() -> str:
    """The description of a stream that is to be made, another one each time.

    Of two that are made at once and are alike in all else nats-server 2.9.10 takes both: it keeps in mind the second's
    subject by which copies catch up, and listens on the first's. A server that comes back when the log of the copies has
    been cut meanwhile asks in vain, for ever, and keeps others from leading. Where they differ in this, that is an
    update, and all go by the second's.
    """
    return f"made by {secrets.token_hex(8)}"


def stream_of(bucket: str) -> str:
    """The stream that a bucket is."""
    return f"KV_{bucket}"


class Bucket:
    """One bucket; kept on disk, so that its revisions only ever rise.

    Args:
        name: of the bucket.
        republish: where the server publishes again what is written.
        max_bytes: that it may hold. All of a bus together leave room: a server that is full takes nothing more of any
            bucket, so that nobody could go on leading.
    """

    def __init__(self, name: str, *, max_bytes: int, republish: RePublish | None = None) -> None:
        self._name, self._stream, self._prefix = name, stream_of(name), f"$KV.{name}."
        self._config = KeyValueConfig(
            bucket=name,
            history=1,
            storage=StorageType.FILE,
            direct=True,
            republish=republish,
            max_bytes=max_bytes,
        )
        self._opened: tuple[Client, KeyValue] | None = None

    def subject(self, key: str) -> str:
        """Where the bus tells of a key's changes."""
        return self._prefix + key

    async def read(self, client: Client, key: str, *, latest: bool = False) -> tuple[int, bytes]:
        """A key's revision and what it holds; 0 and nothing where there is none.

        By direct get, which any copy answers, also while nobody leads them; one that catches up may lag by many seconds.
        Asked through the JetStream API while the bucket is being made, nats-server 2.9.10 crashes (a nil store in
        `jsMsgGetRequest`).

        Args:
            client: by which connection.
            key: which.
            latest: ask who leads the copies; only of a bucket of which a key has been replaced, or has not for a `Conflict`.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`; there may be no bucket.
        """
        try:
            found = await client.jetstream().get_last_msg(self._stream, self.subject(key), direct=not latest)
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

    async def keys(self, client: Client) -> list[str]:
        """All keys that hold something.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        info = await client.jsm().stream_info(self._stream, subjects_filter=self.subject(">"))
        return [subject.removeprefix(self._prefix) for subject in info.state.subjects or ()]

    async def purge(self, client: Client, keys: str) -> None:
        """Have keys gone, without a trace of them, whatever they hold.

        Args:
            client: by which connection.
            keys: one, or several by wildcards.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        await client.jsm().purge_stream(self._stream, subject=self.subject(keys))

    async def open(self, client: Client) -> KeyValue:
        """Make the bucket unless it is there; once a session.

        That it is there any of its copies tells, where none of them leads.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        if self._opened is None or self._opened[0] is not client:
            if not await self.is_there(client):
                await self._make(client)
            bucket = KeyValue(self._name, self._stream, self._prefix, client.jetstream(), direct=True)
            self._opened = client, bucket
        return self._opened[1]

    async def is_there(self, client: Client) -> bool:
        """Whether servers know of it; where nobody leads who would say so, whether a copy answers.

        What is read of a bucket that is not there is answered by nobody: it takes until the time is up.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        try:
            await client.jsm(timeout=KNOWN_S).stream_info(self._stream)
        except nats.js.errors.NotFoundError:
            return False
        except (nats.errors.Error, TimeoutError):
            return await self._answers(client)
        return True

    async def _answers(self, client: Client) -> bool:
        try:
            await client.jetstream(timeout=KNOWN_S).get_last_msg(
                self._stream, self.subject(NO_KEY), direct=True
            )
        except nats.js.errors.NotFoundError:
            return True
        except (nats.errors.NoRespondersError, TimeoutError):
            return False
        return True

    async def _make(self, client: Client) -> None:
        config = self._config.evolve(description=maker())
        try:
            await client.jetstream().create_key_value(config, replicas=copies_on(client))
        except nats.js.errors.APIError as error:
            if error.err_code != IN_USE:
                raise

    def close(self) -> None:
        """Make the bucket anew, if need be, when it is used next: it may have been taken away."""
        self._opened = None


class OneKey:
    """A bucket of one key, which is replaced by one writer only, however many try at the same time.

    One server keeps it, and no copies: it is read and replaced while that server runs, whoever leads the others.

    Args:
        name: of the bucket.

    Attributes:
        stream: that it is.
    """

    def __init__(self, name: str) -> None:
        self._name, self.stream = name, stream_of(name)

    async def make(self, client: Client, server: str | None = None) -> None:
        """Make it unless it is there; on the server that has this tag, if one is given.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`; `APIError` where no server has the tag.
        """
        config = StreamConfig(
            name=self.stream,
            description=maker(),
            subjects=[self._subject(">")],
            num_replicas=1,
            placement=Placement(tags=[server]) if server else None,
            storage=StorageType.FILE,
            max_msgs_per_subject=1,
            max_bytes=ONE_KEY_BYTES,
            discard=DiscardPolicy.NEW,
            deny_delete=True,
            allow_direct=True,
        )
        try:
            await client.jetstream().add_stream(config)
        except nats.js.errors.APIError as error:
            if error.err_code != IN_USE:
                raise

    async def read(self, client: Client, key: str) -> tuple[int, bytes]:
        """Its revision and what it holds; 0 and nothing where it never held anything.

        Where the key is gone, as from a bucket whose keys lapse, the revision is the bucket's last.

        Raises:
            nats.errors.TimeoutError: there is a key now.
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`; it may not be there.
        """
        try:
            found = await client.jetstream().get_last_msg(self.stream, self._subject(key), direct=True)
        except nats.js.errors.NotFoundError:
            state = (await client.jsm().stream_info(self.stream)).state
            if state.messages:
                raise nats.errors.TimeoutError from None
            return state.last_seq, b""
        return found.seq or 0, found.data or b""

    async def replace(self, client: Client, key: str, data: bytes, *, revision: int) -> int:
        """Have `data` in place of what it held at `revision`; the new revision.

        Raises:
            Conflict: it holds something else by now.
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`; it may have been replaced or not.
        """
        headers = {Header.EXPECTED_LAST_SEQUENCE.value: str(revision)}
        try:
            done = await client.jetstream().publish(self._subject(key), data, headers=headers)
        except nats.js.errors.APIError as error:
            if error.err_code in WRONG_LAST:
                raise Conflict(description=error.description) from error
            raise
        return done.seq

    def _subject(self, key: str) -> str:
        return f"$KV.{self._name}.{key}"
