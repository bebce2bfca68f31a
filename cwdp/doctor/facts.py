"""What is read of a host; plain data, so that what one host shows can be written down and judged on another."""

from typing import Any, Literal

from msgspec import Struct

from cwdp.agent.config import AgentConfig
from cwdp.shared.bus.clocks import DisciplineSource


class Problem(Struct, frozen=True):
    """What was wrong with a file, and the next step."""

    message: str
    hint: str


class Kernel(Struct, frozen=True, kw_only=True):
    """The kernel, and what this process may do with it.

    Attributes:
        release: as uname(2) has it.
        has_btf: whether it describes its types.
        has_jit: whether eBPF programs are compiled; None where that cannot be read.
        capabilities: effective ones of this process, a bit each (capabilities(7)).
        bpffs: the file system for pinned objects.
        available_bytes: of memory.
        tells_waits: whether it tells for how long programs wait for a processor.
    """

    release: str
    has_btf: bool
    has_jit: bool | None
    capabilities: int
    bpffs: Literal["writable", "read-only", "missing"]
    available_bytes: int
    tells_waits: bool


class Dataplane(Struct, frozen=True, kw_only=True):
    """The dataplane of a NIC.

    Attributes:
        mode: `native`, `generic` or `detached`; None where `error` says why it cannot be read.
        is_current: whether this build has loaded it.
        faults: what is not as it should be.
    """

    mode: str | None
    is_current: bool
    faults: list[str]
    error: str | None = None


class Nic(Struct, frozen=True, kw_only=True):
    """A network interface.

    Attributes:
        kind: of a virtual one, such as `veth`; "" of hardware and of the loopback.
        driver: "" where there is none.
        is_ethernet: whether it carries Ethernet frames; the loopback counts.
        master, master_kind: the interface that it is a port of, and what that is; "" for none.
        lower: the interface that it is on top of; "" for none.
        addresses: those of global scope.
        offloads: names by ethtool of those that are on, of the ones that concern XDP.
        xdp_features: bits of `enum netdev_xdp_act` (linux/netdev.h); None where the kernel does not tell.
        program: the kernel's number of an XDP program there; None for none.
        dataplane: ours; None for none, and where it may not be read.
    """

    name: str
    kind: str = ""
    driver: str = ""
    is_ethernet: bool = True
    master: str = ""
    master_kind: str = ""
    lower: str = ""
    mtu: int = 1500
    has_carrier: bool = True
    addresses: list[str] = []
    offloads: list[str] = []
    xdp_features: int | None = None
    program: int | None = None
    dataplane: Dataplane | None = None


class RdmaPort(Struct, frozen=True, kw_only=True):
    """A port of an RDMA device; `is_software` for Soft-RoCE."""

    device: str
    port: int
    state: str
    netdev: str | None
    is_software: bool


class Door(Struct, frozen=True, kw_only=True):
    """What programs find that load a library of ours.

    Attributes:
        library: its path; None where it was not built or installed.
        socket: `open` where anybody may connect, `closed` where only some may, `missing` where there is none.
        is_exposed: whether others than root and the agent's user may put another socket in its place.
    """

    library: str | None
    socket: Literal["open", "closed", "missing"]
    is_exposed: bool = False


class Verbs(Door, frozen=True, kw_only=True):
    """What programs find that load the verbs shim.

    Attributes:
        has_libibverbs: of this host; programs in containers bring theirs.
        libmlx5: the version of this host's; None where it has none.
        moves_mlx5: whether that can move queue pairs.
    """

    has_libibverbs: bool
    libmlx5: str | None
    moves_mlx5: bool = False


class Uprobes(Struct, frozen=True, kw_only=True):
    """What uprobes find.

    Attributes:
        lack: what they lack; None for nothing.
        missing: cgroups that are named and not there.
    """

    lack: Problem | None
    missing: list[str]


class Clock(Struct, frozen=True, kw_only=True):
    """What time the kernel keeps.

    Attributes:
        source: where the agent would read what disciplines CLOCK_MONOTONIC.
        hardware: the kernel's clock source.
        daemons: programs that run and discipline clocks.
    """

    source: DisciplineSource
    hardware: str
    daemons: list[str]


class Firewall(Struct, frozen=True, kw_only=True):
    """What stands in the way of packets that leave.

    Attributes:
        ruleset: the objects that `nft -j list ruleset` lists; None where it cannot be read.
        has_iptables: whether rules of the older kind are there, which are not read.
        tracked, tracked_max: connections that the kernel follows, and its limit; None where it follows none.
    """

    ruleset: list[dict[str, Any]] | None
    has_iptables: bool
    tracked: int | None = None
    tracked_max: int | None = None


class UdpSocket(Struct, frozen=True, kw_only=True):
    """Who receives on the probes' port; `program` is "" for the kernel itself, and where it cannot be seen."""

    address: str
    program: str


class Bus(Struct, frozen=True, kw_only=True):
    """The bus as it answers; `problem` says why it does not."""

    problem: str | None = None
    version: str = ""


class Agent(Struct, frozen=True, kw_only=True):
    """The agent of this host.

    Attributes:
        state, restarts: of its unit by systemd (ActiveState, NRestarts); None where there is none.
        processes: of agents that run in this network namespace.
    """

    state: str | None
    restarts: int
    processes: int


class Known(Struct, frozen=True):
    """Who a credential says that this host is, and until when; None for ever."""

    name: str
    pod: str
    expires_s: float | None


class Facts(Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        config, config_problem: the agent's configuration, or why there is none; exactly one of them is there.
        credential, credential_problem: who this host is on the bus, or why it is nobody; neither without a configuration.
        keys_problem: what is wrong with the cluster's keys.
        nics: those of the configuration that are here; without one, all of hardware.
        has_pyverbs: whether Debian's python3-pyverbs is there.
        verbs, nccl, uprobes: None where the configuration does not ask for them.
        udp_sockets: on the probes' port.
        bus: None without a configuration.
    """

    host: str
    config: AgentConfig | None
    config_problem: Problem | None
    credential: Known | None
    credential_problem: Problem | None
    keys_problem: Problem | None
    kernel: Kernel
    nics: list[Nic]
    rdma_ports: list[RdmaPort]
    has_pyverbs: bool
    clock: Clock
    firewall: Firewall
    udp_sockets: list[UdpSocket]
    bus: Bus | None
    agent: Agent
    verbs: Verbs | None = None
    nccl: Door | None = None
    uprobes: Uprobes | None = None
