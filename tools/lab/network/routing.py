"""What a routing protocol would compute: for every switch the equal-cost next hops to every other; no I/O.

Ways go up and then down only, as in data centres that run BGP (RFC 7938, 5.2): what has come down to a leaf does not
go up again. So packets never go round in circles while some switches know of a dead link and others do not yet.
"""

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
        next_hops = _next_hops(topology, adjacency, target)
        for switch in topology.switches:
            if switch != target:
                hops = tuple(next_hops.get(switch, ()))
                routes[switch] += [Route(network, hops) for network in _networks(topology, target)]
    return routes


def _next_hops(topology: Topology, adjacency: Adjacency, target: str) -> dict[str, Collection[str]]:
    """For each switch that reaches `target`, its neighbours on the way."""
    near = adjacency[target]
    hops: dict[str, Collection[str]] = dict.fromkeys(near, (target,))
    if target in topology.leaves:
        for leaf in topology.leaves:
            hops[leaf] = [spine for spine in adjacency[leaf] if spine in near]
    return hops


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
