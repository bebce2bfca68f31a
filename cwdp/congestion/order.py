"""What the agent and the process that controls congestion tell each other, as lines of JSON."""

from typing import Literal

from msgspec import Struct

from cwdp.shared.bus.messages import PacedQp


class Order(Struct, frozen=True):
    """Congestion is to be controlled on an interface.

    Attributes:
        load: changes whenever the dataplane was loaded anew, so that its maps are opened anew.
        threshold_us: queueing delay in the fabric from which on queue pairs are paced.
        link_rate: of the interface, where the kernel does not know it.
    """

    ifname: str
    load: int
    threshold_us: float
    link_rate: str | None


class Happened(Struct, frozen=True):
    """Something to be told of an interface."""

    kind: Literal["incast_started", "incast_ended"]
    ifname: str
    detail: str


class Word(Struct, frozen=True):
    """What the process says, once a second and when something has happened.

    Attributes:
        counters: totals since it began, by name.
        paced: what is paced now, by interface.
        happened: since the word before.
    """

    counters: dict[str, int]
    paced: dict[str, list[PacedQp]]
    happened: list[Happened]
