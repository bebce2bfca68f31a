"""What a routing protocol would compute: for every switch the equal-cost next hops to every other; no I/O."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from tools.lab.topology import Topology

Adjacency = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Route:
    """One destination of a switch; no next hops means that it cannot be reached."""

    destination: IPv4Network | IPv6Network
    next_hops: tuple[str, ...]


def switch_routes(topology: Topology, down_links: Collection[str]) -> dict[str, list[Route]]:
    """Return every switch's routes to the networks and router addresses of all others.

    Args:
        topology: the fabric.
        down_links: names of the links that routing knows to be down.
    """
    adjacency = _switch_adjacency(topology, down_links)
    routes: dict[str, list[Route]] = {switch: [] for switch in topology.switches}
    for target in topology.switches:
        next_hops = equal_cost_next_hops(adjacency, target)
        for switch in topology.switches:
            if switch != target:
                hops = tuple(next_hops.get(switch, ()))
                routes[switch] += [Route(network, hops) for network in _networks(topology, target)]
    return routes


def equal_cost_next_hops(adjacency: Adjacency, target: str) -> dict[str, list[str]]:
    """Return, for each node that reaches `target`, its neighbours on a shortest path (breadth-first search)."""
    distance = {target: 0}
    queue = deque([target])
    while queue:
        node = queue.popleft()
        for neighbour in adjacency[node]:
            if neighbour not in distance:
                distance[neighbour] = distance[node] + 1
                queue.append(neighbour)
    return {
        node: [hop for hop in adjacency[node] if distance.get(hop) == own - 1]
        for node, own in distance.items()
        if node != target
    }


def _switch_adjacency(topology: Topology, down_links: Collection[str]) -> dict[str, list[str]]:
    adjacency: dict[str, list[str]] = {switch: [] for switch in topology.switches}
    for link in topology.links.values():
        if link.a.node in adjacency and link.name not in down_links:
            adjacency[link.a.node].append(link.b.node)
            adjacency[link.b.node].append(link.a.node)
    return adjacency


def _networks(topology: Topology, switch: str) -> list[IPv4Network | IPv6Network]:
    ipv4, ipv6 = topology.router_addresses(switch)
    networks: list[IPv4Network | IPv6Network] = [IPv4Network(ipv4), IPv6Network(ipv6)]
    if switch in topology.leaves:
        networks += [*topology.leaf_networks(switch), *topology.strangers(switch)]
    return networks
