"""Tells the bus servers what the accounts are now, with who was revoked; those that are reached let go of these at once."""

import time

import msgspec
from nats.aio.client import Client

from cwdp.errors import BusError, IdentityError
from cwdp.shared.bus.session import dial_any, hang_up
from cwdp.shared.identity import jwt
from manager.identity.authority import Authority
from manager.identity.registry import Revoked

UPDATE = "$SYS.REQ.CLAIMS.UPDATE"
ANSWER_S = 2.0


class Accounts:
    """The accounts as servers should hold them.

    Args:
        authority: that signs them.
    """

    def __init__(self, authority: Authority) -> None:
        self._authority = authority

    async def tell(self, bus: str, revoked: Revoked) -> int:
        """Bring what servers hold up to date; how many accounts were not.

        Raises:
            BusError: a server does not take them.
            nats.errors.Error, OSError, TimeoutError: no server answers.
        """
        client = await dial_any(bus, self._authority.system_credential(), name="cwdp-manager accounts")
        try:
            now_s = int(time.time())
            tokens = self._authority.account_tokens(dict.fromkeys(revoked.expires_s, now_s))
            return sum([await self._tell_one(client, key, token) for key, token in tokens.items()])
        finally:
            await hang_up(client)

    async def _tell_one(self, client: Client, key: str, token: str) -> bool:
        held = await client.request(f"$SYS.REQ.ACCOUNT.{key}.CLAIMS.LOOKUP", timeout=ANSWER_S)
        if _says_the_same(held.data.decode(), token):
            return False
        answer = await client.request(UPDATE, token.encode(), timeout=ANSWER_S)
        said = msgspec.json.decode(answer.data)
        if "error" in said:
            raise BusError(f"a bus server refuses an account: {said['error'].get('description', '')}")
        return True


def _says_the_same(held: str, token: str) -> bool:
    """Whether two tokens of an account differ in nothing but when they were signed, and until when revoked ones count."""
    try:
        before, now = jwt.read(held)["nats"], jwt.read(token)["nats"]
    except (IdentityError, KeyError):
        return False
    revoked = [set(said.pop("revocations", None) or ()) for said in (before, now)]
    return bool(before == now and revoked[0] >= revoked[1])
