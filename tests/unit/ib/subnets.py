"""Subnets in memory that answer as switches and hosts do, and ports by which they are asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.attributes import NO_ROUTE, Attribute, NodeType
from cwdp.ib.counters import CLASS_PORT_INFO, HAS_MORE_COUNTERS
from cwdp.ib.umad import DATA_BYTES, NO_ANSWER, Answers, Request

Answer = tuple[int, int, bytes]
"""The number of its transaction, its status, its data."""


@dataclass
class Node:
    """One.

    Attributes:
        wires: the node and the port at the far end of each port.
        lid, lmc: of a host's port 1, or a switch's port 0.
        sm_lid: that of the subnet manager as it knows it.
        sm_state: of a subnet manager that runs on it; 0 for none.
        is_wide: whether it counts all with 64 bits.
        table: of a switch, the port for each LID.
        keys: P_Keys of a host's port.
    """

    name: str
    guid: int
    is_switch: bool
    port_count: int
    wires: dict[int, tuple["Node", int]] = field(default_factory=dict)
    lid: int = 0
    lmc: int = 0
    table: dict[int, int] = field(default_factory=dict)
    is_silent: bool = False
    keys: tuple[int, ...] = (0xFFFF,)
    sm_lid: int = 0
    sm_state: int = 0
    is_wide: bool = False

    def answer(self, request: Request, by: int) -> bytes | None:
        """The data; None for an attribute that it has not."""
        data = bytearray(DATA_BYTES)
        match request.attribute:
            case Attribute.NODE_INFO:
                data[2] = NodeType.SWITCH if self.is_switch else NodeType.CHANNEL_ADAPTER
                data[3], data[36] = self.port_count, by
                data[12:20] = self.guid.to_bytes(8)
                data[20:28] = (self.guid + by).to_bytes(8)
            case Attribute.NODE_DESCRIPTION:
                name = self.name.encode()[:64]
                data[: len(name)] = name
            case Attribute.PORT_INFO:
                if request.modifier > self.port_count:
                    return None
                self._port(data, request.modifier)
            case Attribute.PARTITION_TABLE if not self.is_switch:
                block = self.keys[32 * request.modifier :][:32]
                data[:64] = b"".join(key.to_bytes(2) for key in (*block, *[0] * (32 - len(block))))
            case Attribute.SWITCH_INFO if self.is_switch:
                data[6:8] = max(self.table, default=0).to_bytes(2)
            case Attribute.SM_INFO if self.sm_state:
                data[20] = self.sm_state
            case Attribute.LINEAR_FORWARDING_TABLE if self.is_switch:
                start = 64 * request.modifier
                data[:64] = bytes(self.table.get(lid, NO_ROUTE) for lid in range(start, start + 64))
            case _:
                return None
        return bytes(data)

    def _port(self, data: bytearray, port: int) -> None:
        linked = port in self.wires or port == 0
        if port == 0 or not self.is_switch:
            data[16:18] = self.lid.to_bytes(2)
            data[34] = self.lmc
            data[18:20] = self.sm_lid.to_bytes(2)
            data[23] = 2 if self.sm_state else 0
        data[30], data[31] = 0b11, 2
        data[32], data[33] = 7 << 4 | (4 if linked else 1), (5 if linked else 2) << 4
        data[35], data[62] = 4 << 4, 2 << 4 | 3


def wire(a: Node, port: int, b: Node, at: int) -> None:
    """Join two ports."""
    a.wires[port], b.wires[at] = (b, at), (a, port)


@dataclass
class Port:
    """By which the subnet of a host is asked; answers come in the order of requests.

    Attributes:
        lost: numbers of transactions of which the first so many are lost.
        asked: the requests that left.
        before_send: what happens before each.
    """

    host: Node
    lost: Mapping[int, bool] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    before_send: Callable[[], None] = lambda: None
    _answers: list[Answer] = field(default_factory=list)

    def prepare(self, requests: Sequence[Request], timeout_ms: int) -> Sequence[Request]:
        del timeout_ms
        return requests

    def send(self, made: Sequence[Request], places: NDArray[np.intp], number: int) -> None:
        for which, place in enumerate(places.tolist(), number):
            self.before_send()
            self.asked.append(made[place])
            if not self.lost.get(which):
                self._answers.append(self._answer(made[place], which))

    def receive(self, least: int, most: int, timeout_ms: int) -> Answers:
        del least, timeout_ms
        came, self._answers = self._answers[:most], self._answers[most:]
        return Answers(
            np.array([number for number, _, _ in came], np.int64),
            np.array([status for _, status, _ in came], np.int32),
            np.frombuffer(b"".join(data for *_, data in came), np.uint8).reshape(-1, DATA_BYTES),
        )

    def _answer(self, request: Request, number: int) -> Answer:
        node, by = self.host, 1
        if isinstance(request.to, int):
            there = self._reached(request.to)
            if there is None or there.is_silent:
                return number, NO_ANSWER, bytes(DATA_BYTES)
            is_class = request.attribute == CLASS_PORT_INFO
            capabilities = HAS_MORE_COUNTERS << 5 if is_class and there.is_wide else 0
            return number, 0, capabilities.to_bytes(8) + bytes(DATA_BYTES - 8)
        for port in request.to:
            if port not in node.wires:
                return number, NO_ANSWER, bytes(DATA_BYTES)
            node, by = node.wires[port]
        if node.is_silent:
            return number, NO_ANSWER, bytes(DATA_BYTES)
        data = node.answer(request, by)
        return (number, 0x1C, bytes(DATA_BYTES)) if data is None else (number, 0, data)

    def _reached(self, lid: int) -> Node | None:
        """The node to which tables lead of a LID."""
        node, by = self.host, 1
        for _ in range(16):
            if node.lid <= lid < node.lid + (1 << node.lmc):
                return node
            out = by if node is self.host else node.table.get(lid, NO_ROUTE)
            if out not in node.wires:
                return None
            node, by = node.wires[out]
        return None


def two_leaves(*, spines: int = 2, hosts: int = 2, lmc: int = 1) -> dict[str, Node]:
    """Two leaves below spines, with LIDs and tables: LID `base + i` of a host goes by spine i."""
    nodes: dict[str, Node] = {}
    for i in range(spines):
        nodes[f"s{i}"] = Node(f"s{i}", 0x1000 + i * 16, True, 2, lid=900 + i)
    for leaf in range(2):
        nodes[f"l{leaf}"] = Node(f"l{leaf}", 0x2000 + leaf * 16, True, hosts + spines, lid=950 + leaf)
        for i in range(spines):
            wire(nodes[f"l{leaf}"], hosts + 1 + i, nodes[f"s{i}"], leaf + 1)
        for host in range(hosts):
            name = f"h{leaf * hosts + host}"
            nodes[name] = Node(name, 0x3000 + 16 * (leaf * hosts + host), False, 1, lmc=lmc)
            nodes[name].lid = 16 + (leaf * hosts + host) * (1 << lmc)
            wire(nodes[name], 1, nodes[f"l{leaf}"], host + 1)
    _fill_tables(nodes, spines, hosts, lmc)
    return nodes


def _fill_tables(nodes: Mapping[str, Node], spines: int, hosts: int, lmc: int) -> None:
    for number in range(2 * hosts):
        leaf, place = divmod(number, hosts)
        for i in range(1 << lmc):
            lid = nodes[f"h{number}"].lid + i
            for spine in range(spines):
                nodes[f"s{spine}"].table[lid] = leaf + 1
            nodes[f"l{leaf}"].table[lid] = place + 1
            nodes[f"l{1 - leaf}"].table[lid] = hosts + 1 + i % spines
