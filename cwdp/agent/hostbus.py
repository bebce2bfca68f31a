"""The bus as one host's agent uses it: says things as this host, and hears what leaders tell it."""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from nats.errors import Error as NatsError

from cwdp.agent.clusterkeys import ClusterKeys
from cwdp.agent.config import AgentConfig
from cwdp.agent.joining import Renewal
from cwdp.errors import CwdpError, IdentityError
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Desired, FromAgent, Hello
from cwdp.shared.bus.sealing import HostSeal
from cwdp.shared.bus.subjects import down, up
from cwdp.shared.identity.credential import Credential
from cwdp.shared.identity.joining import RENEW, Granted, RenewRequest
from cwdp.shared.identity.probe_keys import KeyFile, read_keys

_log = logging.getLogger("cwdp.agent")
_T = TypeVar("_T", bound=Struct)


class HostBus:
    """Set up what is to be heard, then `start`.

    Args:
        config: the agent's.
        credential: who this host is.
        on_change: called with True when a session is ready and with False when it has ended.

    Attributes:
        boot_id: by which this agent is told from others of its name.
    """

    def __init__(
        self, config: AgentConfig, credential: Credential, on_change: Callable[[bool], None]
    ) -> None:
        self.boot_id = uuid.uuid4().hex
        self._host, self._pod = config.host, credential.pod
        self._bus = Bus(
            config.nats,
            credential,
            HostSeal(config.host, credential.control),
            pod=credential.pod,
            name=f"agent {config.host}",
            on_change=self._changed,
        )
        self._keys = ClusterKeys(self._bus, config.host, credential.pod, Path(config.keys))
        self._told = ""
        self._bus.counters["secrets_not_kept"] = 0
        self._on_change, self._connected = on_change, asyncio.Event()
        self._renewal = Renewal(
            config.host, credential, Path(config.credential), ask=self._ask, use=self._bus.use
        )

    @property
    def counters(self) -> Counter[str]:
        """Of the connection."""
        return self._bus.counters

    def hear(self, kind: str, of: type[_T], handler: Callable[[_T], None]) -> None:
        """Call `handler` for each message of a kind to this host; before `start`."""
        self._bus.subscribe(down(self._pod, self._host, kind), of, handler)

    def watch(self, handler: Callable[[Desired], None]) -> None:
        """Call `handler` with this host's document, now and at each change; before `start`."""
        self._bus.watch(self._host, handler)

    def start(self) -> None:
        """Connect in the background, for ever, until `close`."""
        self._bus.start()

    async def ended(self) -> None:
        """Wait for the end of what runs in the background, which only `close` should bring about."""
        await self._bus.ended()

    async def keep_credential(self) -> None:
        """Renew the credential whenever that is due, for ever."""
        await self._connected.wait()
        await self._renewal.run(self._not_kept)

    async def keep_keys(self, have: Callable[[], KeyFile]) -> None:
        """Have the file of the cluster's keys as the leader tells, for ever."""
        await self._keys.run(have, self._not_kept)

    async def first_keys(self) -> None:
        """Have a file of the cluster's keys as the leader tells; waits for one."""
        await self._keys.first()

    def reread_credential(self) -> None:
        """Go over to a credential that somebody has put in place of the present one, if it can be used."""
        try:
            self._renewal.reread()
        except IdentityError as error:
            self._not_kept(error)

    async def _ask(self, subject: str, question: RenewRequest) -> Granted:
        return await self._bus.ask(subject, RENEW, question, Granted)

    def _not_kept(self, error: CwdpError) -> None:
        """Count it each time, and say it once."""
        self._bus.counters["secrets_not_kept"] += 1
        if error.message != self._told:
            self._told = error.message
            _log.warning("going on with credential and keys of before error=%s", error.message)

    def _changed(self, connected: bool) -> None:
        if connected:
            self._connected.set()
            self._keys.ask_soon()
        self._on_change(connected)

    async def close(self) -> None:
        """Send what is queued (for up to a second) and leave the bus."""
        await self._bus.close()

    async def ping(self) -> None:
        """Ask the server, and return with its answer.

        Raises:
            OSError: there is no connection.
        """
        client = self._bus.session
        if client is None:
            raise ConnectionError("there is no bus")
        try:
            await client.flush()
        except NatsError as error:
            raise ConnectionError(str(error)) from error

    def say_hello(self, hello: Hello) -> bool:
        """Publish that this agent is there; False when it was dropped."""
        return self._bus.publish(up(self._pod, self._host, "hello"), hello)

    def say(self, kind: str, message: FromAgent) -> bool:
        """Publish a message as this agent's, not that of another one of its name; False when it was dropped."""
        said = msgspec.structs.replace(message, boot_id=self.boot_id)
        return self._bus.publish(up(self._pod, self._host, kind), said)


async def first_keys(config: AgentConfig, credential: Credential) -> KeyFile:
    """The cluster's keys: those of the file or, where there is none yet, what a leader tells; waits for one.

    Raises:
        ConfigError: the file cannot be read.
        IdentityError: it cannot be written.
    """
    path = Path(config.keys)
    if not await asyncio.to_thread(path.exists):
        bus = HostBus(config, credential, lambda _connected: None)
        bus.start()
        try:
            _log.info("waiting for the cluster's keys bus=%s", config.nats)
            await bus.first_keys()
        finally:
            await bus.close()
    return read_keys(path)
