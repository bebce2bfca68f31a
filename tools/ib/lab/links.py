"""Links of an InfiniBand lab by the names that people give them. Pure."""

import difflib
from dataclasses import dataclass

from cwdp.errors import LabError
from tools.ib.topology import Clos, port_name


@dataclass(frozen=True)
class Link:
    """Between two ports; `a` is the end of the node that people name first."""

    a: tuple[str, int]
    b: tuple[str, int]

    @property
    def key(self) -> str:
        """The same from both ends."""
        return "-".join(sorted((port_name(*self.a), port_name(*self.b))))


def require_node(topology: Clos, node: str) -> str:
    """Return the node; raise `LabError` with names that are near if there is none."""
    nodes = topology.nodes()
    if node not in nodes:
        near = difflib.get_close_matches(node, nodes, n=4, cutoff=0.5)
        hint = f"Did you mean {', '.join(near)}?" if near else "`cwdp lab ib status` lists the nodes."
        raise LabError(f"the subnet has no node {node!r}", hint)
    return node


def require_host(topology: Clos, node: str) -> str:
    """Return the node; raise `LabError` if it is no host."""
    if not require_node(topology, node).startswith("h"):
        raise LabError(f"{node} is no host", "Agents run at hosts: h1, h2.")
    return node


def find(topology: Clos, name: str, port: int | None) -> list[Link]:
    """The links that `h1-l1`, or `l1-s2` and a port of l1, name.

    Raises:
        LabError: there are none.
    """
    first, dash, second = name.partition("-")
    if not dash:
        raise LabError(f"{name!r} is no link", "Give its two nodes, such as l1-s2.")
    nodes = topology.nodes()
    for node in (first, second):
        require_node(topology, node)
    between = [Link((first, number), there) for number, there in nodes[first].items() if there[0] == second]
    if not between:
        raise LabError(
            f"there is no link between {first} and {second}",
            f"{first} has links to {', '.join(dict.fromkeys(there for there, _ in nodes[first].values()))}.",
        )
    found = [link for link in between if port in (None, link.a[1])]
    if not found:
        ports = ", ".join(str(link.a[1]) for link in between)
        raise LabError(f"port {port} of {first} does not lead to {second}", f"Its ports there are {ports}.")
    return found


def every(topology: Clos) -> list[Link]:
    """All links, hosts' first; `a` is the end further down."""
    rank = {"h": 0, "l": 1, "s": 2}
    return [
        Link((node, number), there)
        for node, ports in sorted(
            topology.nodes().items(), key=lambda one: (rank[one[0][0]], int(one[0][1:]))
        )
        for number, there in sorted(ports.items())
        if rank[node[0]] < rank[there[0][0]]
    ]
