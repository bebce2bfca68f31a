"""What leaders send is signed, and what hosts say is checked against whose subject it came on.

A host's permissions let it publish under its own name only, so the bus itself vouches for what goes up. What comes down
may have been put there by another host (the reply subject of a message is not checked by a server's permissions), so
it bears a signature (Ed25519, RFC 8032) by the fleet's control key, over its kind and its bytes, ahead of these.

What goes up is packed (`cwdp.shared.bus.packing`): it is many times what comes down.
"""

from typing import Protocol, TypeVar

import msgspec
import nkeys
from msgspec import Struct

from cwdp.shared.bus.messages import decode, encode
from cwdp.shared.bus.packing import packed, unpacked
from cwdp.shared.bus.subjects import host_token_of, is_of_pod, kind_of, token
from cwdp.shared.identity.jwt import is_signed, public_key

SIGNATURE_BYTES = 64

_T = TypeVar("_T", bound=Struct)


class NotTheirsError(msgspec.DecodeError):
    """A message is not from whom it claims to be, or not for who got it."""


class OverLimitError(msgspec.DecodeError):
    """A host sends more than is taken in from one."""


class Seal(Protocol):
    """How a side of the bus vouches for what it sends, and makes sure of what it hears."""

    def encode(self, kind: str, message: Struct) -> bytes:
        """Bytes of a message of a kind.

        Raises:
            TooLargeError: there are more than any that are taken in.
        """
        ...

    def decode(self, subject: str, of: type[_T], data: bytes) -> _T:
        """A message that came on a subject.

        Raises:
            msgspec.DecodeError: the bytes are no such message.
            NotTheirsError: they are, of somebody else.
            OverLimitError: they were not looked at.
        """
        ...

    def opened(self, kind: str, of: type[_T], data: bytes) -> _T:
        """A message of a kind that a leader has signed.

        Raises:
            msgspec.DecodeError: the bytes are no such message.
            NotTheirsError: no leader of the fleet has signed it, or not for who asks.
        """
        ...


class LeaderSeal:
    """A manager's: signs what it sends.

    Args:
        key: the fleet's control key.
    """

    def __init__(self, key: nkeys.KeyPair) -> None:
        self._key, self._control = key, public_key(key)

    def encode(self, kind: str, message: Struct) -> bytes:
        """Bytes of a message of a kind, signed."""
        body = encode(message)
        return bytes(self._key.sign(_signed(kind, body))) + body

    def decode(self, subject: str, of: type[_T], data: bytes) -> _T:
        """A host's message, which says that it is from the host whose subject it came on; or another leader's."""
        if is_of_pod(subject):
            return self.opened(kind_of(subject), of, data)
        message = decode(of, self._unpacked(subject, data))
        if token(str(getattr(message, "host", ""))) != host_token_of(subject):
            raise NotTheirsError(f"it came on {subject} and says that it is another host's")
        return message

    def _unpacked(self, _subject: str, data: bytes) -> bytes:
        return unpacked(data)

    def opened(self, kind: str, of: type[_T], data: bytes) -> _T:
        """What a leader has signed.

        Raises:
            msgspec.DecodeError: the bytes are no such message.
            NotTheirsError: no leader has signed it.
        """
        return _opened(kind, of, data, self._control)


class HostSeal:
    """An agent's: takes only what a leader has signed for its host.

    Args:
        host: its name.
        control: the public key that leaders sign by.
    """

    def __init__(self, host: str, control: str) -> None:
        self._host, self._control = host, control

    def encode(self, kind: str, message: Struct) -> bytes:  # noqa: ARG002 - as leaders' has it
        """Bytes of a message; the bus vouches for it."""
        return packed(encode(message))

    def decode(self, subject: str, of: type[_T], data: bytes) -> _T:
        """A leader's message to this host."""
        return self.opened(kind_of(subject), of, data)

    def opened(self, kind: str, of: type[_T], data: bytes) -> _T:
        """What a leader has signed for this host.

        Raises:
            msgspec.DecodeError: the bytes are no such message.
            NotTheirsError: no leader has signed it, or for another host.
        """
        message = _opened(kind, of, data, self._control)
        if getattr(message, "host", None) != self._host:
            raise NotTheirsError("it is for another host")
        return message


def body_of(data: bytes) -> bytes:
    """What was signed, without its signature."""
    return data[SIGNATURE_BYTES:]


def _opened(kind: str, of: type[_T], data: bytes, control: str) -> _T:
    signature, body = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    if len(signature) < SIGNATURE_BYTES or not is_signed(_signed(kind, body), signature, control):
        raise NotTheirsError("no leader of this fleet has signed it")
    return decode(of, body)


def _signed(kind: str, body: bytes) -> bytes:
    return f"cwdp.v2 {kind} ".encode() + body
