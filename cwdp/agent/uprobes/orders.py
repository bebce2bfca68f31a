"""What the agent and its process for uprobes (`cwdp.agent.uprobes.process`) tell each other."""

from typing import NamedTuple

from msgspec import Struct

from cwdp.agent.collectives.orders import NcclWord
from cwdp.agent.uprobes.probes.records import COUNTS, QpSeen

COUNTERS = (
    *(f"records_{name}" for name in COUNTS), "attached", "attach_failed", "programs_unreadable", "libraries_unreachable", "calls_told", "calls_untold",
    "calls_of_plugins", "comms_unknown", "queue_pairs_untold",
)  # fmt: skip
STATES = ("programs", "libraries", "memory_kib")
"""What of the process's numbers are no totals."""


class UprobesOrder(Struct, frozen=True, kw_only=True):
    """Whose programs are traced."""

    cgroups: list[str]


class Owner(NamedTuple):
    """The program that a queue pair is of.

    Attributes:
        started: when it was started, in clock ticks since the host was; tells it from another one with its number.
        told_job: a variable of its environment that names its job, NAME=VALUE; "" for none.
    """

    pid: int
    started: int
    told_job: str


class UprobesWord(Struct, frozen=True, kw_only=True):
    """What was seen since the last word.

    Attributes:
        trouble: why not all is traced that should be; "" where nothing is amiss.
        queue_pairs: what became of which, in this order.
        calls: of NCCL, as the process for its plug-in tells of them.
    """

    counters: dict[str, int]
    trouble: str = ""
    queue_pairs: list[tuple[QpSeen, Owner]] = []
    calls: NcclWord | None = None
