"""What is done with what comes from the bus: taken in, answered, or put together to a host's document."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.desired import changes, stored
from cwdp.shared.bus.desired.changes import Change
from cwdp.shared.bus.messages import Desired
from cwdp.shared.bus.sealing import NotTheirsError, OverLimitError, Seal
from cwdp.shared.bus.subjects import document_key, down
from cwdp.shared.tasks import set_within

JETSTREAM_RETRY_S, REREAD_INTERVAL_S = 0.5, 60.0
WARNED_EVERY_S = 10.0

_T = TypeVar("_T", bound=Struct)
_log = logging.getLogger("cwdp.bus")


class Subscription(Generic[_T]):
    """Decodes what arrives on one subject and hands it on; never lets an error out."""

    def __init__(
        self,
        subject: str,
        kind: type[_T],
        handler: Callable[[_T], None],
        seal: Seal,
        counters: Counter[str],
    ) -> None:
        self.subject = subject
        self._seal = seal
        self._kind = kind
        self._handler = handler
        self._counters = counters
        self._warned_s = -math.inf

    async def on_message(self, message: Msg) -> None:
        """What nats-py calls for each message."""
        self.deliver(message.subject, message.data)

    def deliver(self, subject: str, data: bytes) -> None:
        """Hand one message to the handler, or count why not."""
        try:
            value = self._seal.decode(subject, self._kind, data)
        except OverLimitError:
            self._counters["received_rate_limited"] += 1
            return
        except NotTheirsError as error:
            self._counters["received_not_theirs"] += 1
            self._warn(subject, error)
            return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._counters["received_bad"] += 1
            _log.debug("dropped a bad message subject=%s error=%s", subject, error)
            return
        self._counters["received"] += 1
        self.hand_on(value)

    def _warn(self, subject: str, error: Exception) -> None:
        """Log a refusal, now and then: whoever sends many does not fill the log."""
        now_s = time.monotonic()
        if now_s >= self._warned_s + WARNED_EVERY_S:
            self._warned_s = now_s
            _log.warning("refused a message subject=%s: %s", subject, error)

    def hand_on(self, value: _T) -> None:
        """Give the handler something."""
        try:
            self._handler(value)
        except Exception:  # noqa: BLE001 - one bad message must not end the subscription
            self._counters["handler_failed"] += 1
            _log.exception("handler failed subject=%s", self.subject)


class Service(Subscription[_T]):
    """Answers what arrives on one subject."""

    def __init__(
        self,
        subject: str,
        answer_kind: str,
        kind: type[_T],
        answer: Callable[[_T], Awaitable[Struct | None]],
        *,
        seal: Seal,
        counters: Counter[str],
    ) -> None:
        self._asked: list[_T] = []
        super().__init__(subject, kind, self._asked.append, seal, counters)
        self._answer_kind, self._answer = answer_kind, answer

    async def on_message(self, message: Msg) -> None:
        """Take the question in, and answer it where there is something to say."""
        self.deliver(message.subject, message.data)
        while self._asked:
            try:
                answer = await self._answer(self._asked.pop())
                if answer is not None and message.reply:
                    await message.respond(self._seal.encode(self._answer_kind, answer))
            except JETSTREAM_ERRORS as error:
                _log.debug("an answer cannot be sent subject=%s error=%s", message.subject, error)
            except Exception:  # noqa: BLE001 - one bad question must not end the subscription
                self._counters["handler_failed"] += 1
                _log.exception("handler failed subject=%s", message.subject)


class Watch(Subscription[Desired]):
    """A subscription to one host's document that skips what it delivered already.

    Attributes:
        changes: the subscription to its changes.
    """

    def __init__(
        self, pod: str, host: str, handler: Callable[[Desired], None], seal: Seal, counters: Counter[str]
    ) -> None:
        super().__init__(down(pod, host, stored.KIND), Desired, handler, seal, counters)
        self.changes = Subscription(down(pod, host, changes.KIND), Change, self._change, seal, counters)
        self._bucket, self._key = stored.bucket(), document_key(pod, host)
        self._whole: Desired | None = None
        self._last: Desired | None = None
        self._is_due = asyncio.Event()

    async def read(self, client: Client) -> None:
        """Deliver what is stored at the start of a session, now and then, and when a message does not say it all."""
        retry_s = JETSTREAM_RETRY_S
        while True:
            self._is_due.clear()
            pause_s = REREAD_INTERVAL_S
            try:
                found = await stored.read(client, self._bucket, self._key, self._seal)
                if found.whole is not None:
                    self._take(found.whole, found.to_it)
            except JETSTREAM_ERRORS:
                pause_s, retry_s = retry_s, min(2 * retry_s, REREAD_INTERVAL_S)
            await set_within(self._is_due, pause_s)

    def hand_on(self, value: Desired) -> None:
        """Hand on a document that differs from the last one; one in parts once these have been read."""
        if value.parts:
            self._is_due.set()
        else:
            self._take(value, None)

    def _change(self, change: Change) -> None:
        """Hand on what a change makes of the document; where that one is not known, read both."""
        if self._whole is None or not changes.changes(self._whole, change):
            self._is_due.set()
        else:
            self._take(self._whole, change)

    def _take(self, whole: Desired, change: Change | None) -> None:
        self._whole = whole
        value = whole if change is None else changes.changed(whole, change)
        if value != self._last:
            self._last = value
            super().hand_on(value)
