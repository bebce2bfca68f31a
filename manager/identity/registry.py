"""Who was invited, whose keys were signed, and which of them count no more; kept on the bus for whoever leads.

Keys of the bucket: `invited.POD.HOST`, `signed.POD.HOST`, with HOST as subjects of the bus have it (`token`), and `revoked`
for the whole fleet.
"""

import hashlib
import hmac
import time
from typing import TypeVar

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.js.errors import NoKeysError

from cwdp.errors import ConfigError
from cwdp.shared.bus.buckets import Bucket, Conflict
from cwdp.shared.bus.subjects import token
from cwdp.shared.identity import jwt

BUCKET = "cwdp-credentials"
MOST_BYTES = 1 << 28
REVOKED = "revoked"
TRIES = 8

_T = TypeVar("_T", bound=Struct)


class Invited(Struct, frozen=True, kw_only=True):
    """A host that may join: the SHA-256 of what it must know, until when, and the key that has."""

    secret_sha256: bytes
    expires_s: float
    host: str = ""
    taken_by: str = ""


_NOBODY = Invited(secret_sha256=b"", expires_s=0.0)


class Signed(Struct, frozen=True, kw_only=True):
    """A host's keys, and when the token of each ends."""

    host: str
    pod: str
    expires_s: dict[str, float] = {}


class Revoked(Struct, frozen=True, kw_only=True):
    """Public keys that count no more, and when the last token of each would have ended."""

    expires_s: dict[str, float] = {}


class Registry:
    """Reads and changes them, each change by compare-and-set."""

    def __init__(self) -> None:
        self._bucket = Bucket(BUCKET, max_bytes=MOST_BYTES)

    async def invite(self, client: Client, pod: str, host: str, secret: bytes, expires_s: float) -> None:
        """Let a host join with a secret; an invitation of before counts no more.

        Raises:
            ConfigError: the bus would not tell it from another host that has joined, or may; or one of its name has joined
                another pod, or may.
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        elsewhere = await self.pod_elsewhere(client, pod, host)
        if elsewhere is not None:
            raise ConfigError(
                f"a host {host!r} is of the pod {elsewhere!r} already",
                f"have a manager of that pod revoke it first: cwdp fleet revoke {host}",
            )
        signed, under = await self.signed(client, pod, host), f"invited.{pod}.{token(host)}"
        invited = Invited(secret_sha256=_digest(secret), expires_s=expires_s, host=host)
        revision, before = await self._read(client, under, invited)
        signed_s = max(signed.expires_s.values(), default=0.0)
        for other, until_s in ((before.host, before.expires_s), (signed.host, signed_s)):
            if other not in (host, "") and until_s > time.time():
                raise ConfigError(
                    f"{host!r} and {other!r} would be one host on the bus, {token(host)!r}",
                    "give one of them another name, by `host` in its agent's configuration",
                )
        await self._bucket.replace(client, under, msgspec.json.encode(invited), revision=revision)

    async def take_invitation(
        self, client: Client, pod: str, host: str, *, secret: bytes, public: str
    ) -> bool:
        """Whether a host may join with a secret and a key; with another key it may not a second time.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        await self._bucket.open(client)
        under = f"invited.{pod}.{token(host)}"
        revision, data = await self._bucket.read(client, under)
        if not data:
            return False
        invited = msgspec.json.decode(data, type=Invited)
        if not hmac.compare_digest(invited.secret_sha256, _digest(secret)) or invited.expires_s < time.time():
            return False
        taken = msgspec.structs.replace(invited, taken_by=public)
        if invited.taken_by:
            return invited == taken
        return await self._replaced(client, under, taken, revision)

    async def add(self, client: Client, pod: str, host: str, *tokens: str) -> None:
        """Keep that a host's tokens were signed, and forget the keys whose tokens have ended.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        under, now_s = f"signed.{pod}.{token(host)}", time.time()
        added = {claims["sub"]: float(claims["exp"]) for claims in map(jwt.read, tokens)}
        for _ in range(TRIES):
            revision, signed = await self._read(client, under, Signed(host=host, pod=pod))
            keys = {key: until_s for key, until_s in signed.expires_s.items() if until_s > now_s}
            kept = Signed(host=host, pod=pod, expires_s=keys | added)
            if await self._replaced(client, under, kept, revision):
                return
        raise TimeoutError("others keep writing it")

    async def signed(self, client: Client, pod: str, host: str) -> Signed:
        """A host's keys.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        return (await self._read(client, f"signed.{pod}.{token(host)}", Signed(host=host, pod=pod)))[1]

    async def all_signed(self, client: Client, pod: str) -> list[Signed]:
        """All hosts whose keys were signed.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        return [await self.signed(client, pod, name) for name in await self._names(client, f"signed.{pod}.")]

    async def pod_elsewhere(self, client: Client, pod: str, host: str) -> str | None:
        """Another pod that a host of this name has joined, or may join; None without one.

        What leaders sign is for a name, whatever the pod.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        store = await self._bucket.open(client)
        watcher = await store.watch(f"*.*.{token(host)}", ignore_deletes=True, meta_only=True)
        try:
            pods = set[str]()
            async for entry in watcher:
                if entry is None:
                    break
                pods.add(entry.key.split(".")[1])
        finally:
            await watcher.stop()  # type: ignore[no-untyped-call]
        for other in sorted(pods - {pod}):
            signed = await self.signed(client, other, host)
            is_in = max(signed.expires_s.values(), default=0.0) > time.time()
            if is_in or await self.open_invitation(client, other, host) is not None:
                return other
        return None

    async def open_invitation(self, client: Client, pod: str, host: str) -> Invited | None:
        """By which a host may still join; None without one.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        _, invited = await self._read(client, f"invited.{pod}.{token(host)}", _NOBODY)
        return None if invited.taken_by or invited.expires_s < time.time() else invited

    async def open_invitations(self, client: Client, pod: str) -> list[Invited]:
        """All by which hosts may still join.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        names = await self._names(client, f"invited.{pod}.")
        found = [await self.open_invitation(client, pod, name) for name in names]
        return [invited for invited in found if invited is not None]

    async def forget(self, client: Client, pod: str, host: str) -> None:
        """Keep nothing of a host, and let nobody join as it.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        for under in (f"signed.{pod}.{token(host)}", f"invited.{pod}.{token(host)}"):
            revision, data = await self._bucket.read(client, under)
            if data:
                await self._bucket.delete(client, under, revision=revision)

    async def revoke(self, client: Client, keys: dict[str, float]) -> Revoked:
        """Have keys count no more; all that do not, without those whose tokens have ended.

        Raises:
            nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`.
        """
        now_s = time.time()
        for _ in range(TRIES):
            revision, revoked = await self._read(client, REVOKED, Revoked())
            kept = {key: until_s for key, until_s in revoked.expires_s.items() if until_s > now_s}
            changed = Revoked(expires_s=kept | keys)
            if changed == revoked or await self._replaced(client, REVOKED, changed, revision):
                return changed
        raise TimeoutError("others keep writing it")

    async def _names(self, client: Client, prefix: str) -> list[str]:
        store = await self._bucket.open(client)
        try:
            return sorted(key.removeprefix(prefix) for key in await store.keys() if key.startswith(prefix))
        except NoKeysError:
            return []

    async def _read(self, client: Client, under: str, default: _T) -> tuple[int, _T]:
        await self._bucket.open(client)
        revision, data = await self._bucket.read(client, under)
        return revision, msgspec.json.decode(data, type=type(default)) if data else default

    async def _replaced(self, client: Client, under: str, value: Struct, revision: int) -> bool:
        try:
            await self._bucket.replace(client, under, msgspec.json.encode(value), revision=revision)
        except Conflict:
            return False
        return True


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
