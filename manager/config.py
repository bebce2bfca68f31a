"""The manager's settings, from a TOML file; the command line overrides them."""

from pathlib import Path
from socket import gethostname
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from cwdp.errors import ConfigError
from cwdp.shared.bus.messages import RoceSettings
from cwdp.shared.config import read_toml
from manager.probing.schedule import Family

DEFAULT_SOCKET = "/run/cwdp/manager.sock"
DEFAULT_STATE_DIR = "/var/lib/cwdp"
DEFAULT_BUS_LISTEN = "127.0.0.1:4222"
DEFAULT_PAGE = "127.0.0.1:9465"
DEFAULT_CHECKS = "/etc/cwdp/checks"


class ProbeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the fabric is probed. `pairs_per_s` is per NIC and divided over its `degree` peers."""

    degree: Annotated[int, Meta(ge=2, le=64)] = 10
    paths: Annotated[int, Meta(ge=1, le=64)] = 8
    pairs_per_s: Annotated[float, Meta(gt=0, le=1e6)] = 1000.0
    family: Family = "4"
    seed: Annotated[int, Meta(ge=0, le=2**32)] = 1


class RoceConfig(RoceSettings, frozen=True, forbid_unknown_fields=True):
    """What every host's dataplane goes by."""


class PlannerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What the manager may do about queue pairs by itself.

    No queue pair is moved twice within `hold_s`, one that is moved again and again ever more seldom, and at most
    `moves_per_host_s` of a host and `moves_per_s` of the fleet in a second. A move must make the fullest link that it
    is about emptier by the share `least_gain`.
    """

    enabled: bool = True
    hold_s: Annotated[float, Meta(ge=0, le=3600)] = 2.0
    moves_per_host_s: Annotated[float, Meta(gt=0, le=1e6)] = 8.0
    moves_per_s: Annotated[float, Meta(gt=0, le=1e6)] = 1000.0
    least_gain: Annotated[float, Meta(gt=0, lt=1)] = 0.05


class HistorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of the past: in `dir` below the state directory, so long, and so much in all at most."""

    dir: str = "history"
    days: Annotated[float, Meta(gt=0, le=3650)] = 90.0
    max_bytes: Annotated[int, Meta(ge=1 << 24, le=1 << 50)] = 1 << 33


class RoleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which groups of this machine may look, which may steer, and which may let hosts and people in and out.

    `loopback` is what every user of this machine is who comes by TCP to a loopback address and shows no credential.
    """

    viewers: tuple[str, ...] = ("cwdp",)
    operators: tuple[str, ...] = ("cwdp-operators",)
    administrators: tuple[str, ...] = ("cwdp-administrators",)
    loopback: Literal["none", "viewer"] = "none"


class TlsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """TLS of `listen` and `page`, which all addresses but loopback have.

    The certificate is signed by the fleet's authority, for the addresses and `names`, unless one of your own is given.
    """

    names: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""


class ManagerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings; `name` is for people. Without `nats`, a private nats-server listens on `bus_listen`.

    The fleet's authority is kept in the directory `authority`, below the state directory unless given; without `nats` it
    is made where there is none. The manager decides for the hosts of its `pod`. The API is served on `listen` too, the page on
    `page`; not at all where that is empty. Files `*.toml` of the folder `checks` say what audits expect besides the default.
    """

    name: str = field(default_factory=gethostname)
    pod: Annotated[str, Meta(pattern="^[a-z0-9_-]{1,128}$")] = "main"
    authority: str = ""
    nats: str | None = None
    bus_listen: str = DEFAULT_BUS_LISTEN
    state_dir: str = DEFAULT_STATE_DIR
    socket: str = DEFAULT_SOCKET
    listen: str | None = None
    page: str = DEFAULT_PAGE
    checks: str = DEFAULT_CHECKS
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    probes: ProbeSettings = ProbeSettings()
    roce: RoceConfig = RoceConfig()
    planner: PlannerSettings = PlannerSettings()
    history: HistorySettings = HistorySettings()
    roles: RoleSettings = RoleSettings()
    tls: TlsSettings = TlsSettings()

    @property
    def authority_dir(self) -> Path:
        """Where the fleet's authority is kept."""
        return Path(self.authority) if self.authority else Path(self.state_dir) / "authority"


def load(path: Path) -> ManagerConfig:
    """Read a config file.

    Raises:
        ConfigError: the file can't be read, isn't TOML, has an unknown key or a value of the wrong type.
    """
    return read_toml(path, ManagerConfig)


def host_port(text: str, option: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 host stands in brackets.

    Raises:
        ConfigError: it is not of that form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{option}: {text!r} is not HOST:PORT", "for instance 127.0.0.1:4222 or [::1]:4222")
    return host.removeprefix("[").removesuffix("]"), int(port)
