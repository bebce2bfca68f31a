"""The message bus as agent and manager see it: typed, and never in their way.

A `Bus` keeps one connection to NATS in the background and replaces it when it breaks, with capped
exponential backoff and jitter. Each connection is a session: subscriptions are made anew, documents
are written and read anew, so nothing depends on what an earlier connection had in its buffers.
Publishing never blocks and never raises; what cannot be sent is dropped and counted by reason.

Each process shows its credential (`cwdp.shared.identity`), over TLS to servers of the fleet only, and takes nothing but
what its seal lets through (`cwdp.shared.bus.sealing`).

Desired state lives in the JetStream bucket `cwdp-desired` (`cwdp.shared.bus.desired.documents`). A watch is a plain
subscription to where the bucket publishes a host's document again, plus a read at the start of each session (and now
and then, should a message have been lost), which costs the server nothing per host.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import nats.errors
from msgspec import Struct
from nats.aio.client import Client

from cwdp.errors import IdentityError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.desired.documents import DocumentWriter, Trouble
from cwdp.shared.bus.messages import Desired
from cwdp.shared.bus.packing import TooLargeError
from cwdp.shared.bus.sealing import Seal
from cwdp.shared.bus.servers import Patience, Servers, shown
from cwdp.shared.bus.session import RefusedError, dial, hang_up, until_closed
from cwdp.shared.bus.subjects import kind_of
from cwdp.shared.bus.subscriptions import Service, Subscription, Watch
from cwdp.shared.identity.credential import Credential
from cwdp.shared.identity.untrusted import untrusted
from cwdp.shared.tasks import end, first_end

SEND_QUEUE_MESSAGES = 2048
MANY_AT_ONCE = 64
ANSWER_S = 5.0

COUNTERS = (
    "published",
    "received",
    "connected",
    "connect_failed",
    "connect_refused",
    "dropped_disconnected",
    "dropped_too_large",
    "dropped_slow",
    "received_bad",
    "received_not_theirs",
    "received_rate_limited",
    "received_slow",
    "handler_failed",
    "server_error",
)

_T = TypeVar("_T", bound=Struct)
_log = logging.getLogger("cwdp.bus")


class Bus:
    """One process's connection to the bus.

    Set up subscriptions and watches, then `start`; the process may publish from then on, connected or not.

    Args:
        url: where the bus is; of several servers as `cwdp.shared.bus.servers` reads them.
        credential: who this process is.
        seal: how it vouches for what it sends, and makes sure of what it hears.
        pod: in which the hosts are whose documents it keeps or watches.
        name: what its server shows for this process.
        on_change: called with True when a session is ready and with False when it has ended.
        confirm: asked before a document is written where somebody else has written one; see `DocumentWriter`.
        on_trouble: told of documents that cannot be written.
        hears_much: whether so much comes that answers to pings may have to wait behind it.

    Attributes:
        pod: that it was given.
        counters: totals by name (`COUNTERS`).
        documents: those that this process keeps on the bus.
    """

    def __init__(
        self,
        url: str,
        credential: Credential,
        seal: Seal,
        *,
        pod: str,
        name: str,
        on_change: Callable[[bool], None] | None = None,
        confirm: Callable[[], Awaitable[bool]] | None = None,
        on_trouble: Trouble | None = None,
        hears_much: bool = False,
    ) -> None:
        self.url = url
        self._servers = Servers(url)
        self._patience = Patience(len(self._servers))
        self._shown_url = shown(url)
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._name = name
        self.pod = pod
        self._credential, self._seal = credential, seal
        self._told_refusal = ""
        self._renewed = asyncio.Event()
        self._on_change, self._hears_much = on_change, hears_much
        self._subscriptions: list[Subscription[Any]] = []
        self._watches: list[Watch] = []
        self.documents = DocumentWriter(
            pod, seal, confirm=confirm or _nobody_else, on_trouble=on_trouble or _tell_nobody
        )
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
        self._subscriptions.append(Subscription(subject, kind, handler, self._seal, self.counters))

    def answer(
        self,
        subject: str,
        answer_kind: str,
        kind: type[_T],
        answer: Callable[[_T], Awaitable[Struct | None]],
    ) -> None:
        """Answer each question on `subject`, with a message of a kind or not at all; before `start`."""
        assert self._task is None
        self._subscriptions.append(
            Service(subject, answer_kind, kind, answer, seal=self._seal, counters=self.counters)
        )

    async def ask(self, subject: str, answer_kind: str, question: Struct, of: type[_T]) -> _T:
        """What a leader answers.

        Raises:
            msgspec.DecodeError: no leader has signed the answer.
            nats.errors.Error, OSError, TimeoutError: nobody answers, or there is no connection.
        """
        if self._client is None:
            raise TimeoutError("there is no connection")
        data = self._seal.encode(kind_of(subject), question)
        answer = await self._client.request(subject, data, timeout=ANSWER_S)
        return self._seal.opened(answer_kind, of, answer.data)

    def use(self, credential: Credential) -> None:
        """Go on with another credential: the new connection is ready before the present one is left."""
        self._credential = credential
        self._renewed.set()

    def watch(self, host: str, handler: Callable[[Desired], None]) -> None:
        """Call `handler` with a host's document, now and at each change; before `start`.

        An older document may follow a newer one while connections change: versions order them.
        """
        assert self._task is None
        self._watches.append(Watch(self.pod, host, handler, self._seal, self.counters))

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
                async with asyncio.timeout(1.0):
                    await self._queue.join()
        self._leaving = True
        await end(self._task)

    def publish(self, subject: str, message: Struct) -> bool:
        """Queue a message; False when it was dropped and counted."""
        reason = self._why_not()
        if reason is None:
            reason = "dropped_too_large"
            with contextlib.suppress(TooLargeError):
                data = self._seal.encode(kind_of(subject), message)
                if self._client is not None and len(data) <= self._client.max_payload:
                    self._queue.put_nowait((subject, data))
                    return True
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
        while True:
            if await self._session():
                self._patience.succeeded()
            await asyncio.sleep(self._patience.failed())

    async def _session(self) -> bool:
        """Live on the bus until it is lost; whether it was ever ready."""
        client, closed = await self._attempt()
        if client is None:
            return False
        self.counters["connected"] += 1
        _log.info("connected to the bus url=%s", self._shown_url)
        try:
            while not client.is_closed:
                await self._serve(client, closed)
                client, closed = await self._gone_over(client, closed)
        except JETSTREAM_ERRORS as error:
            self.counters["connect_failed"] += 1
            _log.debug("the connection failed url=%s error=%s", self._shown_url, error)
        finally:
            await self._hang_up(client)
        return True

    async def _gone_over(self, client: Client, closed: asyncio.Event) -> tuple[Client, asyncio.Event]:
        """Where there is another credential, a connection by that one; otherwise the present one."""
        if client.is_closed or not self._renewed.is_set():
            return client, closed
        self._renewed.clear()
        fresh, fresh_closed = await self._attempt()
        if fresh is None:
            return client, closed
        await hang_up(client)
        return fresh, fresh_closed

    async def _attempt(self) -> tuple[Client | None, asyncio.Event]:
        """A new connection with all subscriptions; None where it cannot be had, which is counted by reason."""
        closed = asyncio.Event()
        try:
            client = await self._dial(closed)
        except RefusedError as error:
            self.counters["connect_refused"] += 1
            self._tell_once("not let onto the bus", self._why_refused(error))
        except ssl.SSLCertVerificationError as error:
            self.counters["connect_failed"] += 1
            self._tell_once("the bus is not trusted", str(untrusted(error, self._shown_url)))
        except JETSTREAM_ERRORS as error:
            self.counters["connect_failed"] += 1
            _log.debug("no connection url=%s error=%s", self._shown_url, error)
        else:
            self._told_refusal = ""
            return client, closed
        return None, closed

    async def _dial(self, closed: asyncio.Event) -> Client:
        async def on_closed() -> None:
            closed.set()

        url, timeout_s = self._servers.next(), self._patience.connect_s
        self._shown_url = shown(url)
        client = await dial(
            url,
            self._credential,
            name=self._name,
            timeout_s=timeout_s,
            on_error=self._on_error,
            on_closed=on_closed,
            hears_much=self._hears_much,
        )
        subscriptions: list[Subscription[Any]] = [
            *self._subscriptions,
            *(one for watch in self._watches for one in (watch, watch.changes)),
        ]
        try:
            for subscription in subscriptions:
                await client.subscribe(subscription.subject, cb=subscription.on_message)
            await client.flush(timeout_s)
        except BaseException:
            await hang_up(client)
            raise
        return client

    def _why_refused(self, error: RefusedError) -> str:
        """Why this process is not let in: what its own credential says of that, if it does."""
        try:
            self._credential.require_valid()
        except IdentityError as own:
            return str(own)
        return str(error)

    def _tell_once(self, what: str, why: str) -> None:
        """Say what keeps this process off the bus, unless that was said last."""
        if why != self._told_refusal:
            self._told_refusal = why
            _log.error("%s url=%s: %s", what, self._shown_url, why.replace("\n", "; "))

    async def _serve(self, client: Client, closed: asyncio.Event) -> None:
        is_first, self._client = self._client is None, client
        if is_first:
            self._tell(connected=True)
        await first_end(
            until_closed(client, closed),
            self._renewed.wait(),
            self._send(client),
            self.documents.run(client),
            *(watch.read(client) for watch in self._watches),
        )

    async def _hang_up(self, client: Client) -> None:
        self._client = None
        while not self._queue.empty():
            self._queue.get_nowait()
            self._queue.task_done()
            self.counters["dropped_disconnected"] += 1
        self._has_room.set()
        await hang_up(client)
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
