"""Asks the fleet for this host's credential: once with an invitation, then again before each one ends."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import nkeys
from nats.aio.client import Client

from cwdp.errors import BusError, CwdpError, IdentityError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.sealing import HostSeal
from cwdp.shared.bus.servers import shown
from cwdp.shared.bus.session import RefusedError, dial_any, hang_up
from cwdp.shared.bus.subjects import joining, token, up
from cwdp.shared.identity import jwt
from cwdp.shared.identity.credential import Credential, load_own
from cwdp.shared.identity.joining import JOIN, RENEW, Granted, Invitation, JoinRequest, RenewRequest
from cwdp.shared.identity.untrusted import untrusted

ANSWER_S, ASKED_TIMES = 5.0, 3
RENEWED_AT = 2 / 3
"""Of a credential's life: the rest is time for a fleet without a leader to get one."""


async def join(invitation: Invitation) -> Credential:
    """Have the leader sign a new key of this host.

    Raises:
        BusError: the bus, or a leader, is not to be had.
        IdentityError: the invitation has been used, has expired, or was withdrawn; or the bus server's certificate is wrong.
    """
    invitation.credential.require_valid()
    client = await _client(invitation)
    try:
        return await _asked(client, invitation)
    finally:
        await hang_up(client)


async def _client(invitation: Invitation) -> Client:
    try:
        return await dial_any(invitation.bus, invitation.credential, name=f"joining {invitation.host}")
    except RefusedError as error:
        raise IdentityError(
            "the bus does not take the token: it has expired by the clock of the bus server",
            "set this host's clock and the bus server's, whichever is wrong; then have `cwdp fleet invite` run again for this host",
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise untrusted(error, shown(invitation.bus)) from error
    except JETSTREAM_ERRORS as error:
        raise BusError(
            f"no bus of this fleet answers at {shown(invitation.bus)}: {str(error) or type(error).__name__}",
            "let this host reach that address, or have `cwdp fleet invite HOST --bus URL` run with the right one",
        ) from error


async def _asked(client: Client, invitation: Invitation) -> Credential:
    key = jwt.new_key(nkeys.PREFIX_BYTE_USER)
    request = JoinRequest(host=invitation.host, public_key=jwt.public_key(key), secret=invitation.secret)
    seal = HostSeal(invitation.host, invitation.control)
    subject = joining(invitation.pod, invitation.host)
    try:
        answer = await _answer(client, subject, seal.encode(JOIN, request))
        granted = seal.opened(JOIN, Granted, answer)
    except msgspec.DecodeError as error:
        raise IdentityError(f"what answered is no leader of this fleet: {error}", "try again") from error
    if granted.refused:
        raise IdentityError(granted.refused, "have `cwdp fleet invite` run again for this host")
    return Credential(granted.token, jwt.seed(key), invitation.authority, invitation.control)


async def _answer(client: Client, subject: str, data: bytes) -> bytes:
    for _ in range(ASKED_TIMES):
        with contextlib.suppress(*JETSTREAM_ERRORS):
            return bytes((await client.request(subject, data, timeout=ANSWER_S)).data)
    raise BusError("no leader answers", "see on a manager's host: cwdp manager status")


class Renewal:
    """Renews a host's credential in good time, with a new key each time.

    Args:
        host: its name.
        credential: the present one.
        path: where it is kept.
        ask: asks on a subject; the answer, opened.
        use: has the bus go over to another credential.
    """

    def __init__(
        self,
        host: str,
        credential: Credential,
        path: Path,
        *,
        ask: Callable[[str, RenewRequest], Awaitable[Granted]],
        use: Callable[[Credential], None],
    ) -> None:
        self._host, self._credential, self._path = host, credential, path
        self._ask, self._use = ask, use
        self._changed_ns = 0

    def due_s(self) -> float:
        """When to ask, in seconds since 1970; never where the credential does not end."""
        expires_s = self._credential.expires_s
        if expires_s is None:
            return float("inf")
        return self._credential.issued_s + RENEWED_AT * (expires_s - self._credential.issued_s)

    def reread(self) -> None:
        """Use what somebody else has put into the file, as `cwdp agent join` does.

        Raises:
            IdentityError: it cannot be used.
        """
        try:
            changed_ns = self._path.stat().st_mtime_ns
        except OSError:
            return
        if changed_ns == self._changed_ns:
            return
        self._changed_ns = changed_ns
        found = load_own(self._path, token(self._host))
        if found != self._credential:
            self._credential = found
            self._use(found)

    async def renew(self, key: nkeys.KeyPair) -> None:
        """Have a key signed, keep it, and use it.

        Raises:
            CwdpError: it cannot be had, or kept; the present one stays.
        """
        request = RenewRequest(host=self._host, public_key=jwt.public_key(key), token=self._credential.token)
        try:
            granted = await self._ask(up(self._credential.pod, self._host, RENEW), request)
        except (*JETSTREAM_ERRORS, msgspec.DecodeError) as error:
            raise BusError(f"no leader answers: {str(error) or type(error).__name__}") from error
        if granted.refused:
            raise IdentityError(granted.refused)
        renewed = self._credential.renewed(granted.token, jwt.seed(key))
        renewed.save(self._path)
        self._credential = renewed
        self._use(renewed)

    async def run(self, tell: Callable[[CwdpError], None], *, interval_s: float = 60.0) -> None:
        """Have the leader know the present key, then renew with a new one whenever that is due, for ever.

        Args:
            tell: is told why it could not be.
            interval_s: between two looks at the time.
        """
        is_known = False
        while True:
            if not is_known or time.time() >= self.due_s():
                try:
                    await self.renew(
                        jwt.new_key(nkeys.PREFIX_BYTE_USER) if is_known else self._credential.key
                    )
                    is_known = True
                except CwdpError as error:
                    tell(error)
            await asyncio.sleep(interval_s if is_known else ANSWER_S)
