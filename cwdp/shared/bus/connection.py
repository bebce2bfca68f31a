"""The message bus as agent and manager see it: typed, and never in their way.

A `Bus` keeps one connection to NATS in the background and replaces it when it breaks, with capped
exponential backoff and jitter. Each connection is a session: subscriptions are made anew, documents
are written and read anew, so nothing depends on what an earlier connection had in its buffers.
Publishing never blocks and never raises; what cannot be sent is dropped and counted by reason.

Desired state lives in the JetStream bucket `cwdp-desired` (`cwdp.shared.bus.documents`). A watch is a plain
subscription to the bucket's subject plus a read at the start of each session (and now and then, should a message
have been lost), which costs the server nothing per host.
"""

import asyncio
import contextlib
import logging
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
import nats.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from cwdp.shared.bus import documents
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, Bucket
from cwdp.shared.bus.documents import DocumentWriter, Trouble
from cwdp.shared.bus.messages import DESIRED_BUCKET, Desired, decode, encode, token
from cwdp.shared.tasks import end, first_end

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
CONNECT_TIMEOUT_S = 2
PING_INTERVAL_S = 5
SEND_QUEUE_MESSAGES = 2048
MANY_AT_ONCE = 64
REREAD_INTERVAL_S = 60.0
JETSTREAM_RETRY_S = 0.5

COUNTERS = (
    "published",
    "received",
    "connected",
    "connect_failed",
    "dropped_disconnected",
    "dropped_too_large",
    "dropped_slow",
    "received_bad",
    "received_slow",
    "handler_failed",
    "server_error",
)

_T = TypeVar("_T", bound=Struct)
_log = logging.getLogger("cwdp.bus")


class _Subscription(Generic[_T]):
    """Decodes what arrives on one subject and hands it on; never lets an error out."""

    def __init__(
        self, subject: str, kind: type[_T], handler: Callable[[_T], None], counters: Counter[str]
    ) -> None:
        self.subject = subject
        self._kind = kind
        self._handler = handler
        self._counters = counters

    async def on_message(self, message: Msg) -> None:
        """What nats-py calls for each message."""
        self.deliver(message.data)

    def deliver(self, data: bytes) -> None:
        """Hand one message to the handler, or count why not."""
        try:
            value = decode(self._kind, data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._counters["received_bad"] += 1
            _log.debug("dropped a bad message subject=%s error=%s", self.subject, error)
            return
        self._counters["received"] += 1
        self.hand_on(value)

    def hand_on(self, value: _T) -> None:
        """Give the handler something."""
        try:
            self._handler(value)
        except Exception:  # noqa: BLE001 - one bad message must not end the subscription
            self._counters["handler_failed"] += 1
            _log.exception("handler failed subject=%s", self.subject)


class _Watch(_Subscription[Desired]):
    """A subscription to one host's document that skips what it delivered already."""

    def __init__(self, host: str, handler: Callable[[Desired], None], counters: Counter[str]) -> None:
        self._bucket = Bucket(DESIRED_BUCKET)
        super().__init__(self._bucket.subject(token(host)), Desired, handler, counters)
        self._host = host
        self._last: Desired | None = None
        self._is_due = asyncio.Event()

    async def read(self, client: Client) -> None:
        """Deliver the stored document at the start of a session, now and then, and when one has come in parts."""
        retry_s = JETSTREAM_RETRY_S
        while True:
            self._is_due.clear()
            pause_s = REREAD_INTERVAL_S
            try:
                stored = await documents.read(client, self._bucket, self._host)
                if stored is not None:
                    self.hand_on(stored)
            except JETSTREAM_ERRORS:
                pause_s, retry_s = retry_s, min(2 * retry_s, REREAD_INTERVAL_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), pause_s)

    def hand_on(self, value: Desired) -> None:
        """Hand on a document that differs from the last one; one in parts once these have been read."""
        if value.parts:
            self._is_due.set()
        elif value != self._last:
            self._last = value
            super().hand_on(value)


class Bus:
    """One process's connection to the bus.

    Set up subscriptions and watches, then `start`; the process may publish from then on, connected or not.

    Args:
        url: where the bus is.
        name: what its server shows for this process.
        on_change: called with True when a session is ready and with False when it has ended.
        confirm: asked before a document is written where somebody else has written one; see `DocumentWriter`.
        on_trouble: told of documents that cannot be written.

    Attributes:
        counters: totals by name (`COUNTERS`).
        documents: those that this process keeps on the bus.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        on_change: Callable[[bool], None] | None = None,
        confirm: Callable[[], Awaitable[bool]] | None = None,
        on_trouble: Trouble | None = None,
    ) -> None:
        self.url = url
        self._shown_url = re.sub(r"//[^@/]*@", "//", url)
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._name = name
        self._on_change = on_change
        self._subscriptions: list[_Subscription[Any]] = []
        self._watches: list[_Watch] = []
        self.documents = DocumentWriter(confirm or _nobody_else, on_trouble or _tell_nobody)
        self._queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(SEND_QUEUE_MESSAGES)
        self._has_room = asyncio.Event()
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._leaving = False

    @property
    def connected(self) -> bool:
        """Whether a session is ready now."""
        return self._client is not None

    @property
    def session(self) -> Client | None:
        """The connection that is ready now, for what only one side of the bus needs."""
        return self._client

    def subscribe(self, subject: str, kind: type[_T], handler: Callable[[_T], None]) -> None:
        """Call `handler` for each message on `subject`; before `start`."""
        assert self._task is None
        self._subscriptions.append(_Subscription(subject, kind, handler, self.counters))

    def watch(self, host: str, handler: Callable[[Desired], None]) -> None:
        """Call `handler` with a host's document, now and at each change; before `start`.

        An older document may follow a newer one while connections change: versions order them.
        """
        assert self._task is None
        self._watches.append(_Watch(host, handler, self.counters))

    def start(self) -> None:
        """Connect in the background, for ever, until `close`."""
        assert self._task is None
        self._task = asyncio.create_task(self._run(), name=f"bus {self._name}")

    async def close(self) -> None:
        """Send what is queued (for up to a second) and leave the bus."""
        if self._task is None:
            return
        if self._client is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._queue.join(), 1.0)
        self._leaving = True
        await end(self._task)

    def publish(self, subject: str, message: Struct) -> bool:
        """Queue a message; False when it was dropped and counted."""
        reason = self._why_not()
        if reason is None:
            data = encode(message)
            if self._client is not None and len(data) <= self._client.max_payload:
                self._queue.put_nowait((subject, data))
                return True
            reason = "dropped_too_large"
        self.counters[reason] += 1
        return False

    async def publish_each(self, messages: Iterable[tuple[str, Struct]]) -> None:
        """Publish many messages, as fast as they can be sent; others are sent, and the loop turns, meanwhile."""
        for number, (subject, message) in enumerate(messages, start=1):
            self.publish(subject, message)
            if self._queue.qsize() > self._queue.maxsize // 2:
                self._has_room.clear()
                await self._has_room.wait()
            elif number % MANY_AT_ONCE == 0:
                await asyncio.sleep(0)

    def put(self, document: Desired) -> None:
        """Keep a host's document on the bus; written when connected, and anew in each session."""
        self.documents.put(document)

    def _why_not(self) -> str | None:
        if self._client is None:
            return "dropped_disconnected"
        if self._queue.full():
            return "dropped_slow"
        return None

    async def ended(self) -> None:
        """Wait for the end of what runs in the background, which only `close` should bring about.

        Raises:
            Exception: what nobody has foreseen.
        """
        assert self._task is not None
        await asyncio.wait([self._task])
        self._task.result()

    async def _run(self) -> None:
        failures = 0
        while True:
            if await self._session():
                failures = 0
            delay_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2**failures)
            failures = min(failures + 1, 16)
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret

    async def _session(self) -> bool:
        """Live through one connection, from dialling to its end; whether it was ever ready."""
        client, closed = Client(), asyncio.Event()
        ready = False
        try:
            await self._dial(client, closed)
            ready = True
            await self._serve(client, closed)
        except JETSTREAM_ERRORS as error:
            self.counters["connect_failed"] += 1
            _log.debug("no connection url=%s error=%s", self._shown_url, error)
        finally:
            await self._hang_up(client, was_ready=ready)
        return ready

    async def _dial(self, client: Client, closed: asyncio.Event) -> None:
        async def on_closed() -> None:
            closed.set()

        await client.connect(
            self.url,
            name=self._name,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            error_cb=self._on_error,
            closed_cb=on_closed,
        )
        subscriptions: list[_Subscription[Any]] = [*self._subscriptions, *self._watches]
        for subscription in subscriptions:
            await client.subscribe(subscription.subject, cb=subscription.on_message)
        await client.flush(CONNECT_TIMEOUT_S)

    async def _serve(self, client: Client, closed: asyncio.Event) -> None:
        self._client = client
        self.counters["connected"] += 1
        _log.info("connected to the bus url=%s", self._shown_url)
        self._tell(connected=True)
        await first_end(
            closed.wait(),
            self._send(client),
            self.documents.run(client),
            *(watch.read(client) for watch in self._watches),
        )

    async def _hang_up(self, client: Client, *, was_ready: bool) -> None:
        self._client = None
        while not self._queue.empty():
            self._queue.get_nowait()
            self._queue.task_done()
            self.counters["dropped_disconnected"] += 1
        self._has_room.set()
        with contextlib.suppress(*JETSTREAM_ERRORS):
            await client.close()
        if was_ready:
            if not self._leaving:
                _log.warning("lost the bus url=%s", self._shown_url)
            self._tell(connected=False)

    def _tell(self, *, connected: bool) -> None:
        if self._on_change is not None:
            self._on_change(connected)

    async def _on_error(self, error: Exception) -> None:
        slow = isinstance(error, nats.errors.SlowConsumerError)
        self.counters["received_slow" if slow else "server_error"] += 1
        _log.debug("bus error=%s", error or type(error).__name__)

    async def _send(self, client: Client) -> None:
        while True:
            subject, data = await self._queue.get()
            try:
                await client.publish(subject, data)
                self.counters["published"] += 1
            except nats.errors.MaxPayloadError:
                self.counters["dropped_too_large"] += 1
            finally:
                self._queue.task_done()
                if self._queue.qsize() <= self._queue.maxsize // 2:
                    self._has_room.set()


async def _nobody_else() -> bool:
    """What a process that shares its documents with no other is certain of."""
    return True


def _tell_nobody(_host: str, _others: int, _why: str) -> None:
    """The log says it."""
