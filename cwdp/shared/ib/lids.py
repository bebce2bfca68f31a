"""The LIDs of a port as messages have them."""

from typing import Annotated

from msgspec import Meta, Struct


class PortLids(Struct, frozen=True):
    """The first LID of a port, and its LMC: how many bits of its LIDs are path bits (IBTA volume 1, 4.1.3)."""

    lid: Annotated[int, Meta(ge=1, le=0xBFFF)]
    lmc: Annotated[int, Meta(ge=0, le=7)]
