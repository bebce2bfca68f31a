"""The contract between agent and manager: bus subjects and message types, version 1.

Desired state goes down, measurements come up. Messages travel as MessagePack; an unknown field is
ignored, so that one side can be upgraded before the other, and a wrong type is refused.

| subject                | from    | type          | how                                         |
| ---------------------- | ------- | ------------- | ------------------------------------------- |
| `cwdp.v1.hello.HOST`   | agent   | `Hello`       | once a second: membership and link state    |
| `cwdp.v1.report.HOST`  | agent   | `Report`      | several a second: fits, paths, counters     |
| `cwdp.v1.qp.HOST`      | agent   | `QpReport`    | several a second per NIC with such traffic, else one |
| `cwdp.v1.steer.HOST`   | agent   | `SteerReport` | every other second: what is steered now     |
| `cwdp.v1.sample.HOST`  | agent   | `SampleReport` | several a second per NIC with such traffic |
| `cwdp.v1.window.HOST`  | agent   | `WindowReport` | several a second per NIC that probes       |
| `cwdp.v1.trace.HOST`   | agent   | `TraceReport` | when paths were traced that were asked for  |
| `cwdp.v1.bounced.HOST` | agent   | `BounceReport` | when echoes were sent that were asked for  |
| `cwdp.v1.event.HOST`   | agent   | `Event`       | as it happens                               |
| `cwdp.v1.clock.HOST`   | manager | `ClockUpdate` | after each solve                            |
| `cwdp.v1.bounce.HOST`  | manager | `BounceOrder` | to tell two suspected links apart           |
| KV `cwdp-desired`/HOST | manager | `Desired`     | a versioned document, kept by JetStream     |

What an agent says bears the ID that it gave itself when it began (`FromAgent`), so that two with one name are told apart.
Host names become one subject token each (`token`). A NIC is named `HOST/IFNAME` (`nic_id`).
Times ending in `_local_ns` are readings of that host's own clock; those on the common timeline end in `_ns`.
"""

import re
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from cwdp.shared.bus.clocks import ChangedClock, Discipline, OwnChange
from cwdp.shared.slices import SliceSet

PREFIX = "cwdp.v1"
DESIRED_BUCKET = "cwdp-desired"
HELLO_INTERVAL_S = 1.0

Port = Annotated[int, Meta(ge=1, le=65535)]
ClockState = Literal["unsynced", "synced", "holdover", "set_aside"]
DataplaneMode = Literal["native", "generic", "absent"]
Transport = Literal["xdp", "ud"]
RoceSport = Annotated[int, Meta(ge=0xC000, le=0xFFFF)]
Milliseconds = Annotated[float, Meta(gt=0, le=3_600_000)]
LARGEST_VERSION = 2**53

_T = TypeVar("_T", bound=Struct)


class UdAddress(Struct, frozen=True):
    """Where probes between UD queue pairs are received.

    Attributes:
        gid: a RoCE v2 GID.
        qpn: the queue pair.
        sports: the UDP source ports that it can send from; empty for any from 0xC000 to 0xFFFF.
    """

    gid: str
    qpn: Annotated[int, Meta(ge=1, le=0xFFFFFF)]
    sports: Annotated[tuple[RoceSport, ...], Meta(max_length=64)] = ()


class Nic(Struct, frozen=True, kw_only=True):
    """One network interface that cwdp probes from; it takes detours in if its driver has XDP metadata.

    By `ud` it has one address, that of its GID, and no dataplane; `ud` is None while its RDMA device is not to be had.
    `speed_bps` is its link's as its driver tells, None where it does not.
    """

    ifname: str
    mac: str
    ipv4: str | None
    ipv6: str | None
    carrier: bool
    mode: DataplaneMode
    transport: Transport = "xdp"
    ud: UdAddress | None = None
    takes_detours: bool = True
    speed_bps: int | None = None


class Hello(Struct, frozen=True, kw_only=True):
    """An agent is there; sent once a second and whenever a NIC changes.

    An agent that is to observe only measures and reports, and changes nothing about anybody's packets.
    """

    host: str
    boot_id: str
    version: str
    dataplane_tag: str
    nics: list[Nic]
    desired_version: int
    key_ids: list[int]
    observe_only: bool = False


class FromAgent(Struct, frozen=True, kw_only=True):
    """What an agent says. `boot_id` is that of its hellos; empty from an older agent, which told it in some kinds only."""

    host: str
    boot_id: str = ""


class ProbeEdge(Struct, frozen=True, kw_only=True):
    """A peer to probe: from the NIC `src` of this host to `dst` (`HOST/IFNAME`), over some paths.

    `sports[k]` selects the way there and `reply_sports[k]` the way back. The peer is given the same pairs
    with the two swapped, so both hosts initiate over the same physical paths. Where both NICs probe by UD queue
    pairs, `dst_ud` is the peer's.
    """

    src: str
    dst: str
    src_addr: str
    dst_addr: str
    sports: list[Port]
    reply_sports: list[Port]
    pairs_per_s: float
    dst_ud: UdAddress | None = None


class SteerQp(Struct, frozen=True, kw_only=True):
    """Where the packets of one queue pair are to go that leave by a NIC of this host.

    The queue pair is named by its far end: destination address and QPN. `sport` and `backup_sport` select its
    path and the one to take while that is dead. Over IPv6 the flow label follows the port where `flow_label` is set.
    `override` is set where an operator of the manager wants it so; otherwise it is the planner's, or set by hand.
    """

    nic: str
    dst_addr: str
    qpn: int
    sport: int
    backup_sport: int | None = None
    flow_label: bool = False
    override: bool = False


class Detour(Struct, frozen=True, kw_only=True):
    """What a NIC of this host does while its queue pairs to an address have neither path nor backup.

    It sends to `other_addr` instead, the address of another NIC of that host, if there is one; and where that is no
    way either, this host's other NIC sends in its place. `sport` selects the path of each.
    """

    nic: str
    dst_addr: str
    other_addr: str | None
    sport: Port


class NicSlices(Struct, frozen=True, kw_only=True):
    """The bandwidth slices of a NIC of this host. A NIC for which there are none wanted is in no such message."""

    nic: str
    wanted: SliceSet


class RoceSettings(Struct, frozen=True, kw_only=True):
    """What the dataplanes of all hosts go by.

    A path is given up after `dead_after_ms` of silence and used again after `hold_down_ms` of health, twice as
    long with each relapse up to `hold_down_max_ms`. One data packet in `sample_every` is stamped at both ends; 0
    for none.
    """

    dead_after_ms: Milliseconds = 10.0
    hold_down_ms: Milliseconds = 500.0
    hold_down_max_ms: Milliseconds = 60_000.0
    sample_every: Annotated[int, Meta(ge=0, le=2**24)] = 256


class TraceOrder(Struct, frozen=True, kw_only=True):
    """Whose hops are to be found, and kept track of: the paths from a NIC of this host by some source ports.

    `switches` is how many others have found on the way between the same two leaves, None where that is not known.
    """

    nic: str
    dst_addr: str
    sports: list[Port]
    switches: Annotated[int, Meta(ge=1, le=16)] | None = None


class Desired(Struct, frozen=True, kw_only=True):
    """What one host should be doing; a higher version replaces a lower one whole. No `roce` changes none of it.

    `epoch` numbers who leads: what an earlier leader says counts no more. Where `parts` is not 0 the document itself
    lies in so many parts (`cwdp.shared.bus.documents`).
    """

    host: str
    version: Annotated[int, Meta(ge=0, le=LARGEST_VERSION)]
    probes: list[ProbeEdge]
    steer: list[SteerQp] = []
    roce: RoceSettings | None = None
    traces: list[TraceOrder] = []
    slices: list[NicSlices] = []
    detours: list[Detour] = []
    epoch: int = 0
    parts: int = 0


class EdgeFit(Struct, frozen=True, kw_only=True):
    """One support-vector fit over one window, made by the initiator `src` (both are NIC names).

    When the initiator's clock shows `ref_local_ns`, the peer's shows
    `ref_local_ns + offset_base_ns + offset_ns`; the difference grows by `slope` per ns of the initiator's clock.
    In a `torn` fit the two clouds overlap, so a clock stepped or lied within the window; its numbers are void.
    Where a clock was found to have changed lately, the fit rests on what came after `since_local_ns`. It is `young` for
    some seconds, and `cut` as long as too little has come: its numbers are void. `apart` is how fast the clocks were seen
    to move apart then, and `own` that most of the initiator's edges were, so that it must have been its clock.
    """

    src: str
    dst: str
    ref_local_ns: int
    offset_base_ns: int
    offset_ns: float
    slope: float
    margin_ns: float
    sigma_offset_ns: float
    sigma_out_ns: float
    sigma_back_ns: float
    sigma_slope: float
    points: float
    pure_share: float
    torn: bool = False
    cut: bool = False
    young: bool = False
    own: bool = False
    apart: float = 0.0
    since_local_ns: int | None = None


class PathStat(Struct, frozen=True, kw_only=True):
    """Probes of one path and their one-way delays on the common timeline, since the last report.

    Delays are None while either end is not synced. `fwd` is source to destination by `sport`, `rev` the
    way back by `reply_sport`. `bound_ns` is the sum of both hosts' clock bounds. `queued` counts pairs whose
    spacing changed on the way.
    """

    src: str
    dst: str
    sport: int
    reply_sport: int
    sent: int
    lost: int
    queued: int
    rtt_min_ns: int | None
    fwd_min_ns: int | None
    fwd_p50_ns: int | None
    fwd_p99_ns: int | None
    rev_min_ns: int | None
    rev_p50_ns: int | None
    rev_p99_ns: int | None
    bound_ns: int | None


class Report(FromAgent, frozen=True, kw_only=True):
    """What an agent measured. `seq` counts reports since its start: a gap is a lost report.

    `counters` are totals since the dataplane was loaded or the agent started, by name and reason, for
    instance `dataplane.nic0.probe_bad_mac` or `agent.report_dropped`. `discipline` is in every report that is in full.
    """

    seq: int
    local_ns: int
    fits: list[EdgeFit]
    paths: list[PathStat]
    counters: dict[str, int]
    clock: "ClockLine | None"
    discipline: Discipline | None = None
    own_change: OwnChange | None = None


class ClockLine(Struct, frozen=True, kw_only=True):
    """A host's clock against the timeline: global = local + base + offset + drift * (local - ref).

    The error bound at a local time is `bound_ns + bound_drift * |local - ref|`. A clock that has changed a few seconds
    ago is `found_anew` with each solution.
    """

    ref_local_ns: int
    offset_base_ns: int
    offset_ns: float
    drift: float
    bound_ns: float
    bound_drift: float
    state: ClockState
    found_anew: bool = False


class DriftPrior(Struct, frozen=True, kw_only=True):
    """What is known of the rate of `dst`'s clock relative to this host's, for the next fits."""

    dst: str
    slope: float
    sigma: float


class ClockUpdate(Struct, frozen=True, kw_only=True):
    """The manager's latest solution for one host. `timeline` changes only when the timeline is a new one.

    `seq` rises within an `epoch`, which numbers who leads; what is older counts no more. `changes` are of this host's clock and its peers', of the last seconds.
    """

    host: str
    timeline: str
    seq: int
    line: ClockLine
    priors: list[DriftPrior]
    changes: list[ChangedClock] = []
    epoch: int = 0


class PacedQp(Struct, frozen=True):
    """A queue pair that congestion control holds to a rate, by its far end."""

    dst_addr: str
    qpn: int
    rate_bps: float


class QpReport(FromAgent, frozen=True, kw_only=True):
    """Queue pairs of a NIC that sent or received since the last report, the busiest if there are too many.

    `rows` are `cwdp.shared.bus.records.QP_ROW`s, read at `local_ns`; `unlisted` counts those left out. `paced` are those
    of the NIC that are held back now. Without rows it says that none moves.
    """

    nic: str
    local_ns: int
    rows: bytes
    unlisted: int
    paced: list[PacedQp] = []


class SteerReport(FromAgent, frozen=True, kw_only=True):
    """What is steered on a host now: as the manager wanted it once, on whose behalf, and by hand.

    More than one message holds comes in `parts` messages of one `number`, of which this is the `part`th from 0.
    """

    managed: list[SteerQp]
    by_hand: list[SteerQp]
    number: int = 0
    part: Annotated[int, Meta(ge=0)] = 0
    parts: Annotated[int, Meta(ge=1, le=1024)] = 1


class SampleReport(FromAgent, frozen=True, kw_only=True):
    """Data packets that were stamped as they passed a NIC: `cwdp.shared.bus.records.SAMPLE_ROW`s."""

    nic: str
    rows: bytes


class WindowReport(FromAgent, frozen=True, kw_only=True):
    """Probes of a NIC by path and short window of the timeline: `cwdp.shared.bus.records.WINDOW_ROW`s."""

    nic: str
    rows: bytes


class Trace(Struct, frozen=True, kw_only=True):
    """The hops of one path. `hops[i]` answered to a hop limit of i + 1; None: nobody did, or two that disagreed.

    `reached` says that the destination itself answered, so that there are no further hops.
    """

    nic: str
    dst_addr: str
    sport: int
    hops: list[str | None]
    reached: bool
    local_ns: int


class TraceReport(FromAgent, frozen=True, kw_only=True):
    """Paths that were traced since the last report."""

    traces: list[Trace]


class BounceOrder(Struct, frozen=True, kw_only=True):
    """So many ICMP echoes from a NIC to a switch's own address, spread over a time; `number` names the order."""

    host: str
    nic: str
    number: int
    target: str
    count: int
    seconds: float


class BounceReport(FromAgent, frozen=True, kw_only=True):
    """What came of a `BounceOrder`."""

    nic: str
    number: int
    target: str
    sent: int
    lost: int


class PathChange(Struct, frozen=True, kw_only=True):
    """A path that was given up for its backup, or is used again; decided by the dataplane.

    `time_ns` with its bound is on the common timeline, None while the host was not synced. `lasted_ns` is how
    long the path was silent, or healthy. `queue_pairs` counts those that take it and have a backup.
    """

    time_ns: int | None
    bound_ns: int | None
    dst_addr: str
    sport: int
    lasted_ns: int
    unanswered: int
    hold_down_ns: int
    queue_pairs: int


EventName = Literal[
    "link_up",
    "link_down",
    "nic_failed",
    "nic_healed",
    "path_down",
    "path_up",
    "steer_refused",
    "detour_refused",
    "slice_refused",
    "incast_started",
    "incast_ended",
    "dataplane_loaded",
    "dataplane_repaired",
    "dataplane_failed",
    "rdma_opened",
    "rdma_failed",
    "agent_started",
    "keys_changed",
]


class Event(FromAgent, frozen=True, kw_only=True):
    """Something happened on a host; `detail` is for people."""

    local_ns: int
    kind: EventName
    nic: str | None
    detail: str
    path: PathChange | None = None


_encoder = msgspec.msgpack.Encoder()


def encode(message: Struct) -> bytes:
    """Bytes of a message for the bus."""
    return _encoder.encode(message)


def decode(kind: type[_T], data: bytes) -> _T:
    """A message from the bus.

    Raises:
        msgspec.DecodeError: the bytes are not such a message (counted and dropped by the receiver).
    """
    return msgspec.msgpack.decode(data, type=kind)


def token(host: str) -> str:
    """A host name as one token of a bus subject: letters, digits, `-` and `_`; all else becomes `_`."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", host)


def subject(kind: str, host: str) -> str:
    """The subject of a kind of message for a host; `*` stands for every host."""
    return f"{PREFIX}.{kind}.{host if host == '*' else token(host)}"


def nic_id(host: str, ifname: str) -> str:
    """The fabric-wide name of a NIC."""
    return f"{host}/{ifname}"


def host_of(nic: str) -> str:
    """The host of a NIC's fabric-wide name."""
    return nic.rpartition("/")[0]
