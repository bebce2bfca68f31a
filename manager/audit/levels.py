"""What an audit is asked for with."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Level = Literal["facts", "network", "throughput"]
"""How far it goes; each goes as far as the one before it, and further."""

Stage = Literal["facts", "walks", "flows"]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What people ask for.

    Attributes:
        hosts: patterns of names; none for all.
        force: at the level `throughput` also send by NICs on which queue pairs send.
        cap_bps: that no flow is to exceed; 0 for no cap.
    """

    level: Level = "facts"
    hosts: list[str] = []
    force: bool = False
    cap_bps: Annotated[int, Meta(ge=0, le=10**13)] = 0

    @property
    def is_sound(self) -> bool:
        """Whether what is about flows is asked for only where there are some."""
        return self.level == "throughput" or not (self.force or self.cap_bps)
