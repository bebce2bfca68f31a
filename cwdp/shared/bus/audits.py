"""What agents and manager tell each other for an audit; parts of `cwdp.shared.bus.messages`."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cwdp.shared.audit.facts import HostFacts, Walk
from cwdp.shared.bus.messages import FromAgent

MOST_WALKS = 1_024
PIECE_BYTES, MOST_PIECES = 256 * 1024, 16
"""Of a host's facts: a message's, and of one audit."""

Number = Annotated[int, Meta(ge=1, le=2**53)]


class AuditOrder(Struct, frozen=True, kw_only=True):
    """A host is to read its facts and tell them.

    Attributes:
        number: of the audit; an order that is repeated has the same.
        within_s: the host begins at a moment of its own in that time, so that not all speak at once.
        walks: to make, besides reading facts.
        reach: also find out what answers besides the fabric: the facts of the area `reach`.
    """

    host: str
    number: Number
    within_s: Annotated[float, Meta(ge=0, le=60)] = 0.0
    walks: Annotated[list[Walk], Meta(max_length=MOST_WALKS)] = []
    reach: bool = False


class AuditReport(FromAgent, frozen=True, kw_only=True):
    """A piece of a host's facts.

    Attributes:
        number: of the order.
        taken_s: when they were read, in seconds of Unix time: pieces of one reading belong together.
        part, parts: which of how many; all make a `HostFacts` in MessagePack.
    """

    number: Number
    taken_s: float
    part: Annotated[int, Meta(ge=0, lt=MOST_PIECES)] = 0
    parts: Annotated[int, Meta(ge=1, le=MOST_PIECES)] = 1
    facts: bytes


def audit_reports(number: int, facts: HostFacts) -> list[AuditReport]:
    """The facts of a host, for an order.

    Raises:
        ValueError: they are larger than MOST_PIECES of PIECE_BYTES.
    """
    whole = msgspec.msgpack.encode(facts)
    pieces = [whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES)]
    if len(pieces) > MOST_PIECES:
        raise ValueError(f"{len(whole)} bytes of facts; {MOST_PIECES * PIECE_BYTES} are told at most")
    return [
        AuditReport(
            host=facts.host, number=number, taken_s=facts.taken_s, part=i, parts=len(pieces), facts=piece
        )
        for i, piece in enumerate(pieces)
    ]


def facts_of(pieces: Sequence[bytes]) -> HostFacts:
    """The facts that all pieces make.

    Raises:
        msgspec.DecodeError: they make none.
    """
    return msgspec.msgpack.decode(b"".join(pieces), type=HostFacts)
