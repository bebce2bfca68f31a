"""What operators want of the bandwidth slices of all hosts."""

from pathlib import Path

import msgspec
from msgspec import Struct

from cwdp.errors import ConfigError
from cwdp.shared.bus.messages import NicSlices
from cwdp.shared.slices import SliceSet
from manager.overrides.store import OverrideTable

ANY_LINK_BPS = 10**15
"""A link that no guarantees exceed, where the host alone knows the rate of its own."""

HOST_SLICES_BYTES = 512 * 1024
"""Of the slices of one host's NICs in its document; more is no operator's intention."""

Key = tuple[str, str]


class SliceOverride(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The slices of one NIC."""

    host: str
    nic: str
    wanted: SliceSet

    @property
    def key(self) -> Key:
        """What there is one override for at most."""
        return self.host, self.nic

    def __str__(self) -> str:
        return f"slices {', '.join(each.name for each in self.wanted.slice)}"

    def message(self) -> NicSlices:
        """For the host's document."""
        return NicSlices(nic=self.nic, wanted=self.wanted)


def read_slice_override(body: bytes) -> SliceOverride:
    """An override from JSON.

    Raises:
        ConfigError: it is none, or cannot be granted on any link.
    """
    try:
        override = msgspec.json.decode(body, type=SliceOverride)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(error), "see: cwdp slice apply --help") from error
    if not override.wanted.slice:
        raise ConfigError("there is no slice in it", "to have none: cwdp slice delete")
    override.wanted.shares(override.wanted.given_link_bps() or ANY_LINK_BPS)
    return override


class SliceTable(OverrideTable[SliceOverride]):
    """Every override for the slices of a NIC."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, SliceOverride)

    def set(self, override: SliceOverride) -> None:
        """Take an override in, in place of the one for the same NIC.

        Raises:
            ConfigError: the slices of the host would be too long to be told.
            ManagerError: it cannot be kept.
        """
        others = [other.message() for other in self.all(override.host) if other.key != override.key]
        told_bytes = len(msgspec.msgpack.encode([*others, override.message()]))
        if told_bytes > HOST_SLICES_BYTES:
            raise ConfigError(
                f"the slices of {override.host} would be {told_bytes} bytes, and {HOST_SLICES_BYTES} can be told",
                "list fewer queue pairs under jobs, or match them by address or DSCP",
            )
        super().set(override)

    def messages(self) -> dict[str, list[NicSlices]]:
        """What each host is to be told."""
        by_host: dict[str, list[NicSlices]] = {}
        for override in self.all():
            by_host.setdefault(override.host, []).append(override.message())
        return by_host
