"""What lies on the bus for each host: a document, in parts where it is too long, and the change to it; under which keys."""

from dataclasses import dataclass

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.js.api import RePublish

from cwdp.shared.bus.buckets import Bucket
from cwdp.shared.bus.desired.changes import KIND as CHANGE
from cwdp.shared.bus.desired.changes import Change, changed, changes
from cwdp.shared.bus.messages import DESIRED_BUCKET, Desired, decode
from cwdp.shared.bus.sealing import Seal, body_of
from cwdp.shared.bus.subjects import PREFIX

KIND = "document"
MOST_BYTES = 1 << 32
"""Of all documents: a bus that is full of them has room for the lease still."""

TRIES = 4
MOST_PARTS = 64


class Part(Struct, frozen=True, kw_only=True):
    """A piece of a document's bytes; `epoch` and `version` are the document's."""

    epoch: int
    version: int
    data: bytes


class _Stamp(Struct, frozen=True):
    """What documents and parts have in common."""

    epoch: int = 0
    parts: int = 0


@dataclass(frozen=True)
class Held:
    """What a key on the bus holds."""

    revision: int
    epoch: int
    parts: int
    is_empty: bool = False


def part_key(key: str, number: int) -> str:
    """Under which a part of a document lies, counted from 1."""
    return f"{key}.{number}"


def change_key(key: str) -> str:
    """Under which the change to a document lies."""
    return f"{key}.{CHANGE}"


def bucket() -> Bucket:
    """The bucket of documents; what is written is published again to the host whose it is."""
    return Bucket(
        DESIRED_BUCKET,
        max_bytes=MOST_BYTES,
        republish=RePublish(
            src=f"$KV.{DESIRED_BUCKET}.*.*",
            dest=f"{PREFIX}.{{{{wildcard(1)}}}}.down.{{{{wildcard(2)}}}}.{KIND}",
        ),
    )


@dataclass(frozen=True)
class Stored:
    """What the bus holds for a host.

    Attributes:
        held: of its key.
        whole: the document there; None where there is none that can be read.
        change: revision and bytes of the change beside it.
        to_it: that, where it is one to `whole`.
    """

    held: Held
    whole: Desired | None
    change: tuple[int, bytes]
    to_it: Change | None

    def document(self) -> Desired | None:
        """What the host is to do."""
        if self.whole is None or self.to_it is None:
            return self.whole
        return changed(self.whole, self.to_it)


async def read(client: Client, bucket: Bucket, under: str, seal: Seal, *, latest: bool = False) -> Stored:
    """What the bus holds for a host; the change is read after the document, and both again where it is to a later one.

    `latest` is as of `Bucket.read`.

    Raises:
        nats.errors.Error, OSError: as in `JETSTREAM_ERRORS`; there may be no bucket.
    """
    held, whole, found, change = Held(0, 0, 0), None, (0, b""), None
    for _ in range(TRIES):
        revision, data = await bucket.read(client, under, latest=latest)
        held, whole = held_of(revision, data), None
        found = await bucket.read(client, change_key(under), latest=latest)
        change = _change(found[1], seal)
        try:
            head = seal.opened(KIND, Desired, data)
            whole = await _whole(client, bucket, under, head, seal, latest=latest) if head.parts else head
        except (msgspec.DecodeError, UnicodeDecodeError):
            if not data:
                break
            continue
        if change is None or (change.epoch, change.base) <= (whole.epoch, whole.version):
            break
    is_to_it = whole is not None and change is not None and changes(whole, change)
    return Stored(held, whole, found, change if is_to_it else None)


def _change(data: bytes, seal: Seal) -> Change | None:
    """A change as it lies there; None where there is none, or nobody signed it."""
    try:
        return seal.opened(CHANGE, Change, data) if data else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


async def _whole(
    client: Client, bucket: Bucket, under: str, head: Desired, seal: Seal, *, latest: bool
) -> Desired:
    """The document that a head stands for.

    Raises:
        msgspec.DecodeError: its parts are not there; they may be on the way.
    """
    pieces = []
    for number in range(1, min(head.parts, MOST_PARTS) + 1):
        part = decode(Part, (await bucket.read(client, part_key(under, number), latest=latest))[1])
        if (part.epoch, part.version) != (head.epoch, head.version):
            raise msgspec.DecodeError("a part is another document's")
        pieces.append(part.data)
    return seal.opened(KIND, Desired, b"".join(pieces))


def held_of(revision: int, data: bytes) -> Held:
    """Of what was read; what is no document of anybody's may be replaced."""
    try:
        stamp = decode(_Stamp, body_of(data))
    except (msgspec.DecodeError, UnicodeDecodeError):
        stamp = _Stamp()
    return Held(revision, stamp.epoch, stamp.parts, is_empty=not data)
