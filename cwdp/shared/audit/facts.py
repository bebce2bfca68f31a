"""What is read of a host for an audit: facts, without a verdict, so that old ones can be judged anew."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from cwdp.shared.audit.asks import Asked

FACTS_VERSION = 1
SubjectKind = Literal["host", "nic", "rdma", "gpu"]
Role = Literal["back", "front", ""]
Value = bool | int | float | str | Sequence[int | float | str]
"""Lists, of numbers or texts. One kind of array only, as msgspec reads no union of two."""


class Subject(Struct, frozen=True, kw_only=True):
    """A part of a host that has facts of its own.

    Attributes:
        kind: what it is; the first word of its facts' names in the catalogue.
        name: of it on its host: `eth0`, `mlx5_0/1` (device and port), `0` (a GPU's index); "" for the host itself.
        role: `back` for a NIC of the fabric between GPUs, `front` for that of the default route, with
            RDMA devices as their NIC; "" for what is neither.
        facts: by name in the catalogue, without its first word. One whose name is not there is ignored.
        missing: why a fact is not available, by the same names. A fact in neither does not apply to this subject.
    """

    kind: SubjectKind
    name: str = ""
    role: Role = ""
    facts: dict[str, Value] = {}
    missing: dict[str, str] = {}


class Walk(Struct, frozen=True, kw_only=True):
    """A packet that is sent again and again over one path, each time one hop further: what switches do to it shows in their answers.

    Attributes:
        nic: the interface to send from.
        dst_addr: where to; of the address family of the packet.
        sport: the UDP source port that selects the path; the destination port is that of RoCEv2.
        size_bytes: of the IP packet, which is not to be divided on the way (DF).
        tos: of the IPv4 header, or traffic class: DSCP and ECN (RFC 2474, RFC 3168).
        hops: it is sent with hop limits from 1 up to this.
    """

    nic: str
    dst_addr: str
    sport: Annotated[int, Meta(ge=1, le=65535)]
    size_bytes: Annotated[int, Meta(ge=128, le=65535)]
    tos: Annotated[int, Meta(ge=0, le=255)]
    hops: Annotated[int, Meta(ge=1, le=16)]


class WalkHop(Struct, frozen=True, kw_only=True):
    """What came of a walk's packet with one hop limit.

    Attributes:
        answer: `expired` at the hop that it was to expire at, `too_big` where it did not fit (RFC 1191, RFC 8201),
            `unreachable`, or `none`.
        responder: the address of who answered; "" for nobody.
        tos: that the packet had when it came there, as quoted; -1 where no quote tells.
        mtu_bytes: that a `too_big` tells; 0 where it tells none.
    """

    answer: Literal["expired", "too_big", "unreachable", "none"]
    responder: str = ""
    tos: int = -1
    mtu_bytes: int = 0


class Walked(Struct, frozen=True, kw_only=True):
    """A walk, with a `WalkHop` for each hop limit from 1 on; or why it was not made."""

    walk: Walk
    hops: list[WalkHop] = []
    trouble: str = ""


class HostFacts(Struct, frozen=True, kw_only=True):
    """All facts of a host.

    Attributes:
        version: of the catalogue; `FACTS_VERSION` of who has read them.
        taken_s: when they were read, in seconds of Unix time.
        subjects: the host itself first.
        troubles: what could not be read at all, an area and why, such as {"pci": "timed out after 10 s"}.
            Facts of that area are in no subject's `missing`.
        walks: what came of those that were asked for.
        asked: who answered, where that was asked for.
    """

    host: str
    version: int = FACTS_VERSION
    taken_s: float
    subjects: list[Subject]
    troubles: dict[str, str] = {}
    walks: list[Walked] = []
    asked: Asked | None = None
