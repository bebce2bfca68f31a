"""What agents and manager tell each other for an audit; parts of `cwdp.shared.bus.messages`."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cwdp.shared.audit.asks import Ask
from cwdp.shared.audit.facts import HostFacts, Walk
from cwdp.shared.bus.messages import FromAgent

MOST_WALKS = 1_024
MOST_FLOWS = 64
"""Of a host in one round: each of its NICs sends one and receives one."""

LONGEST_FLOWS_S = 30.0
LATE = "it was not ready when sending was to begin"
"""The trouble of a flow that may run if there is more time before it."""

PIECE_BYTES, MOST_PIECES = 256 * 1024, 16
"""Of a host's facts: a message's, and of one audit."""

Number = Annotated[int, Meta(ge=1, le=2**53)]


class AuditOrder(Struct, frozen=True, kw_only=True):
    """A host is to read its facts and tell them.

    Attributes:
        number: of the audit; an order that is repeated has the same.
        within_s: the host begins at a moment of its own in that time, so that not all speak at once.
        walks: to make, besides reading facts.
        ask: whom to probe, over which NICs and how many ports.
        reach: also find out what answers besides the fabric: the facts of the area `reach`.
    """

    host: str
    number: Number
    within_s: Annotated[float, Meta(ge=0, le=60)] = 0.0
    walks: Annotated[list[Walk], Meta(max_length=MOST_WALKS)] = []
    ask: Ask | None = None
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


class Flow(Struct, frozen=True, kw_only=True):
    """Traffic between two NICs over one path, as one of its ends has it.

    Attributes:
        id: the same at both ends, and no other's of the round.
        nic: of this host.
        peer_addr: of the NIC at the other end.
        sends: whether this host sends, else it receives.
        sport: the UDP source port of what is sent, which selects the path.
    """

    id: Annotated[int, Meta(ge=1, le=2**20)]
    nic: str
    peer_addr: str
    sends: bool
    sport: Annotated[int, Meta(ge=1, le=65535)]


class FlowOrder(Struct, frozen=True, kw_only=True):
    """A host is to send, or to receive, as fast as it can: a round of an audit's throughput.

    Attributes:
        number: of the round; an order that is repeated has the same.
        begin_s: who sends begins so long after the order has come; who receives must be ready by then.
        lasts_s: for so long is sent.
        cap_bps: no flow exceeds this; 0 for no cap.
        force: also on NICs on which queue pairs send.
        flows: which.
    """

    host: str
    number: Number
    begin_s: Annotated[float, Meta(ge=0, le=LONGEST_FLOWS_S)]
    lasts_s: Annotated[float, Meta(gt=0, le=LONGEST_FLOWS_S)]
    cap_bps: Annotated[int, Meta(ge=0, le=2**53)] = 0
    force: bool = False
    flows: Annotated[list[Flow], Meta(max_length=MOST_FLOWS)]


class FlowTold(Struct, frozen=True, kw_only=True):
    """What a sender has seen of a flow: of what it carried, or why it did not run.

    Attributes:
        carried_bytes: payload that has arrived; 0 also of a path that carries nothing.
        took_s: in that time.
        trouble: why it could not be sent or received, whatever its path; "" where it ran.
    """

    id: int
    carried_bytes: Annotated[int, Meta(ge=0)] = 0
    took_s: Annotated[float, Meta(ge=0)] = 0.0
    trouble: str = ""


class FlowReport(FromAgent, frozen=True, kw_only=True):
    """What became of a round's flows that a host sends, and of those that it could not receive."""

    number: Number
    flows: Annotated[list[FlowTold], Meta(max_length=MOST_FLOWS)]


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
