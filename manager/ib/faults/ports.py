"""The ports of a subnet, each with a number that stays, whatever row it has in a snapshot. No I/O."""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import CHANNEL_ADAPTER, Subnet
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Subject

MOST_PORTS = 500_000
"""More than ten subnets can have; beyond it all is forgotten, as somebody invents ports."""


LONGEST_S = 10.0
"""Of a gap between polls in which what grew is counted by its time: in a longer one it counts as if it had been so long."""


class End(NamedTuple):
    """A port, by its node's GUID."""

    guid: int
    number: int


class Ports:
    """Ports by their numbers, which are called slots: those of the present snapshot, and those that were there before.

    Attributes:
        ends: of each slot.
        slots: of each row of the snapshot, shape (rows,).
        rows: of each slot, -1 where it is not there now, shape (slots,).
        present: GUIDs of the nodes that are there.
    """

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.slots: NDArray[np.intp] = np.zeros(0, np.intp)
        self.rows: NDArray[np.intp] = np.zeros(0, np.intp)
        self.present: frozenset[int] = frozenset()
        self._slot: dict[End, int] = {}
        self._names: dict[int, str] = {}
        self._hosts: set[int] = set()
        self._link_ends: dict[int, str] = {}
        self._port_names: dict[int, str] = {}
        self._shape: tuple[object, ...] = ()

    def follow(self, subnet: Subnet, names: Names) -> bool:
        """Take in a snapshot and its names; returns whether there were too many ports, and all slots are others now."""
        arrays = subnet.guids, subnet.ports["node"], subnet.ports["number"]
        shape = (*(array.tobytes() for array in arrays), names.nodes)
        if shape == self._shape:
            return False
        self._shape = shape
        self._names.update(zip(subnet.guids.tolist(), names.nodes, strict=True))
        self.present = frozenset(subnet.guids.tolist())
        self._hosts.update(subnet.guids[subnet.kinds == CHANNEL_ADAPTER].tolist())
        guids = subnet.guids[subnet.ports["node"]].tolist()
        ends = [End(*end) for end in zip(guids, subnet.ports["number"].tolist(), strict=True)]
        is_anew = len(self._slot.keys() | set(ends)) > MOST_PORTS
        if is_anew:
            self.ends, self._slot, self._link_ends, self._port_names = [], {}, {}, {}
        for end in ends:
            if end not in self._slot:
                self._slot[end] = len(self.ends)
                self.ends.append(end)
        self.slots = np.array([self._slot[end] for end in ends], np.intp)
        self.rows = np.full(len(self.ends), -1, np.intp)
        self.rows[self.slots] = np.arange(len(ends))
        self._link_ends.update(zip(self.slots.tolist(), names.ends, strict=True))
        self._port_names.update(zip(self.slots.tolist(), names.ports, strict=True))
        return is_anew

    def slot(self, end: End) -> int:
        """Of a port that is known."""
        return self._slot[end]

    def name(self, slot: int) -> str:
        """As people read it: `SWITCH:PORT`, or the NIC that it is."""
        return self._port_names[slot]

    def node_name(self, guid: int) -> str:
        """The last that was known."""
        return self._names.get(guid, f"{guid:#018x}")

    def host(self, guid: int) -> str | None:
        """The host that a node is an adapter of; None of a switch."""
        return self.node_name(guid).partition("/")[0] if guid in self._hosts else None

    def link_end(self, slot: int) -> str:
        """As links name it: a switch, or the NIC that it is."""
        return self._link_ends[slot]

    def port(self, slot: int) -> Subject:
        """A port as what a finding is about."""
        return Subject("port", self.name(slot))

    def cable(self, a: int, b: int) -> Subject:
        """A link both ways; a host's port comes first."""
        first, second = sorted(
            (a, b), key=lambda slot: (self.ends[slot].guid not in self._hosts, self.name(slot))
        )
        there = DirectedLink(self.link_end(first), self.link_end(second))
        back = DirectedLink(there.b, there.a)
        return Subject("link", f"{self.name(first)} - {self.name(second)}", (there, back))

    def direction(self, a: int, b: int) -> Subject:
        """One way of a link."""
        link = DirectedLink(self.link_end(a), self.link_end(b))
        return Subject("direction", f"{self.name(a)} > {self.name(b)}", (link,))


_T = TypeVar("_T", bound=np.generic)


def grown(array: NDArray[_T], count: int, fill: float) -> NDArray[_T]:
    """An array for more slots than it has, the new ones filled; the last axis is the slots'."""
    more = count - array.shape[-1]
    if more <= 0:
        return array
    return np.concatenate([array, np.full((*array.shape[:-1], more), fill, array.dtype)], axis=-1)
