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


class ManagerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings; `name` is for people. Without `nats`, a private nats-server listens on `bus_listen`.

    The page is served on `page`; not at all where that is empty.
    """

    name: str = field(default_factory=gethostname)
    nats: str | None = None
    bus_listen: str = DEFAULT_BUS_LISTEN
    state_dir: str = DEFAULT_STATE_DIR
    socket: str = DEFAULT_SOCKET
    listen: str | None = None
    page: str = DEFAULT_PAGE
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    probes: ProbeSettings = ProbeSettings()
    roce: RoceConfig = RoceConfig()
    planner: PlannerSettings = PlannerSettings()
    history: HistorySettings = HistorySettings()


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
