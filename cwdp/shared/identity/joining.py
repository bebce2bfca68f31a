"""How a host comes by its credential: an invitation that is good once, and what is asked and answered with it.

The key is made on the host and never leaves it; only its public half is sent, and signed.
"""

import base64
import binascii

import msgspec
from msgspec import Struct

from cwdp.errors import ConfigError
from cwdp.shared.identity.credential import Credential

PREFIX = "cwdp1-"
JOIN, RENEW = "joined", "renew"
"""The kinds of messages, as the leader's seal names them."""


class Invitation(Struct, frozen=True, kw_only=True):
    """What an administrator hands to a host, as one word.

    Attributes:
        bus: where the bus is.
        secret: what is asked with, once.
        token, seed, authority, control: of the credential that can ask, and nothing else.
    """

    bus: str
    host: str
    pod: str
    secret: bytes
    token: str
    seed: str
    authority: str
    control: str

    @property
    def credential(self) -> Credential:
        """By which the bus lets a host ask."""
        return Credential(self.token, self.seed, self.authority, self.control)


class JoinRequest(Struct, frozen=True, kw_only=True):
    """A host asks to be taken in with a key of its own."""

    host: str
    public_key: str
    secret: bytes


class RenewRequest(Struct, frozen=True, kw_only=True):
    """A host asks for another token, of this or another key of its own, by the one that it has."""

    host: str
    public_key: str
    token: str


class Granted(Struct, frozen=True, kw_only=True):
    """The answer to both: a token, or why there is none."""

    host: str
    token: str = ""
    refused: str = ""


def written(invitation: Invitation) -> str:
    """An invitation as one word."""
    return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(invitation)).decode().rstrip("=")


def read(word: str) -> Invitation:
    """An invitation from its word.

    Raises:
        ConfigError: it is none.
    """
    text = "".join(word.split())
    data = text.removeprefix(PREFIX) if text.startswith(PREFIX) else ""
    try:
        return msgspec.msgpack.decode(
            base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)), type=Invitation
        )
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise ConfigError(
            "that is no token to join with",
            f"it begins with {PREFIX} and is one long word: what `cwdp fleet invite HOST` printed",
        ) from error
