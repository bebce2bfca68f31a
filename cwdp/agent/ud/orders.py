"""What the agent and its process for UD queue pairs (`cwdp.agent.ud.process`) tell each other."""

from enum import IntEnum

from msgspec import Struct

from cwdp.shared.bus.messages import ClockLine, UdAddress

ROW_FIELDS = ("path", "fate", "t1", "t2", "t3", "t4", "fwd_owd_ns", "rev_owd_ns", "bound_ns")
Row = tuple[int, int, int, int, int, int, int, int, int]
"""A probe that is decided; what follows its fate holds where that is ANSWERED. The delays are on the timeline, and
`bound_ns` is `cwdp.rdma.udwire.UNSYNCED_BOUND_NS` where either end was not on it."""


class Fate(IntEnum):
    """What became of a probe."""

    UNSENT = 0
    LOST = 1
    ANSWERED = 2


class UdPathOrder(Struct, frozen=True):
    """A path there and back."""

    peer: UdAddress
    sport: int
    reply_sport: int


class UdWatched(Struct, frozen=True):
    """A path of queue pairs that is to be watched.

    Attributes:
        peer: the UD queue pair at its end.
        dst_addr: the address that they go to.
        sport: their source port.
        in_use: whether they take it now, or only could.
    """

    peer: UdAddress
    dst_addr: str
    sport: int
    in_use: bool


class WatchPace(Struct, frozen=True, kw_only=True):
    """How paths are watched, as configured; never faster than `cwdp.agent.ud.watch` does.

    Attributes:
        interval_ns: from one pulse to the next over a path that is in use.
        dead_after_ns: so long one is silent before it is down.
        hold_down_ns: so long it is healthy before it is up again.
    """

    interval_ns: int = 0
    dead_after_ns: int = 0
    hold_down_ns: int = 0


class UdOrder(Struct, frozen=True, kw_only=True):
    """Everything that the process is to do, each time.

    Attributes:
        device, port, gid_index, driver: what to send from, as `cwdp.rdma.udlink.UdLink`.
        keys: the cluster's keys, 16 bytes in hex, by number; `send_key` is the one to sign with.
        version: of `paths` and `turns`.
        paths: what to probe.
        turns: indices into `paths`, in the order of sending; a pair of probes each.
        pairs_per_s: how fast turns follow one another.
        line: this host's clock against the timeline, None while that is not known.
        ahead_of_raw_ns: local time less CLOCK_MONOTONIC_RAW; None for local time that is CLOCK_MONOTONIC.
        test_clock: the file of this host's clock, in a lab.
        nic: the NIC.
        watched: paths of queue pairs that are to be watched.
        pace: how.
    """

    device: str
    port: int
    gid_index: int
    driver: str | None
    keys: dict[int, str]
    send_key: int
    version: int = 0
    paths: list[UdPathOrder] = []
    turns: list[int] = []
    pairs_per_s: float = 0.0
    line: ClockLine | None = None
    ahead_of_raw_ns: int | None = None
    test_clock: str | None = None
    nic: str = ""
    watched: list[UdWatched] = []
    pace: WatchPace = WatchPace()


class DownPaths(Struct, frozen=True):
    """The paths of a NIC that are down now, all of them: destination address and source port.

    `decided_ns` is when that was found, by CLOCK_MONOTONIC; 0 where it is said again.
    """

    nic: str
    paths: list[tuple[str, int]]
    decided_ns: int = 0


class UdWord(Struct, frozen=True, kw_only=True):
    """What the process says.

    Attributes:
        address: where it receives; None while it has no queue pairs.
        trouble: why it has none.
        version: of the order that `rows` are of.
        rows: probes that are decided, those of a pair one after the other.
        counters: totals by name.
    """

    address: UdAddress | None
    trouble: str
    version: int
    rows: list[Row]
    counters: dict[str, int]
