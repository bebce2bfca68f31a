"""What agents tell of queue pairs that programs have told of by the verbs shim."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cwdp.shared.bus.messages import FromAgent


class NicVerbs(Struct, frozen=True, kw_only=True):
    """Queue pairs of a NIC that programs have told of by the verbs shim: `cwdp.shared.bus.records.VERBS_ROW`s."""

    nic: str
    rows: bytes


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
    """All queue pairs that programs of a host have told of by the verbs shim, in parts as in `SteerReport`."""

    nics: list[NicVerbs]
    programs: list[Program] = msgspec.field(default_factory=list)
    number: int = 0
    part: Annotated[int, Meta(ge=0)] = 0
    parts: Annotated[int, Meta(ge=1, le=1024)] = 1
