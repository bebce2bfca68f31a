"""One connection to a bus server: over TLS, by a credential, to servers of the fleet only."""

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

import nats.errors
from nats.aio.client import Client

from cwdp.shared.bus.servers import CONNECT_FIRST_S, Servers
from cwdp.shared.identity.credential import SERVER_NAME, Credential
from cwdp.shared.tasks import end, set_within

PING_INTERVAL_S = 1
PINGS_UNANSWERED = 2
"""A server of which nothing comes any more is left after two to three seconds, though nothing says that it is gone."""

CLOSE_TIMEOUT_S = 1.0
GLANCE_S = 0.25


logging.getLogger("asyncio").addFilter(lambda said: "eof_received() has no effect" not in said.getMessage())
# The bus's client provokes that at the end of each connection over TLS.


class RefusedError(nats.errors.Error):
    """A server does not let this credential in."""


class _PatientClient(Client):
    """Takes each message for a sign of life: the answer to a ping comes behind what the server sent before it.

    That may be seconds of messages where a process has much to do. To leave the server then would lose them all, and add to it
    the work of a new connection.
    """

    async def _process_msg(self, *message: Any) -> None:
        self._pings_outstanding = 0
        await super()._process_msg(*message)


async def _ignore(*_: object) -> None:
    """Who asks is told by the answer, or by its lack."""


async def dial(
    url: str,
    credential: Credential,
    *,
    name: str,
    timeout_s: int = CONNECT_FIRST_S,
    on_error: Callable[[Exception], Awaitable[None]] = _ignore,
    on_closed: Callable[[], Awaitable[None]] = _ignore,
    hears_much: bool = False,
) -> Client:
    """A connection that is ready; each step towards it may take `timeout_s`.

    Who `hears_much` takes any message for a sign of life of its server.

    Raises:
        RefusedError: the server does not take the credential.
        nats.errors.Error, OSError, TimeoutError: there is no server of the fleet.
    """
    tls = credential.tls()

    def require_tls() -> None:
        if tls.session_stats()["connect_good"] == 0:
            raise nats.errors.Error("the server does not speak TLS")

    def signature(nonce: str) -> bytes:
        require_tls()
        return base64.urlsafe_b64encode(credential.key.sign(nonce.encode())).rstrip(b"=")

    client = _PatientClient() if hears_much else Client()
    try:
        await client.connect(
            url,
            name=name,
            tls=tls,
            tls_hostname=SERVER_NAME,
            user_jwt_cb=lambda: bytearray(credential.token.encode()),
            signature_cb=signature,
            inbox_prefix=credential.inbox,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=timeout_s,
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_UNANSWERED,
            error_cb=on_error,
            closed_cb=on_closed,
        )
        require_tls()
    except nats.errors.Error as error:
        await hang_up(client)
        if "authorization violation" in str(error).lower():
            raise RefusedError(
                "the bus does not take the credential: it has expired or was revoked"
            ) from error
        raise
    except OSError:  # that of a certificate is a ValueError too
        await hang_up(client)
        raise
    except (AttributeError, TypeError, ValueError) as error:
        await hang_up(client)
        raise nats.errors.Error(f"what answers is no bus server: {error}") from error
    except BaseException:
        await hang_up(client)
        raise
    return client


async def dial_any(bus: str, credential: Credential, *, name: str) -> Client:
    """A connection to any server of a bus: each is tried once.

    Raises:
        RefusedError: one does not take the credential.
        nats.errors.Error, OSError, TimeoutError: as of `dial`, of one whose certificate is wrong, else of the last.
    """
    servers = Servers(bus)
    errors: list[Exception] = []
    for _ in range(len(servers)):
        try:
            return await dial(servers.next(), credential, name=name)
        except RefusedError:
            raise
        except (nats.errors.Error, OSError, TimeoutError) as error:
            errors.append(error)
    raise next((each for each in errors if isinstance(each, ssl.SSLCertVerificationError)), errors[-1])


async def until_closed(client: Client, closed: asyncio.Event) -> None:
    """Wait until a connection is of no more use: the client tells so by `closed` only once TLS has taken its leave too."""
    while not client.is_closed:
        await set_within(closed, GLANCE_S)


async def hang_up(client: Client) -> None:
    """Close a connection, whether its other end takes part or not: TLS waits for it without an end.

    A client that is closed by an error while it has something to send leaves its subscriptions waiting for messages.
    """
    subscriptions = client._subs.values()  # noqa: SLF001
    tasks = [cast("asyncio.Task[None] | None", each._wait_for_msgs_task) for each in subscriptions]  # noqa: SLF001
    waiting = [task for task in tasks if task is not None]
    try:
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await client.close()
    finally:
        if waiting:
            await end(*waiting)
