"""The contract between agent and manager: bus subjects and message types, version 2.

Desired state goes down, measurements come up. Messages travel as MessagePack, those that go up packed
(`cwdp.shared.bus.packing`, which also turns the `rows` of a message). An unknown field is ignored, so that one side can be
upgraded before the other, and a wrong type is refused.

| subject                        | from    | type          | how                                         |
| ------------------------------ | ------- | ------------- | ------------------------------------------- |
| `cwdp.v2.POD.up.HOST.hello`    | agent   | `Hello`       | once a second: membership and link state    |
| `cwdp.v2.POD.up.HOST.report`   | agent   | `Report`      | several a second: fits, paths, counters     |
| `cwdp.v2.POD.up.HOST.qp`       | agent   | `QpReport`    | several a second where such traffic is, else one |
| `cwdp.v2.POD.up.HOST.steer`    | agent   | `SteerReport` | every other second: what is steered now     |
| `cwdp.v2.POD.up.HOST.verbs`    | agent   | `VerbsReport` | every other second where programs have loaded the verbs shim |
| `cwdp.v2.POD.up.HOST.tcp`      | agent   | `TcpReport`   | several a second where TCP services are named and do something |
| `cwdp.v2.POD.up.HOST.sample`   | agent   | `SampleReport` | several a second where such traffic is    |
| `cwdp.v2.POD.up.HOST.burst`    | agent   | `BurstReport` | several a second where such traffic pauses  |
| `cwdp.v2.POD.up.HOST.window`   | agent   | `WindowReport` | several a second: what became of probes    |
| `cwdp.v2.POD.up.HOST.trace`    | agent   | `TraceReport` | when paths were traced that were asked for  |
| `cwdp.v2.POD.up.HOST.bounced`  | agent   | `BounceReport` | when echoes were sent that were asked for  |
| `cwdp.v2.POD.up.HOST.migrated` | agent   | `MigrationReport` | when steps of migrations are done, or refused |
| `cwdp.v2.POD.up.HOST.audit`    | agent   | `AuditReport` | when facts were asked for                   |
| `cwdp.v2.POD.up.HOST.event`    | agent   | `Event`       | as it happens                               |
| `cwdp.v2.POD.down.HOST.clock`  | manager | `ClockUpdate` | after each solve                            |
| `cwdp.v2.POD.down.HOST.bounce` | manager | `BounceOrder` | to tell two suspected links apart           |
| `cwdp.v2.POD.down.HOST.migrate` | manager | `MigrationOrder` | to have queue pairs over InfiniBand take another path |
| `cwdp.v2.POD.down.HOST.audit`  | manager | `AuditOrder`  | when an operator has hosts audited          |
| `cwdp.v2.POD.down.HOST.document` | manager | `Desired`   | whenever the bucket's key is written        |
| `cwdp.v2.POD.down.HOST.change` | manager | `changes.Change` | to agents that read them                 |
| KV `cwdp-desired`/POD.HOST     | manager | `Desired`     | a versioned document, kept by JetStream     |
| KV `cwdp-desired`/POD.HOST.change | manager | `changes.Change` | all changes since it was written whole |

A host is in one pod, a part of the fleet that one manager decides for. What goes up is the host's own, as the bus permits
it nothing else; what comes down is signed (`cwdp.shared.bus.sealing`). What an agent says bears the ID that it gave itself when
it began (`FromAgent`), so that two with one name are told apart.
Subjects are made in `cwdp.shared.bus.subjects`. A NIC is named `HOST/IFNAME` (`nic_id`). Times ending in `_local_ns` are readings of that host's own clock; those on the common timeline end in `_ns`.
"""

from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from cwdp.shared.addresses import IbPort, PortLids
from cwdp.shared.bus.clocks import ChangedClock, Discipline, OwnChange
from cwdp.shared.bus.edges import EdgeRows
from cwdp.shared.slices import SliceSet
from cwdp.shared.tcp import SteeredTcp, SteerTcp

DESIRED_BUCKET = "cwdp-desired"
HELLO_INTERVAL_S = 1.0
DEFAULT_REPORT_INTERVAL_S = 0.25

Port = Annotated[int, Meta(ge=1, le=65535)]
ClockState = Literal["unsynced", "synced", "holdover", "set_aside"]
DataplaneMode = Literal["native", "generic", "absent"]
Transport = Literal["xdp", "ud"]
Actuator = Literal["tc", "mlx5dv", "bnxt", "sqd", "create_only", "apm"]
ACTUATORS: tuple[Actuator, ...] = ("tc", "mlx5dv", "bnxt", "sqd", "create_only", "apm")
"""What moves a queue pair: the dataplane, the device by its vendor's library or by APM, draining it first, or nothing."""

Milliseconds = Annotated[float, Meta(gt=0, le=3_600_000)]
ReportInterval = Annotated[float, Meta(ge=0.1, le=10)]
LARGEST_VERSION = 2**53

_T = TypeVar("_T", bound=Struct)


class UdAddress(Struct, frozen=True):
    """Where probes between UD queue pairs are received.

    Attributes:
        gid: a RoCE v2 GID; on InfiniBand the first LID in the form of one (`cwdp.rdma.ib.lid`).
        qpn: the queue pair.
        sports: the UDP source ports that it can send from; empty for any from 0xC000 to 0xFFFF. On InfiniBand, its LIDs.
    """

    gid: str
    qpn: Annotated[int, Meta(ge=1, le=0xFFFFFF)]
    sports: Annotated[tuple[Port, ...], Meta(max_length=64)] = ()


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

    An agent that is to observe only measures and reports, and changes nothing about anybody's packets. One that
    `reads_changes` takes in changes of its document beside it (`cwdp.shared.bus.desired.changes`). By `verbs` the
    host serves programs that have loaded the verbs shim, so that it can spread and move what they connect; `ib_ports` are those
    of InfiniBand that they take the LIDs of.
    """

    host: str
    boot_id: str
    version: str
    dataplane_tag: str
    nics: list[Nic]
    desired_version: int
    key_ids: list[int]
    observe_only: bool = False
    reads_changes: bool = False
    verbs: bool = False
    ib_ports: Annotated[list[IbPort], Meta(max_length=256)] = []


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


class Spread(Struct, frozen=True, kw_only=True):
    """How queue pairs that are yet to be connected are spread, from a NIC of this host to an address.

    They take `sports` by `shares`, in equal parts where there are none: on InfiniBand LIDs of the far port, whose `lids` are, the
    same for both hosts. Where both NICs probe by UD queue pairs, `dst_ud` is the peer's: by it paths in use are watched.
    """

    nic: str
    dst_addr: str
    sports: Annotated[list[Port], Meta(max_length=16)]
    lids: PortLids | None = None
    shares: Annotated[list[Annotated[float, Meta(ge=0, le=1)]], Meta(max_length=16)] = []
    dst_ud: UdAddress | None = None


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


class Leader(NamedTuple):
    """Who leads: a number that is higher than those of all before, and since when, in seconds since 1970 by its clock."""

    epoch: int = 0
    since_s: float = 0.0


class Desired(Struct, frozen=True, kw_only=True):
    """What one host should be doing; a higher version replaces a lower one whole. No `roce` changes none of it.

    `report_interval_s` is how often its agent reports, and probes by window twice as often: longer in a large fleet, or while
    the manager is behind.
    `epoch` and `led_since_s` tell which `Leader` it is from: what an earlier one says counts no more. Where `parts` is not 0
    the document itself lies in so many parts (`cwdp.shared.bus.desired.documents`).
    """

    host: str
    version: Annotated[int, Meta(ge=0, le=LARGEST_VERSION)]
    probes: list[ProbeEdge]
    steer: list[SteerQp] = []
    roce: RoceSettings | None = None
    traces: list[TraceOrder] = []
    slices: list[NicSlices] = []
    detours: list[Detour] = []
    spreads: list[Spread] = []
    tcp: list[SteerTcp] = []
    tcp_traces: list[TraceOrder] = []
    report_interval_s: ReportInterval = DEFAULT_REPORT_INTERVAL_S
    epoch: int = 0
    led_since_s: float = 0.0
    parts: int = 0


class Report(FromAgent, frozen=True, kw_only=True):
    """What an agent measured. `seq` counts reports since its start: a gap is a lost report.

    `fits` are `cwdp.shared.bus.edges.FIT_ROW`s, `paths` are PATH_ROWs. `counters` are totals since the dataplane was loaded or
    the agent started, by name and reason, as `dataplane.nic0.probe_bad_mac`. `discipline` is in every report that is in
    full. `processor_waits_ns`: for how long some program of the host waited for a processor, since it started.
    """

    seq: int
    local_ns: int
    fits: EdgeRows = EdgeRows()
    paths: EdgeRows = EdgeRows()
    counters: dict[str, int]
    clock: "ClockLine | None"
    discipline: Discipline | None = None
    own_change: OwnChange | None = None
    processor_waits_ns: int | None = None


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

    `epoch` and `led_since_s` tell which `Leader` it is from, and `seq` rises: what is older counts no more. `changes` are of this
    host's clock and its peers', of the last seconds. `agent` is the host's last whose word is in it: `short_id`, or empty.
    """

    host: str
    timeline: str
    seq: int
    line: ClockLine
    priors: list[DriftPrior]
    changes: list[ChangedClock] = []
    epoch: int = 0
    led_since_s: float = 0.0
    agent: str | None = None


class PacedQp(Struct, frozen=True):
    """A queue pair that congestion control holds to a rate, by its far end."""

    dst_addr: str
    qpn: int
    rate_bps: float


class NicQueuePairs(Struct, frozen=True, kw_only=True):
    """Queue pairs of a NIC that sent or received since the last report, the busiest if there are too many.

    `rows` are `cwdp.shared.bus.records.QP_ROW`s; `unlisted` counts those left out. `paced` are those of the NIC that are
    held back now. Without rows it says that none moves.
    """

    nic: str
    rows: bytes
    unlisted: int = 0
    paced: list[PacedQp] = []


class QpReport(FromAgent, frozen=True, kw_only=True):
    """The queue pairs of some NICs, read at `local_ns`."""

    local_ns: int
    nics: list[NicQueuePairs]


class SteerReport(FromAgent, frozen=True, kw_only=True):
    """What is steered on a host now: as the manager wanted it once, on whose behalf, and by hand. No `tcp`: it does not tell.

    More than one message holds comes in `parts` messages of one `number`, of which this is the `part`th from 0.
    """

    managed: list[SteerQp]
    by_hand: list[SteerQp]
    tcp: list[SteeredTcp] | None = None
    number: int = 0
    part: Annotated[int, Meta(ge=0)] = 0
    parts: Annotated[int, Meta(ge=1, le=1024)] = 1


class NicSamples(Struct, frozen=True, kw_only=True):
    """Data packets that were stamped as they passed a NIC: `cwdp.shared.bus.records.SAMPLE_ROW`s."""

    nic: str
    rows: bytes


class SampleReport(FromAgent, frozen=True, kw_only=True):
    """Data packets that were stamped as they passed some NICs."""

    nics: list[NicSamples]


class WindowReport(FromAgent, frozen=True, kw_only=True):
    """Probes of some NICs by path and short window of the timeline: `cwdp.shared.bus.windows.PLACED_ROW`s.

    They name paths by their places in the host's table of that number. It is told in `paths`, as `TOLD_PATH`s, when it has
    become another one and each second.
    """

    nics: Annotated[list[str], Meta(min_length=1, max_length=255)]
    table: int
    paths: bytes = b""
    rows: bytes


class Trace(Struct, frozen=True, kw_only=True):
    """The hops of one path. `hops[i]` answered to a hop limit of i + 1; None: nobody did, or two that disagreed.

    `reached` says that the destination itself answered, so that there are no further hops. `protocol` is IPPROTO_TCP of `tcp_traces`.
    """

    nic: str
    dst_addr: str
    sport: int
    hops: list[str | None]
    reached: bool
    local_ns: int
    protocol: int = 0


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

    `time_ns` with its bound is on the common timeline, None while the host was not synced. `lasted_ns`: how long it was silent, or
    healthy. `queue_pairs` and, of a path of TCP (`protocol`), `connections` take it and have a backup.
    """

    time_ns: int | None
    bound_ns: int | None
    dst_addr: str
    sport: int
    lasted_ns: int
    unanswered: int
    hold_down_ns: int
    queue_pairs: int
    connections: int = 0
    protocol: int = 0


EventName = Literal[
    "link_up", "link_down", "nic_failed", "nic_healed", "path_down", "path_up", "steer_refused",
    "detour_refused", "slice_refused", "desired_refused", "clock_refused", "incast_started",
    "incast_ended", "dataplane_loaded", "dataplane_repaired", "dataplane_failed", "rdma_opened",
    "rdma_failed", "agent_started", "keys_changed", "ib_opened", "ib_failed", "ib_doubted",
]  # fmt: skip


class Event(FromAgent, frozen=True, kw_only=True):
    """Something happened on a host; `detail` is for people."""

    local_ns: int
    kind: EventName
    nic: str | None
    detail: str
    path: PathChange | None = None


def encode(message: Struct) -> bytes:
    """Bytes of a message for the bus."""
    return msgspec.msgpack.encode(message)


def decode(kind: type[_T], data: bytes) -> _T:
    """A message from the bus.

    Raises:
        msgspec.DecodeError: the bytes are not such a message (counted and dropped by the receiver).
    """
    return msgspec.msgpack.decode(data, type=kind)


def nic_id(host: str, ifname: str) -> str:
    """The fabric-wide name of a NIC."""
    return f"{host}/{ifname}"


def host_of(nic: str) -> str:
    """The host of a NIC's fabric-wide name."""
    return nic.rpartition("/")[0]
