"""The fabric as its management plane has it: all nodes, their ports, the links between them. One level after the other."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cwdp.ib.attributes import (
    NodeInfo,
    NodeType,
    PortInfo,
    ask_name,
    ask_node,
    ask_port,
    read_name,
    read_node,
    read_port,
)
from cwdp.ib.umad import MOST_HOPS, Request

MOST_NODES = 65_536
"""There are no more LIDs."""

Path = tuple[int, ...]


class Asks(Protocol):
    """See `cwdp.ib.asking.Asker`."""

    def ask(self, requests: Sequence[Request]) -> list[bytes | None]:
        """The data of each answer."""


class End(NamedTuple):
    """A port of a node, by the node's GUID."""

    guid: int
    port: int


@dataclass
class Node:
    """A switch or a channel adapter.

    Attributes:
        path: a direct route to it from this host.
        ports: by number, those that answered; of a channel adapter those that were met.
        port_guids: by number, of the ports by which it was met; a switch has that of port 0 at all of them.
    """

    guid: int
    name: str
    kind: int
    path: Path
    port_count: int
    ports: dict[int, PortInfo] = field(default_factory=dict)
    port_guids: dict[int, int] = field(default_factory=dict)

    @property
    def is_switch(self) -> bool:
        """Whether it has a forwarding table."""
        return self.kind == NodeType.SWITCH


@dataclass(frozen=True)
class Fabric:
    """All that was met.

    Attributes:
        nodes: by GUID.
        links: both ways of each: the far end of each port.
        silent: ports that have a link to something that does not answer.
        doubled: GUIDs that two nodes have.
    """

    nodes: Mapping[int, Node]
    links: Mapping[End, End]
    silent: Sequence[End]
    doubled: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Step:
    """A node that is asked next: how it is reached, and from where; None for this host's own."""

    path: Path
    by: End | None


def sweep(asker: Asks) -> Fabric:
    """Ask all nodes, beginning with this host.

    Raises:
        RdmaError: the port cannot send or receive.
    """
    nodes: dict[int, Node] = {}
    links: dict[End, End] = {}
    silent: list[End] = []
    doubled: set[int] = set()
    steps = [_Step((), None)]
    while steps:
        told = zip(steps, asker.ask([ask_node(step.path) for step in steps]), strict=True)
        met: list[tuple[_Step, NodeInfo]] = []
        for step, data in told:
            if data is not None:
                met.append((step, read_node(data)))
            elif step.by is not None:
                silent.append(step.by)
        for step, info in met:
            if step.by is not None:
                here = End(info.guid, info.local_port)
                if links.get(here, step.by) != step.by:
                    doubled.add(info.guid)
                links[step.by], links[here] = here, step.by
        new = _new(nodes, met)
        _describe(asker, nodes, new)
        steps = list(_next(links, new)) if len(nodes) < MOST_NODES else []
    return Fabric(nodes, links, silent, frozenset(doubled))


def _new(nodes: dict[int, Node], met: Iterable[tuple[_Step, NodeInfo]]) -> list[tuple[Node, int]]:
    """Nodes that were not met before, and the port by which they were; a port of a known channel adapter that is new counts."""
    new = []
    for step, info in met:
        node = nodes.get(info.guid)
        if node is None:
            node = nodes[info.guid] = Node(info.guid, "", info.kind, step.path, info.ports)
        elif node.is_switch or info.local_port in node.ports:
            continue
        node.port_guids[0 if node.is_switch else info.local_port] = info.port_guid
        new.append((node, info.local_port))
    return new


def _describe(asker: Asks, nodes: Mapping[int, Node], new: Sequence[tuple[Node, int]]) -> None:
    """Names and ports of new nodes."""
    asked: list[tuple[Node, int | None, Request]] = []
    for node, by in new:
        if not node.name:
            asked.append((node, None, ask_name(node.path)))
        ports = range(node.port_count + 1) if node.is_switch else (by,)
        asked += [(node, port, ask_port(node.path, port)) for port in ports]
    for (node, port, _), data in zip(asked, asker.ask([one for *_, one in asked]), strict=True):
        if data is None:
            continue
        if port is None:
            nodes[node.guid].name = read_name(data)
        else:
            node.ports[port] = read_port(data)


def _next(links: Mapping[End, End], new: Sequence[tuple[Node, int]]) -> Iterable[_Step]:
    """The far ends of linked ports whose links are not known. Nothing is routed through a channel adapter but from it."""
    for node, by in new:
        if len(node.path) >= MOST_HOPS:
            continue
        ports = node.ports if node.is_switch else ([by] if not node.path else [])
        for port in ports:
            is_linked = port and port in node.ports and node.ports[port].is_linked
            if is_linked and End(node.guid, port) not in links:
                yield _Step((*node.path, port), End(node.guid, port))
