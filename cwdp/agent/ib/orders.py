"""What the agent and its process that reads InfiniBand (`cwdp.agent.ib.process`) tell each other."""

from msgspec import Struct

from cwdp.shared.ib.reports import IbGrowth, IbSubnet, IbTables


class IbOrder(Struct, frozen=True, kw_only=True):
    """What is to be read.

    Attributes:
        host: in whose name messages are.
        device, port: by which is asked; "" and 0 for the first that is active.
        tell: another number has the subnet told again, whole.
    """

    host: str
    device: str = ""
    port: int = 0
    tell: int = 0


class IbWord(Struct, frozen=True, kw_only=True):
    """What was read; one of the messages at most.

    Attributes:
        trouble: why nothing can be read; "" where it can.
        doubts: what is amiss with the subnet.
        counters: totals by name.
    """

    subnet: IbSubnet | None = None
    tables: IbTables | None = None
    growth: IbGrowth | None = None
    trouble: str = ""
    doubts: list[str] = []
    counters: dict[str, int]
