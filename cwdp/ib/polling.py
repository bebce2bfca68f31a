"""A subnet that is kept fresh: swept once, then asked whether it is as it was. Nothing is ever written to it.

Ports are asked in the order of their distance from this host, so a link that is gone shows before anything behind it is asked for
in vain. What has changed of a port, but for its link, is taken over; a link that came or went needs a new sweep.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.asking import Asker, FellSilentError
from cwdp.ib.attributes import (
    LIDS_A_BLOCK,
    ask_forwarding,
    ask_manager,
    ask_port,
    ask_switch,
    read_linear_top,
    read_manager,
    read_port,
)
from cwdp.ib.counters import Reading
from cwdp.ib.counting import Counting
from cwdp.ib.partitions import read_keys
from cwdp.ib.snapshot import ends_of, snapshot
from cwdp.ib.sweep import End, Fabric, sweep
from cwdp.ib.tables import Tables, read_tables
from cwdp.ib.umad import DATA_BYTES, Request
from cwdp.shared.ib.routes import Routes
from cwdp.shared.ib.subnet import SWITCH, Subnet

_T = TypeVar("_T")

_Block = tuple[int, int | None]
"""Of a table: its switch by its place, and which; None for the highest LID in it."""

Keys = Mapping[End, tuple[int, ...]]

MOST_BLOCKS = 4_096
"""Of forwarding tables that one look asks for; the next look goes on."""

AT_A_TIME = 128
"""So few that it takes no longer than a second if a link goes at that moment and all behind it is asked for in vain."""

PORT_TRIES, TABLE_TRIES = 2, 1

MOST_IN_VAIN, SWEEPS = 32, 3
"""Where all answered before, a sweep is begun anew after so many requests in vain: a link went while it was under way. The last of
so many is taken as it is."""


class Change(Enum):
    """What a look has found."""

    NOTHING = 0
    TABLES = 1
    PORTS = 2
    LINKS = 3
    """The subnet is to be swept again."""


@dataclass(frozen=True)
class _Batch(Generic[_T]):
    """Requests that are ready, with what each is for, and what was told last time."""

    made: Any
    of: Sequence[_T]
    before: NDArray[np.uint8]


class Polled:
    """One subnet, from a sweep to the next.

    Args:
        asker: by which it is asked.
        before: the same subnet until now, if it was swept before.

    Attributes:
        fabric: as it was swept.
        subnet: as it was found last.
        ends: the port of each row.
        wide: of nodes that told it.
        changed: switches whose tables were others at the last look that found any, by their place.

    Raises:
        RdmaError: the port cannot send or receive.
    """

    def __init__(self, asker: Asker, before: "Polled | None" = None) -> None:
        self._asker = asker
        self.wide: dict[int, bool] = {} if before is None else before.wide
        fabric, tables, keys = _read(asker, all_answered=before is not None and not before.fabric.silent)
        self.fabric: Fabric = fabric
        self._tables, self._keys = tables, keys
        self.subnet: Subnet = snapshot(self.fabric, self._tables, self._keys)
        self.ends = ends_of(self.fabric)
        self.changed: list[int] = []
        self._row = {end: row for row, end in enumerate(self.ends)}
        self._levels = self._by_distance()
        self._blocks, self._next = self._table_batches(), 0
        self._counting, self._is_reach_known = Counting(asker, self.ends, self.wide), False

    def look_at_ports(self) -> Change:
        """Whether links and ports are as they were."""
        found = Change.NOTHING
        for batch in self._levels:
            told = self._asker.ask_again(batch.made, PORT_TRIES)
            if not told.came.all():
                return Change.LINKS
            for place in np.flatnonzero((told.data != batch.before).any(axis=1)).tolist():
                end, batch.before[place] = batch.of[place], told.data[place]
                node, info = self.fabric.nodes[end.guid], read_port(told.data[place].tobytes())
                before, node.ports[end.port] = node.ports[end.port], info
                if info.is_linked != before.is_linked:
                    return Change.LINKS
                if info != before:
                    found = Change.PORTS
        if found is Change.PORTS:
            self._take(snapshot(self.fabric, self._tables, self._keys))
        return found

    def look_at_tables(self) -> Change:
        """Whether switches send packets where they did; of a large subnet a part of the tables, the next one each time."""
        if not self._blocks:
            return Change.NOTHING
        if not any(self._is_another(batch) for batch in self._blocks_due()):
            return Change.NOTHING
        before, self._tables = self.subnet.tables, read_tables(self._asker, self.fabric)
        after = snapshot(self.fabric, self._tables, self._keys)
        self._blocks = self._table_batches()
        self._take(after)
        if after.tables.shape != before.shape:
            return Change.PORTS
        self.changed = np.flatnonzero((after.tables != before).any(axis=1)).tolist()
        return Change.TABLES if self.changed else Change.NOTHING

    def ask_managers(self) -> dict[str, int]:
        """The state of each subnet manager that answers, by the name of its node."""
        nodes = [node for node in self.fabric.nodes.values() if any(one.is_sm for one in node.ports.values())]
        told = self._asker.ask([ask_manager(node.path) for node in nodes])
        return {
            node.name or f"{node.guid:#018x}": read_manager(data)
            for node, data in zip(nodes, told, strict=True)
            if data is not None
        }

    def read_counters(self, now_s: float) -> Reading:
        """Of all ports, in the order of the subnet's; of those that are not reached nothing is known."""
        if not self._is_reach_known:
            self._counting.reach(self._reached())
            self._is_reach_known = True
        return self._counting.read(now_s)

    def _take(self, subnet: Subnet) -> None:
        self.subnet, self._is_reach_known = subnet, False

    def _blocks_due(self) -> Iterator[_Batch[_Block]]:
        """Those of one look."""
        for _ in range(min(len(self._blocks), -(-MOST_BLOCKS // AT_A_TIME))):
            self._next = (self._next + 1) % len(self._blocks)
            yield self._blocks[self._next]

    def _is_another(self, batch: _Batch[_Block]) -> bool:
        """Whether something in it is not as it was; of what does not answer that is not known."""
        told = self._asker.ask_again(batch.made, TABLE_TRIES)
        is_news = told.came & (told.data != batch.before).any(axis=1)
        for place in np.flatnonzero(is_news).tolist():
            data, batch.before[place] = told.data[place].tobytes(), told.data[place]
            if not self._is_as_before(*batch.of[place], data):
                return True
        return False

    def _is_as_before(self, row: int, block: int | None, data: bytes) -> bool:
        tables = self._tables.ports
        if block is None:
            return read_linear_top(data) // LIDS_A_BLOCK == self._tops[row] // LIDS_A_BLOCK
        return data[:LIDS_A_BLOCK] == tables[row, block * LIDS_A_BLOCK : (block + 1) * LIDS_A_BLOCK].tobytes()

    def _by_distance(self) -> list[_Batch[End]]:
        levels: dict[int, list[End]] = {}
        for end in self.ends:
            levels.setdefault(len(self.fabric.nodes[end.guid].path), []).append(end)
        return [
            self._batch(part, [ask_port(self.fabric.nodes[end.guid].path, end.port) for end in part])
            for _, ends in sorted(levels.items())
            for part in _parts(ends)
        ]

    def _table_batches(self) -> list[_Batch[_Block]]:
        """All switches' highest LIDs first, then all blocks."""
        switches = sorted(self._tables.row.items(), key=lambda item: item[1])
        paths = [self.fabric.nodes[guid].path for guid, _ in switches]
        self._tops = [
            0 if data is None else read_linear_top(data)
            for data in self._asker.ask([ask_switch(path) for path in paths])
        ]
        of: list[_Block] = [(row, None) for row in range(len(paths))]
        for row, top in enumerate(self._tops):
            of += [(row, block) for block in range(1 + top // LIDS_A_BLOCK) if top]
        return [
            self._batch(
                part,
                [
                    ask_switch(paths[row]) if block is None else ask_forwarding(paths[row], block)
                    for row, block in part
                ],
            )
            for part in _parts(of)
        ]

    def _batch(self, of: Sequence[_T], requests: Sequence[Request]) -> _Batch[_T]:
        return _Batch(self._asker.prepare(requests), of, np.zeros((len(of), DATA_BYTES), np.uint8))

    def _reached(self) -> NDArray[np.int64]:
        """The LID by which each port's node is asked for its counters and can answer; 0 for none, shape (ports,)."""
        subnet, routes = self.subnet, Routes(self.subnet)
        ports, lids = subnet.ports, np.zeros(len(subnet.ports), np.int64)
        own = self._own()
        if own is None:
            return lids
        switch = routes.first_switch(own)
        arrives = routes.from_switch(switch).arrives if switch >= 0 else np.zeros(len(routes.owner), bool)
        comes_back = routes.to_lid(int(ports["lid"][own])).arrives
        place = {int(row): i for i, row in enumerate(subnet.switches)}
        of_node: dict[int, int] = {}
        for row in np.flatnonzero(ports["lid"] > 0).tolist():
            node = int(ports["node"][row])
            is_switch = subnet.kinds[node] == SWITCH
            back = place[node] if is_switch else routes.first_switch(row)
            ways = [lid for lid in routes.lids(row) if arrives[lid] or row == own]
            if ways and (row == own or (back >= 0 and comes_back[back])):
                lids[row] = ways[0]
                of_node.setdefault(node, ways[0])
        for node in subnet.switches.tolist():
            lids[(ports["node"] == node) & (ports["number"] > 0)] = of_node.get(node, 0)
        lids[(ports["number"] == 0)] = 0
        return lids

    def _own(self) -> int | None:
        """The row of the port by which this host asks; None where it has no LID."""
        for node in self.fabric.nodes.values():
            if not node.path:
                rows = [self._row[End(node.guid, number)] for number in node.ports]
                return next((row for row in rows if self.subnet.ports["lid"][row] > 0), None)
        return None


def _read(asker: Asker, *, all_answered: bool) -> tuple[Fabric, Tables, Keys]:
    """A subnet, its tables and the P_Keys of its ports; `all_answered`: the last time."""
    for _ in range(SWEEPS - 1 if all_answered else 0):
        asker.bear(MOST_IN_VAIN)
        try:
            return _read_once(asker)
        except FellSilentError:
            continue
        finally:
            asker.bear()
    return _read_once(asker)


def _read_once(asker: Asker) -> tuple[Fabric, Tables, Keys]:
    fabric = sweep(asker)
    return fabric, read_tables(asker, fabric), read_keys(asker, fabric)


def _parts(of: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (of[at : at + AT_A_TIME] for at in range(0, len(of), AT_A_TIME))


def moved(before: Reading, ends_before: Sequence[End], ends: Sequence[End]) -> Reading:
    """A reading in the rows of another sweep; of ports that were not there nothing is known."""
    row = {end: i for i, end in enumerate(ends_before)}
    of = np.array([row.get(end, -1) for end in ends], np.intp)
    values, known, wide = before.values[of], before.known[of], before.wide[of]
    known[of < 0] = False
    return replace(before, values=values, known=known, wide=wide)
