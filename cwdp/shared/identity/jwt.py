"""Claims signed by Ed25519 keys, as nats-server takes them (RFC 7519 with its algorithm `ed25519-nkey`)."""

import base64
import hashlib
import json
import os
import time
from typing import Any

import nkeys
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from cwdp.errors import IdentityError

HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}


def new_key(kind: int) -> nkeys.KeyPair:
    """A new key of a kind, one of the `PREFIX_BYTE_...` of nkeys."""
    return nkeys.from_seed(bytes(nkeys.encode_seed(os.urandom(32), kind)))


def public_key(key: nkeys.KeyPair) -> str:
    """How others name a key."""
    return bytes(key.public_key).decode()


def seed(key: nkeys.KeyPair) -> str:
    """The secret of a key."""
    return bytes(key.seed).decode()


def sign(claims: dict[str, Any], issuer: nkeys.KeyPair) -> str:
    """A token that says `claims` (`sub`, `name`, `nats` and what else there is) on behalf of a key."""
    said = {"iat": int(time.time()), "iss": public_key(issuer), **claims}
    digest = hashlib.new("sha512_256", _json(said)).digest()
    said["jti"] = base64.b32encode(digest).decode().rstrip("=")
    body = f"{_encode(_json(HEADER))}.{_encode(_json(said))}"
    return f"{body}.{_encode(issuer.sign(body.encode()))}"


def read(token: str) -> dict[str, Any]:
    """What a token says, whoever signed it.

    Raises:
        IdentityError: it is no such token.
    """
    try:
        header, body, _ = token.split(".")
        claims, fits = json.loads(_decode(body)), json.loads(_decode(header)) == HEADER
    except ValueError as error:
        raise IdentityError("the credential is no signed token", "ask for another one") from error
    if not fits or not isinstance(claims, dict):
        raise IdentityError("the credential is no token of the bus", "ask for another one")
    return claims


def verified(token: str, issuers: set[str]) -> dict[str, Any]:
    """What a token says that one of these public keys has signed.

    Raises:
        IdentityError: it is no such token, another key's, or changed since.
    """
    claims = read(token)
    issuer = claims.get("iss")
    if not isinstance(issuer, str) or issuer not in issuers:
        raise IdentityError("the credential was signed by a stranger", "join with a token of this fleet")
    body, _, signature = token.rpartition(".")
    if not is_signed(body.encode(), _signature(signature), issuer):
        raise IdentityError("the credential's signature is wrong", "join with a token of this fleet")
    return claims


def is_signed(data: bytes, signature: bytes, public: str) -> bool:
    """Whether a key has signed `data`."""
    try:
        VerifyKey(raw_public_key(public)).verify(data, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def _signature(text: str) -> bytes:
    """Of a token; nothing where it is none."""
    try:
        return _decode(text)
    except ValueError:
        return b""


def raw_public_key(public: str) -> bytes:
    """The 32 bytes of a public key as nkeys write it: a byte for its kind, the key, two of a checksum; in base32.

    Raises:
        ValueError: it is none.
    """
    data = base64.b32decode(public + "=" * (-len(public) % 8))
    if len(data) != 35:
        raise ValueError(public)
    return data[1:33]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
