"""Takes hosts in, renews their credentials, and revokes them, on behalf of whoever leads."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, TypeVar

from nats.aio.client import Client

from cwdp.errors import BusError, ConfigError, IdentityError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.subjects import joining, token, up
from cwdp.shared.identity import joining as words
from cwdp.shared.identity.credential import Credential
from cwdp.shared.identity.joining import JOIN, RENEW, Granted, Invitation, JoinRequest, RenewRequest
from cwdp.shared.identity.probe_keys import KEYS, KeysAnswer, KeysRequest
from manager.identity.accounts import Accounts
from manager.identity.authority import Authority
from manager.identity.probe_keys import ProbeKeys
from manager.identity.registry import Registry
from manager.planner.events import FLEET

INVITED_HOURS = 24.0
MOST_INVITED_HOURS = 24.0 * 30
ACCOUNTS_AGAIN_S, STEP_S = 5.0, 1.0
ASKED_EVERY_S, ASKED_SOON_S = 10.0, 1.0
"""By each host, for the cluster's keys; the latter while these are rotated."""

_STAGES = {
    "introduced": "a new key is to be accepted everywhere",
    "switched": "the new key is to be signed with everywhere",
    "settled": "the old key is dropped",
}

_T = TypeVar("_T")
_log = logging.getLogger("cwdp.manager.identity")


class Note(Protocol):
    """Keeps an event."""

    def __call__(self, host: str, kind: str, detail: str, *, why: str | None = None) -> None:
        """Of a host, or of the fleet; why somebody wanted it, where they said."""


class Credentials:
    """Who may be on the bus, as the leader of a pod decides.

    Args:
        authority: that signs.
        bus: the manager's.
        pod: whose hosts it takes in.
        leads: whether this manager leads now.
        note: tells the fleet's history of a host and what happened to it.
        keys: the cluster's probe keys.
        hosts: the hosts that are up.
        put_out: keeps nothing any more of a host that is revoked; it is tried again with the next word to revoke it.
        may_go_on: whether it is this manager's to go on with a rotation of the keys, as far as others are concerned.
    """

    def __init__(
        self,
        authority: Authority,
        bus: Bus,
        pod: str,
        *,
        leads: Callable[[], bool],
        note: Note,
        keys: ProbeKeys,
        hosts: Callable[[], Collection[str]],
        may_go_on: Callable[[], bool],
        put_out: Callable[[str], Awaitable[None]],
    ) -> None:
        self._authority, self._bus, self._pod = authority, bus, pod
        self._leads, self._note = leads, note
        self._keys, self._hosts, self._may_go_on = keys, hosts, may_go_on
        self._put_out = put_out
        self._registry, self._accounts = Registry(), Accounts(authority)

    def listen(self) -> None:
        """Answer hosts; before the bus is started."""
        self._bus.answer(joining(self._pod, "*"), JOIN, JoinRequest, self._join)
        self._bus.answer(up(self._pod, "*", RENEW), RENEW, RenewRequest, self._renew)
        self._bus.answer(up(self._pod, "*", KEYS), KEYS, KeysRequest, self._tell_keys)

    async def run(self) -> None:
        """Have bus servers hold what accounts are now, whenever this manager begins to lead; for ever."""
        told, due_s = False, 0.0
        while True:
            client, now_s = self._bus.session, time.monotonic()
            if not self._leads() or client is None:
                told = False
            elif not told and now_s >= due_s:
                due_s = now_s + ACCOUNTS_AGAIN_S
                try:
                    told = await self._revoke(client, {}) >= 0
                except (*JETSTREAM_ERRORS, BusError) as error:
                    _log.warning("the bus servers' accounts cannot be told of yet error=%s", _why(error))
            if self._may_go_on() and (stage := self._keys.step(self._hosts())) is not None:
                self._note(FLEET, "keys_rotating" if stage != "settled" else "keys_rotated", _STAGES[stage])
            await asyncio.sleep(STEP_S)

    async def invite(
        self,
        host: str,
        *,
        by: str,
        why: str | None = None,
        bus: str | None = None,
        hours: float = INVITED_HOURS,
    ) -> str:
        """A word by which a host may join once.

        Args:
            host: its name.
            by: who invites it.
            why: what for, where they said.
            bus: where it reaches the bus, if not as this manager does.
            hours: for how long.

        Raises:
            ConfigError: no such host can be, or not for so long.
            BusError: it cannot be kept.
        """
        if not 0 < hours <= MOST_INVITED_HOURS:
            raise ConfigError(f"hours: {hours:g} is not within 0 and {MOST_INVITED_HOURS:g}")
        bus = bus or self._bus.url
        if "//0.0.0.0:" in bus or "//[::]:" in bus:
            raise ConfigError(
                f"hosts cannot reach the bus by {bus}", "give its address as they see it with --bus URL"
            )
        secret, expires_s = secrets.token_bytes(16), time.time() + 3_600 * hours
        joiner = self._authority.joiner_credential(token(host), self._pod, hours / 24)
        await self._kept(lambda client: self._registry.invite(client, self._pod, host, secret, expires_s))
        self._note(host, "host_invited", f"by {by}: may join within {hours:g} hours", why=why)
        return words.written(_invitation(bus, host, self._pod, secret, joiner))

    async def revoke(self, host: str, *, by: str, why: str | None = None) -> int:
        """Let a host onto the bus no more, at once, nor join by an invitation, and keep nothing of it; how many keys it had.

        Raises:
            ConfigError: no key of such a host was signed, and it may not join.
            BusError: it cannot be kept, or told.
        """
        signed = await self._kept(lambda client: self._registry.signed(client, self._pod, host))
        invited = await self._kept(lambda client: self._registry.open_invitation(client, self._pod, host))
        keys = signed.expires_s if signed.host == host else {}
        if not keys and (invited is None or invited.host != host):
            raise ConfigError(
                f"no key of a host {host!r} was signed, and none is invited", "see: cwdp fleet hosts"
            )
        if keys:
            await self._kept(lambda client: self._revoke(client, keys))
        counts_no_more = f"{len(keys)} keys count" if keys else "its invitation counts"
        self._note(host, "host_revoked", f"by {by}: {counts_no_more} no more", why=why)
        if keys:
            self.rotate_keys(by=by, why=why)
        self._keys.forget(host)
        await self._put_out(host)
        await self._kept(lambda client: self._registry.forget(client, self._pod, host))
        return len(keys)

    def rotate_keys(self, *, by: str, why: str | None = None) -> int:
        """Begin to replace the cluster's probe key; how many hosts are up to hear of it."""
        self._keys.rotate()
        self._note(FLEET, "keys_rotating", f"by {by}: {_STAGES['introduced']}", why=why)
        return len(self._hosts())

    async def hosts(self) -> list[dict[str, Any]]:
        """Each host whose key was signed, and each that may still join; until when that counts.

        Raises:
            BusError: it cannot be read.
        """
        signed = await self._kept(lambda client: self._registry.all_signed(client, self._pod))
        invited = await self._kept(lambda client: self._registry.open_invitations(client, self._pod))
        found = [(each.host, "joined", max(each.expires_s.values())) for each in signed if each.expires_s]
        found += [(each.host, "invited", each.expires_s) for each in invited]
        return [
            {"host": host, "pod": self._pod, "state": state, "expires_s": expires_s}
            for host, state, expires_s in sorted(found)
        ]

    async def _join(self, request: JoinRequest) -> Granted | None:
        if not self._leads():
            return None
        return await self._granted(request.host, lambda client: self._taken_in(client, request))

    async def _renew(self, request: RenewRequest) -> Granted | None:
        if not self._leads():
            return None
        return await self._granted(request.host, lambda client: self._renewed(client, request))

    async def _tell_keys(self, request: KeysRequest) -> KeysAnswer | None:
        if not self._leads():
            return None
        has_them = self._keys.hear(request.host, request.have)
        return KeysAnswer(
            host=request.host,
            keys=None if has_them else self._keys.wanted,
            again_s=ASKED_EVERY_S if self._keys.stage == "settled" else ASKED_SOON_S,
        )

    async def _granted(self, host: str, sign: Callable[[Client], Awaitable[str]]) -> Granted | None:
        """The answer to a host; none where the bus does not keep it, so that it asks again."""
        try:
            return Granted(host=host, token=await self._kept(sign))
        except (ConfigError, IdentityError) as error:
            _log.warning("refused a credential host=%s: %s", host, error.message)
            return Granted(host=host, refused=error.message)
        except BusError as error:
            _log.warning("a credential cannot be kept host=%s: %s", host, error.message)
            return None

    async def _taken_in(self, client: Client, request: JoinRequest) -> str:
        host = request.host
        if (elsewhere := await self._registry.pod_elsewhere(client, self._pod, host)) is not None:
            raise IdentityError(f"a host of this name has joined the pod {elsewhere!r}, or may")
        text = self._authority.host_token(request.public_key, token(host), self._pod)
        if not await self._registry.take_invitation(
            client, self._pod, host, secret=request.secret, public=request.public_key
        ):
            raise IdentityError(
                "the token has been used, has expired, was withdrawn, or was replaced by a later one"
            )
        before = await self._registry.signed(client, self._pod, host)
        await self._registry.add(client, self._pod, host, text)
        others = {key: until_s for key, until_s in before.expires_s.items() if key != request.public_key}
        if others:
            await self._revoke(client, others)
        self._note(host, "host_joined", "with a key of its own")
        return text

    async def _renewed(self, client: Client, request: RenewRequest) -> str:
        name, claims = token(request.host), self._authority.host_claims(request.token)
        if claims.get("name") != name or f"pod:{self._pod}" not in claims["nats"].get("tags", ()):
            raise IdentityError("the credential is another host's")
        text = self._authority.host_token(request.public_key, name, self._pod)
        await self._registry.add(client, self._pod, request.host, request.token, text)
        return text

    async def _revoke(self, client: Client, keys: dict[str, float]) -> int:
        """Have keys count no more, and bus servers hold all of those; how many accounts were not up to date there."""
        return await self._accounts.tell(self._bus.url, await self._registry.revoke(client, keys))

    async def _kept(self, ask: Callable[[Client], Awaitable[_T]]) -> _T:
        client = self._bus.session
        if client is None:
            raise BusError("there is no connection to the bus", "try again when there is")
        try:
            return await ask(client)
        except JETSTREAM_ERRORS as error:
            raise BusError(f"it cannot be kept on the bus: {_why(error)}", "try again") from error


def _invitation(bus: str, host: str, pod: str, secret: bytes, joiner: Credential) -> Invitation:
    return Invitation(
        bus=bus,
        host=host,
        pod=pod,
        secret=secret,
        token=joiner.token,
        seed=joiner.seed,
        authority=joiner.authority,
        control=joiner.control,
    )


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__
