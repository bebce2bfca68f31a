"""What the fabric consists of, now or at a time of the past, and in which order its leaves are shown. No I/O."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

from manager.fabric.model import Cable, Model, Node
from manager.fabric.wiring import Miswired
from manager.history.queries import Elements
from manager.hosts.order import in_order, natural
from manager.view.json_values import Json
from manager.view.link_table import Link


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Switches, where NICs sit, and what is wrong with how they are plugged in.

    Attributes:
        nodes: every switch.
        seats: the switches that each NIC hangs from.
        cables: the links between switches, the lower end first.
        rails: the leaves of each interface name, where they have leaves of their own.
        suspects: links that may be in the wrong port.
        aside: hosts whose word on paths does not count.
        avoided: links that nothing is sent over.
    """

    nodes: Sequence[Node] = ()
    seats: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cables: Collection[Cable] = ()
    rails: Mapping[str, Sequence[str]] = field(default_factory=dict)
    suspects: Sequence[Json] = ()
    aside: Sequence[str] = ()
    avoided: Collection[Link] = ()

    @cached_property
    def tiers(self) -> dict[str, int]:
        """The tier of each switch, 1 for leaves."""
        return {node.name: node.tier for node in self.nodes}

    @cached_property
    def nics_at(self) -> dict[str, list[str]]:
        """The NICs at each switch, in order."""
        found = defaultdict[str, list[str]](list)
        for nic in in_order(self.seats):
            for switch in self.seats[nic]:
                found[switch].append(nic)
        return dict(found)

    @cached_property
    def leaf_of(self) -> dict[str, str]:
        """The leaf of each NIC; of one that hangs from several the first."""
        return {nic: switches[0] for nic, switches in self.seats.items() if switches}

    @cached_property
    def above(self) -> dict[str, list[str]]:
        """The switches above each, in order."""
        found = defaultdict[str, list[str]](list)
        for low, high in self.cables:
            found[low].append(high)
        return {low: in_order(high) for low, high in found.items()}

    @cached_property
    def below(self) -> dict[str, list[str]]:
        """The switches below each, in order."""
        found = defaultdict[str, list[str]](list)
        for low, high in self.cables:
            found[high].append(low)
        return {high: in_order(low) for high, low in found.items()}

    @cached_property
    def leaves(self) -> list[str]:
        """The leaves by rail, then by what is above them (their pod), then by name."""
        rail = {leaf: i for i, leaves in enumerate(self.rails.values()) for leaf in leaves}

        def place(leaf: str) -> tuple[object, ...]:
            return rail.get(leaf, -1), [natural(each) for each in self.above.get(leaf, ())], natural(leaf)

        return sorted((name for name, tier in self.tiers.items() if tier == 1), key=place)

    def rails_of(self, leaf: str) -> list[str]:
        """The rails that a leaf is of."""
        return [ifname for ifname, leaves in self.rails.items() if leaf in leaves]


def of_now(
    model: Model, suspects: Iterable[Miswired], aside: Iterable[str], avoided: Iterable[Link]
) -> Parts:
    """The fabric as it is known."""
    return Parts(
        nodes=model.nodes,
        seats=model.seats,
        cables=model.cables,
        rails=model.rails,
        suspects=[asdict(suspect) for suspect in suspects],
        aside=in_order(aside),
        avoided=frozenset((a, b) for a, b in avoided),
    )


def of_then(known: Elements) -> Parts:
    """The fabric as history has it."""
    return Parts(
        nodes=tuple(Node(name, data["tier"], data["answers"]) for name, data in known["switch"].items()),
        seats={nic: data["switches"] for nic, data in known["seat"].items()},
        cables=[(data["a"], data["b"]) for data in known["cable"].values()],
        rails={ifname: data["leaves"] for ifname, data in known["rail"].items()},
        suspects=list(known["suspect"].values()),
        aside=in_order(known["aside"]),
        avoided=frozenset((data["a"], data["b"]) for data in known["avoided"].values()),
    )
