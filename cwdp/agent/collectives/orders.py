"""What the process that reads rings of collectives tells the agent."""

from msgspec import Struct

from cwdp.nccl.calls import COUNTERS as CALL_COUNTERS
from cwdp.nccl.ring import COUNTS
from cwdp.shared.bus.collectives import Communicator

COUNTERS = (
    "programs_refused", "programs_garbage", "programs_mute", *(f"plugin_{name}" for name in COUNTS), *CALL_COUNTERS,
)  # fmt: skip
STATES = ("programs", "calls_open", "read_us")
"""What of the process's numbers are no totals."""


class NcclOrder(Struct, frozen=True, kw_only=True):
    """What it is told: nothing yet."""


class NcclWord(Struct, frozen=True, kw_only=True):
    """Calls that are over, as `cwdp.shared.bus.collectives.CollectiveReport` has them but by CLOCK_MONOTONIC; or none."""

    counters: dict[str, int]
    comms: list[Communicator]
    calls: bytes = b""
    peers: bytes = b""
    chunks: bytes = b""
