"""The agent's configuration file."""

import socket
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cwdp.agent.collectives.keeper import NcclConfig
from cwdp.agent.tcp.services import TcpConfig, services
from cwdp.dataplane.abi import ROCE_PORT
from cwdp.dataplane.kernel.interface import Generic
from cwdp.dataplane.loading.loader import Settings
from cwdp.errors import ConfigError
from cwdp.rdma.shimwire import SOCKET
from cwdp.shared import testclock
from cwdp.shared.audit.facts import Role
from cwdp.shared.bus.messages import Port, Transport
from cwdp.shared.config import read_toml
from cwdp.shared.partners import partner_of
from cwdp.shared.rates import parse_rate

DEFAULT_CONFIG = Path("/etc/cwdp/agent.toml")
DEFAULT_CREDENTIAL = "/var/lib/cwdp-agent/agent.creds"
DEFAULT_KEYS = "/var/lib/cwdp-agent/keys.toml"
DEFAULT_PULSE_INTERVAL_MS = 2.0
DEFAULT_BURST_GAP_MS = 10.0
CGROUP = r"^/(?!.*\.\.)\S*$"
"""A path from the root, with nothing that leads out of it."""


class TestClockConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A clock of its own for this host, in a file of `cwdp.shared.testclock`; only for labs."""

    file: str


class CongestionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Queue pairs whose packets wait in the fabric for longer than this are paced.

    Attributes:
        link_rate: of the NICs, such as `100gbit`, where their drivers do not tell it.
    """

    threshold_us: Annotated[float, Meta(ge=1, le=1_000_000)] = 1_000.0
    link_rate: str | None = None


class VerbsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Programs that have loaded the verbs shim are served.

    Attributes:
        socket: by which they connect.
        drain: queue pairs that their device cannot move otherwise are drained for it when the manager wants them elsewhere.
        lids: queue pairs over InfiniBand take other LIDs than the first; only where all programs, at both ends, have the shim.
    """

    socket: str = SOCKET
    drain: bool = False
    lids: bool = False


class UprobesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Programs of these cgroups, and of those below them, are traced.

    Attributes:
        cgroups: their paths as /proc/PID/cgroup has them, in which `*` is any part of a name; none is off.
    """

    cgroups: Annotated[list[Annotated[str, Meta(pattern=CGROUP)]], Meta(max_length=16)] = []


class FlowsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an audit of the throughput sends by.

    Attributes:
        program: `perftest`, `none` for not at all, or a command of the operator's own (`cwdp.agent.flows.protocol`).
    """

    program: Literal["perftest", "none"] | Annotated[list[str], Meta(min_length=1)] = "perftest"


class IbConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether this host reads its InfiniBand subnet for the manager.

    Attributes:
        read: a few hosts of a subnet should, not all; it needs access to /dev/infiniband/umad*.
        device, port: by which; the first that is active unless given.
    """

    read: bool = False
    device: str = ""
    port: Annotated[int, Meta(ge=0, le=255)] = 0


class InterfaceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a NIC is probed from: by its dataplane, or by UD queue pairs of its RDMA device.

    Attributes:
        rdma_device, rdma_port, gid_index: for the latter; None is looked for.
    """

    transport: Transport = "xdp"
    rdma_device: str | None = None
    rdma_port: Annotated[int, Meta(ge=1, le=255)] | None = None
    gid_index: Annotated[int, Meta(ge=0, le=65_535)] | None = None


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`/etc/cwdp/agent.toml`. With `observe_only` the agent measures, and applies no desired state to anybody's packets.

    Attributes:
        burst_gap_ms: a longer gap between data packets of a queue pair ends a burst.
        go_back: queue pairs of Soft-RoCE send again at once what a path has swallowed that is given up.
        roles: what interfaces are for an audit, where that is not `back` for `nics` and those with RDMA, `front` for those
            with a default route; "" for neither.
    """

    nics: list[str]
    nats: str = "nats://127.0.0.1:4222"
    host: Annotated[str, Meta(pattern="^[^/ ]+$")] = msgspec.field(default_factory=socket.gethostname)
    credential: str = DEFAULT_CREDENTIAL
    keys: str = DEFAULT_KEYS
    probe_port: Port = ROCE_PORT
    pulse_interval_ms: Annotated[float, Meta(ge=0.5, le=1000)] = DEFAULT_PULSE_INTERVAL_MS
    burst_gap_ms: Annotated[float, Meta(ge=1, le=1000)] = DEFAULT_BURST_GAP_MS
    observe_only: bool = False
    generic: Generic = "refuse"
    go_back: bool = True
    congestion: CongestionConfig | None = None
    verbs: VerbsConfig | None = None
    nccl: NcclConfig | None = None
    uprobes: UprobesConfig = UprobesConfig()
    tcp: TcpConfig | None = None
    flows: FlowsConfig = FlowsConfig()
    ib: IbConfig = IbConfig()
    interface: dict[str, InterfaceConfig] = {}
    roles: dict[str, Role] = {}
    test_clock: TestClockConfig | None = None

    @property
    def pacing(self) -> CongestionConfig | None:
        """How congestion is to be controlled; None for not at all."""
        return None if self.observe_only else self.congestion

    @property
    def goes_back(self) -> bool:
        """Whether queue pairs are told to go back."""
        return self.go_back and not self.observe_only and bool(self.xdp_nics)

    @property
    def ud_nics(self) -> dict[str, InterfaceConfig]:
        """The NICs that probe by UD queue pairs; they have no dataplane."""
        return {ifname: self.interface[ifname] for ifname in self.nics if self._transport(ifname) == "ud"}

    @property
    def xdp_nics(self) -> list[str]:
        """The NICs that have a dataplane."""
        return [ifname for ifname in self.nics if self._transport(ifname) == "xdp"]

    def partners(self) -> dict[str, str]:
        """The NIC that stands in for each that has one; none while the agent only observes."""
        if self.observe_only:
            return {}
        able = self.xdp_nics
        pairs = {ifname: partner_of(self.nics, ifname) for ifname in able}
        return {
            ifname: partner for ifname, partner in pairs.items() if partner is not None and partner in able
        }

    def _transport(self, ifname: str) -> Transport:
        return self.interface[ifname].transport if ifname in self.interface else "xdp"

    def settings(self) -> Settings:
        """What the dataplane is loaded with.

        Raises:
            ConfigError: the file of the lab's clock is missing or wrong.
        """
        clock = None if self.test_clock is None else testclock.load(Path(self.test_clock.file))
        return Settings(probe_port=self.probe_port, test_clock=clock, generic=self.generic)


def read_config(path: Path) -> AgentConfig:
    """Read the agent's configuration.

    Raises:
        ConfigError: it is missing or wrong.
    """
    config = read_toml(path, AgentConfig)
    if not (config.nics or config.ib.read or (config.verbs and config.verbs.lids)):
        raise ConfigError(
            f"{path}: nics names no interface",
            "name the fabric's; with InfiniBand alone set [ib] read = true or [verbs] lids = true",
        )
    if len(set(config.nics)) < len(config.nics):
        raise ConfigError(f"{path}: nics names an interface twice: {config.nics}", "name each one once")
    if config.congestion and config.congestion.link_rate:
        parse_rate(config.congestion.link_rate)
    if config.tcp:
        try:
            services(config.tcp, config.nats)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", error.hint) from error
    for ifname, one in config.interface.items():
        if ifname not in config.nics:
            raise ConfigError(
                f"{path}: [interface.{ifname}] is of no interface in nics", f"nics = {config.nics}"
            )
        if one.transport != "ud" and one != InterfaceConfig():
            raise ConfigError(
                f"{path}: [interface.{ifname}] names an RDMA device without using it",
                'add transport = "ud", or leave it out',
            )
    return config
