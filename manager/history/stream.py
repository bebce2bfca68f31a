"""The log of record on the bus: a JetStream stream that every manager writes to and reads from."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Header,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, copies_on, maker
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.subjects import PREFIX
from cwdp.shared.tasks import set_within
from manager.bus.pods import bucket_of, subject_of
from manager.history.records import Message, decoded
from manager.history.writer import Disk, StoppedError, Writer

STREAM = "cwdp-history"
"""The first pod's; see `manager.bus.pods`."""

SUBJECT = f"{PREFIX}.history"
READ_AT_ONCE = 256
SENT_AT_ONCE = 64
WAIT_S = 5.0
RETRY_S = 1.0
ANSWER_S = 2.0
KEPT_FOR_S = 60.0
"""So long the server remembers how far somebody has read that asks no more."""

_log = logging.getLogger("cwdp.manager.history")


class Stream:
    """One manager's part in the stream.

    Args:
        bus: where it is.
        writer: has what is not sent yet, and takes in what is read.
        max_age_s, max_bytes: of the stream, given to it by whoever leads.
        leads: whether this manager does.

    Attributes:
        counters: `sent`, `failed` and `refused`: messages that the bus took, or did not, or that cannot be read.
        behind: how many messages of the stream are not taken in yet, as far as is known.
    """

    def __init__(
        self, bus: Bus, writer: Writer, *, max_age_s: float, max_bytes: int, leads: Callable[[], bool]
    ) -> None:
        self.counters: Counter[str] = Counter(sent=0, failed=0, refused=0)
        self.behind = 0
        self._bus, self._writer, self._leads = bus, writer, leads
        self._name, self._subject = bucket_of(STREAM, bus.pod), subject_of(SUBJECT, bus.pod)
        self._max_age_s, self._max_bytes = max_age_s, max_bytes
        self._wake = asyncio.Event()
        self._made: Client | None = None

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    async def send(self) -> None:
        """Bring to the bus what is not there yet, for ever."""
        while True:
            done = await self._try(self._send_some)
            if done is None:
                await asyncio.sleep(RETRY_S)
            elif not done:
                await self._wait()

    async def send_rest(self) -> None:
        """On the way out: send what waits, for a second at most; what is left is sent after the next start."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                while await self._try(self._send_some):
                    pass

    async def read(self) -> None:
        """Take in what is on the bus, for ever."""
        while True:
            await self._try(self._read_session)
            await asyncio.sleep(RETRY_S)

    async def _wait(self) -> None:
        self._wake.clear()
        await set_within(self._wake, WAIT_S)

    async def _try(self, work: Callable[[Client], Awaitable[bool]]) -> bool | None:
        """Do something on the bus; None where it has come to nothing."""
        client = self._bus.session
        if client is None:
            return None
        try:
            return await work(client)
        except StoppedError:
            return None
        except JETSTREAM_ERRORS as error:
            self._made = None
            self.counters["failed"] += 1
            _log.debug("history is not on the bus yet error=%s", str(error) or type(error).__name__)
            return None

    async def _send_some(self, client: Client) -> bool:
        """Send some of what waits; whether there was any."""
        unsent = await self._writer.do(lambda disk: disk.store.unsent(SENT_AT_ONCE))
        if not unsent:
            return False
        await self._make(client)
        jetstream, last = client.jetstream(timeout=ANSWER_S), None
        try:
            for place, name, data in unsent:
                await jetstream.publish(self._subject, data, stream=self._name, headers={Header.MSG_ID: name})
                self.counters["sent"] += 1
                last = place
        finally:
            if last is not None:
                sent = last
                await self._writer.do(lambda disk: disk.store.sent(sent))
        return True

    async def _make(self, client: Client) -> None:
        """Have the stream, with the limits that the leader's settings give it; once a session."""
        if self._made is client:
            return
        manager, wanted = client.jsm(), self._config()
        try:
            found = (await manager.stream_info(self._name)).config
        except nats.js.errors.NotFoundError:
            await manager.add_stream(wanted.evolve(num_replicas=copies_on(client), description=maker()))
        else:
            differs = (found.max_age, found.max_bytes) != (wanted.max_age, wanted.max_bytes)
            if differs and self._leads():
                await manager.update_stream(found.evolve(max_age=wanted.max_age, max_bytes=wanted.max_bytes))
        self._made = client

    def _config(self) -> StreamConfig:
        return StreamConfig(
            name=self._name,
            subjects=[self._subject],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_age=self._max_age_s,
            max_bytes=self._max_bytes,
            num_replicas=1,
        )

    async def _read_session(self, client: Client) -> bool:
        """Read on from where it was left, for as long as the connection and the stream last."""
        manager = client.jsm()
        try:
            info = await manager.stream_info(self._name)
        except nats.js.errors.NotFoundError:
            return False
        made = str(info.created)
        generation, position = await self._writer.do(
            lambda disk: (disk.store.generation, disk.store.position(made))
        )
        jetstream = client.jetstream(timeout=ANSWER_S)
        subscription = await jetstream.pull_subscribe(
            self._subject,
            stream=self._name,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=position + 1,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=KEPT_FOR_S,
            ),
        )
        try:
            while self._bus.session is client:
                try:
                    read = await self._read_some(subscription, generation)
                    if read is None:
                        return False
                    position = read
                except (TimeoutError, nats.errors.TimeoutError):
                    info = await manager.stream_info(self._name)
                    self.behind = max(0, info.state.last_seq - position)
                    if self.behind or str(info.created) != made:
                        return False
        finally:
            await subscription.unsubscribe()
        return True

    async def _read_some(
        self, subscription: JetStreamContext.PullSubscription, generation: bytes
    ) -> int | None:
        """Take in what comes next; the position after it, None where the store has begun anew meanwhile.

        Raises:
            TimeoutError: nothing has come.
        """
        read = await subscription.fetch(READ_AT_ONCE, timeout=WAIT_S)
        if not read:
            raise TimeoutError
        messages = [message for each in read if (message := self._message(each)) is not None]
        last = read[-1].metadata
        position = last.sequence.stream

        def take_in(disk: Disk) -> int | None:
            if disk.store.generation != generation:
                return None
            disk.store.take_in(messages, position)
            return position

        self.behind = last.num_pending
        while True:
            try:
                return await self._writer.do(take_in)
            except StoppedError:
                await asyncio.sleep(RETRY_S)

    def _message(self, read: Msg) -> Message | None:
        try:
            return decoded(read.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.counters["refused"] += 1
            return None
