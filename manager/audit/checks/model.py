"""What a check and a waiver are, and which facts they may be about."""

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from cwdp.shared.audit.catalogue import CATALOGUE, Fact
from cwdp.shared.audit.facts import Role

Expectation = Literal[
    "value",
    "one_of",
    "min",
    "max",
    "version_min",
    "contains",
    "excludes",
    "equals_fact",
    "same_in_group",
]
Severity = Literal["warn", "fail"]
Plain = bool | int | float | str
Wanted = Plain | tuple[Plain, ...]

DERIVED: Mapping[str, Fact] = MappingProxyType(
    {
        "host.back_nics": Fact("number", "nics", "NICs of the fabric between GPUs that it tells of"),
        "host.front_nics": Fact("number", "nics", "NICs with its default route that it tells of"),
        "host.nic_devices": Fact(
            "texts", "pci", "how many NICs of each device, such as `8 x 15b3:1021 15b3:0040`"
        ),
        "host.rdma_ports": Fact("number", "rdma", "ports of RDMA devices that it tells of"),
        "host.gpus": Fact("number", "gpus", "GPUs that it tells of"),
        "nic.route_count": Fact("number", "routes", "how many `nic.routes` there are"),
        "nic.address_count": Fact("number", "links", "how many `nic.addresses` there are"),
    }
)
"""Facts that are counted here, from what hosts tell."""

FACTS: Mapping[str, Fact] = MappingProxyType({**CATALOGUE, **DERIVED})
"""All that a check may be about, by name."""


class Check(Struct, frozen=True, kw_only=True):
    """What one fact ought to be.

    Attributes:
        name: of the check; no other has it.
        fact: by its name in `FACTS`.
        expectation: how the fact is judged; see `manager.audit.judging.expectations`.
        wanted: what is expected: values, the name of a fact for `equals_fact`, True for `same_in_group`.
        severity: the verdict on a value that is not as expected.
        role: of the subjects it is about; "" for all.
        hosts, subjects: patterns of names (`fnmatch`), any of which must fit; all fit where there is none.
        when: other facts of the same subject or host, each with values of which it must have one, or hold one.
        tolerance: by how much numbers of a group may differ from their median: absolute, or a share of the median.
        tolerance_is_share: whether it is a share.
        why: it matters; mend: what to do; reference: the document that says so.
        origin: file and line.
    """

    name: str
    fact: str
    expectation: Expectation
    wanted: Wanted
    severity: Severity
    role: Role = ""
    hosts: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    when: tuple[tuple[str, tuple[Plain, ...]], ...] = ()
    tolerance: float | None = None
    tolerance_is_share: bool = False
    why: str = ""
    mend: str = ""
    reference: str = ""
    origin: str = ""

    @property
    def kind(self) -> str:
        """Of its subjects: the first word of its fact's name."""
        return self.fact.partition(".")[0]


class Waiver(Struct, frozen=True, kw_only=True):
    """What is known and borne with until a day.

    Attributes:
        check, host, subject: patterns of names (`fnmatch`).
        until: the last day on which it holds, in UTC.
        reason: why it is borne with.
        origin: file and line.
    """

    check: str
    host: str = "*"
    subject: str = "*"
    until: date
    reason: str
    origin: str = ""


class Checks(Struct, frozen=True):
    """All that a fleet is judged by."""

    checks: tuple[Check, ...]
    waivers: tuple[Waiver, ...] = ()
