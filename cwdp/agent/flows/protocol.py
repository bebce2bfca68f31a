"""What a flow program is told, one JSON object on its standard input, and what it says at its end: one on its standard output."""

from typing import Annotated

from msgspec import Meta, Struct

LONGEST_TROUBLE = 200


class ProgramFlow(Struct, frozen=True, kw_only=True):
    """A flow of this host, as `cwdp.shared.bus.audits.Flow`; `local_addr` is the NIC's own."""

    id: int
    nic: str
    local_addr: str
    peer_addr: str
    sends: bool
    sport: int


class ProgramOrder(Struct, frozen=True, kw_only=True):
    """What is to be sent and received.

    Attributes:
        number: of the round, the same at both ends.
        begin_s: sending begins so long after the program was started; who receives must be ready by then.
        begin_at_ns: the same moment on CLOCK_MONOTONIC.
        lasts_s: for so long is sent.
        cap_bps: no flow exceeds this; 0 for no cap.
        flows: each once.
    """

    number: int
    begin_s: float
    begin_at_ns: int
    lasts_s: float
    cap_bps: int
    flows: list[ProgramFlow]


class ProgramTold(Struct, frozen=True, kw_only=True):
    """What came of a flow that was sent: payload that has arrived, in which time; or why it did not run, or could not be received."""

    id: int
    carried_bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    took_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    trouble: str = ""


class ProgramAnswer(Struct, frozen=True, kw_only=True):
    """All flows that were sent, and those that were not received for a reason."""

    flows: list[ProgramTold]
