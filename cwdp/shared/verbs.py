"""What agents tell of queue pairs that programs have told of by the verbs shim, and what they have those do over InfiniBand."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from cwdp.shared.bus.messages import FromAgent


class NicVerbs(Struct, frozen=True, kw_only=True):
    """Queue pairs of a NIC that programs have told of by the verbs shim: `cwdp.shared.bus.records.VERBS_ROW`s.

    `alternates` has, where some have one, for each row the DLID of the alternate path that it was ordered to load (little-endian, 16
    bits); 0 for none.
    """

    nic: str
    rows: bytes
    alternates: bytes = b""


class Program(Struct, frozen=True, kw_only=True):
    """A program that has such queue pairs.

    Attributes:
        cgroup: its path in the hierarchy of version 2; empty where it has none.
        job: as STARTER:ID, such as `slurm:4711`; empty where it is of none that is known.
    """

    pid: int
    name: str
    cgroup: str = ""
    job: str = ""


class VerbsReport(FromAgent, frozen=True, kw_only=True):
    """All queue pairs that programs of a host have told of by the verbs shim, in parts as in `SteerReport`.

    `monotonic_ns` is the host's CLOCK_MONOTONIC as it is said; 0 from an agent that takes no `MigrationOrder`.
    """

    nics: list[NicVerbs]
    programs: list[Program] = msgspec.field(default_factory=list)
    number: int = 0
    part: Annotated[int, Meta(ge=0)] = 0
    parts: Annotated[int, Meta(ge=1, le=1024)] = 1
    monotonic_ns: Annotated[int, Meta(ge=0)] = 0


class MigrationStep(Struct, frozen=True, kw_only=True):
    """One step of automatic path migration (IBTA volume 1, 17.2.8) for one queue pair of a host.

    Attributes:
        number: of the step, among all of its leader.
        nic, dst_addr, qpn, lqpn, pid: the queue pair as its agent tells of it.
        dlid, lmc: the path to load or to migrate to, and the LMC of the far port.
    """

    number: Annotated[int, Meta(ge=1)]
    nic: str
    dst_addr: str
    qpn: int
    lqpn: int
    pid: int
    dlid: Annotated[int, Meta(ge=1, le=0xBFFF)]
    lmc: Annotated[int, Meta(ge=0, le=7)]
    how: Literal["load", "migrate"]


class MigrationOrder(Struct, frozen=True, kw_only=True):
    """Steps that a host's queue pairs are to take; nothing of it is begun after `until_ns` of the host's CLOCK_MONOTONIC."""

    host: str
    epoch: int
    until_ns: int
    steps: Annotated[list[MigrationStep], Meta(max_length=4096)]


class MigrationAnswer(Struct, frozen=True):
    """What came of a step: an errno, 0 where it is done; see `cwdp_verbs_moved` of `cwdp/rdma/shim/wire.h`."""

    number: int
    error: Annotated[int, Meta(ge=0, le=4095)]


class MigrationReport(FromAgent, frozen=True, kw_only=True):
    """Answers to a leader's steps."""

    answers: list[MigrationAnswer]
