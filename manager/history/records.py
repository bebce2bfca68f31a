"""What the log of record consists of, as it travels on the bus and goes into the store.

A message is numbered by who wrote it, without gaps that matter: whoever has taken in a number of an origin has taken in
all before it, so that a message that comes twice is known by its number.
"""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from cwdp.shared.bus.messages import PathChange
from manager.hosts.happening import Move, Moves

LONGEST_BYTES = 512 * 1024
"""Of a message; nats-server takes 1 MB unless told otherwise."""

Link = tuple[str, str]
What = Literal["switch", "cable", "seat", "rail", "suspect", "aside", "avoided"]
ElementName = tuple[What, str]


class EventRecord(Struct, frozen=True, kw_only=True, tag="event"):
    """Something happened, as `manager.hosts.happening.Happening` has it."""

    time_s: float
    host: str
    kind: str
    nic: str | None
    detail: str
    path: PathChange | None = None
    why: str | None = None
    moves: Moves | None = None


class SubjectRecord(Struct, frozen=True, kw_only=True):
    """What a finding is about."""

    kind: str
    name: str
    links: list[Link]


class FindingRecord(Struct, frozen=True, kw_only=True, tag="finding"):
    """A finding as it is from `time_s` on; over where it has an end."""

    time_s: float
    number: int
    kind: str
    subject: SubjectRecord
    also: list[SubjectRecord]
    confidence: float
    loss: float
    evidence: list[str]
    start_s: float
    end_s: float | None = None


class MoveRecord(Move, frozen=True, kw_only=True, tag="move"):
    """What the planner did with a queue pair; managers before this one told nothing of how it was before, nor why."""

    time_s: float


class OverrideRecord(Struct, frozen=True, kw_only=True, tag="override"):
    """An operator's change, and what it replaced; `by` is empty where nobody said who it was, `why` None where they did not say."""

    time_s: float
    host: str
    nic: str
    what: Literal["steer", "slice"]
    action: Literal["set", "withdrawn"]
    wanted: dict[str, Any]
    before: dict[str, Any] | None = None
    by: str = ""
    why: str | None = None


class Element(Struct, frozen=True, kw_only=True):
    """A part of the fabric: its name among those of its kind, and what else is known of it."""

    what: What
    name: str
    data: dict[str, Any] = field(default_factory=dict)


class FabricRecord(Struct, frozen=True, kw_only=True, tag="fabric"):
    """Parts that are there from `time_s` on, or have changed; and parts that are no more."""

    time_s: float
    present: list[Element]
    gone: list[ElementName]


class LeaderRecord(Struct, frozen=True, kw_only=True, tag="leader"):
    """Whose word counts from now on: findings of earlier leaders that are open are over, unless they are told again."""

    time_s: float
    name: str


Record: TypeAlias = EventRecord | FindingRecord | MoveRecord | OverrideRecord | FabricRecord | LeaderRecord


class Message(Struct, frozen=True, kw_only=True):
    """Records that were written together."""

    origin: str
    number: int
    records: list[Record]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encoded(message: Message) -> bytes:
    """For the bus."""
    return _encoder.encode(message)


def decoded(data: bytes) -> Message:
    """From the bus.

    Raises:
        msgspec.DecodeError: it is none that this version knows.
    """
    return _decoder.decode(data)


def size_bytes(record: Record) -> int:
    """Of one record within a message."""
    return len(_encoder.encode(record))
