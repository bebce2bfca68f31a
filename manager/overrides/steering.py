"""What operators want of the queue pairs of all hosts."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cwdp.errors import ConfigError
from cwdp.shared.addresses import read_address
from cwdp.shared.bus.messages import SteerQp
from manager.overrides.store import OverrideTable

SourcePort = Annotated[int, Meta(ge=49152, le=65535)]
LID_MAX = 0xBFFF
PathOf = Annotated[int, Meta(ge=1, le=65535)]
"""A source port or, up to LID_MAX, a LID of the far port: no source port that paths are chosen by is as low."""

Qpn = Annotated[int, Meta(ge=0, le=0xFFFFFF)]
Key = tuple[str, str, str, int]


class SteerOverride(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one queue pair's packets are to go; see `cwdp.shared.bus.messages.SteerQp`. Over InfiniBand `sport` is a LID of the far port."""

    host: str
    nic: str
    dst: str
    qpn: Qpn
    sport: PathOf
    backup_sport: SourcePort | None = None
    flow_label: bool = False

    @property
    def key(self) -> Key:
        """What there is one override for at most."""
        return self.host, self.nic, self.dst, self.qpn

    @property
    def is_by_lid(self) -> bool:
        """Whether it is of a queue pair over InfiniBand: that is ordered to migrate, not told in its host's document."""
        return self.sport <= LID_MAX

    def __str__(self) -> str:
        if self.is_by_lid:
            return f"{self.dst} QPN {self.qpn} takes the path to LID {self.sport}"
        backed = "" if self.backup_sport is None else f", backed up by {self.backup_sport}"
        return f"{self.dst} QPN {self.qpn} leaves from {self.sport}{backed}"

    def message(self) -> SteerQp:
        """For the host's document."""
        return SteerQp(
            nic=self.nic,
            dst_addr=self.dst,
            qpn=self.qpn,
            sport=self.sport,
            backup_sport=self.backup_sport,
            flow_label=self.flow_label,
            override=True,
        )


def read_steer_override(body: bytes) -> SteerOverride:
    """An override from JSON, its address in the one usual form.

    Raises:
        ConfigError: it is none, or cannot be granted anywhere.
    """
    try:
        override = msgspec.json.decode(body, type=SteerOverride)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(error), "see: cwdp steer set --help") from error
    override = msgspec.structs.replace(override, dst=usual_address(override.dst))
    if override.backup_sport == override.sport:
        raise ConfigError(f"source port {override.sport} cannot be its own backup", "give another one")
    return override


def usual_address(text: str) -> str:
    """An IP address as it is usually written.

    Raises:
        ConfigError: it is none.
    """
    try:
        return str(read_address(text))
    except ValueError as error:
        raise ConfigError(f"{text!r} is no IP address", "give one like 10.0.0.2 or fd00::2") from error


class SteerTable(OverrideTable[SteerOverride]):
    """Every override for a queue pair."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, SteerOverride)

    def messages(self) -> dict[str, list[SteerQp]]:
        """What each host is to be told."""
        by_host: dict[str, list[SteerQp]] = {}
        for override in self.all():
            if override.is_by_lid:
                continue
            by_host.setdefault(override.host, []).append(override.message())
        return by_host
