"""What a routing protocol would compute: for every switch the equal-cost next hops to every other; no I/O.

Ways go up and then down only, as in data centres that run BGP (RFC 7938, 5.2): what has come down does not go up again.
So packets never go round in circles while some switches know of a dead link and others do not yet.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from tools.lab.topology import Topology

Adjacency = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Route:
    """One destination of a switch, and how many links away it is; no next hops means that it cannot be reached."""

    destination: IPv4Network | IPv6Network
    next_hops: tuple[str, ...]
    distance: int


def switch_routes(topology: Topology, down_links: Collection[str]) -> dict[str, list[Route]]:
    """Return every switch's routes to the networks and router addresses of all others.

    Args:
        topology: the fabric.
        down_links: names of the links that routing knows to be down.
    """
    above, below = _neighbours(topology, down_links)
    routes: dict[str, list[Route]] = {switch: [] for switch in topology.switches}
    for target in topology.switches:
        down = _distances_down(above, target)
        distance = down | _distances_up(topology, above, down)
        for switch in topology.switches:
            if switch != target:
                near = below[switch] if switch in down else above[switch]
                hops = tuple(hop for hop in near if distance.get(hop, -1) + 1 == distance.get(switch))
                routes[switch] += [
                    Route(network, hops, distance.get(switch, 0)) for network in _networks(topology, target)
                ]
    return routes


def _distances_down(above: Adjacency, target: str) -> dict[str, int]:
    """How far down `target` is, for each switch that it is below, and itself."""
    distance, edge = {target: 0}, {target}
    while edge:
        edge = {upper for switch in edge for upper in above[switch]}
        distance |= dict.fromkeys(edge, max(distance.values()) + 1)
    return distance


def _distances_up(topology: Topology, above: Adjacency, down: Mapping[str, int]) -> dict[str, int]:
    """How far `target` is from each other switch, whose ways lead up first."""
    found: dict[str, int] = {}
    for switch in sorted(topology.switches, key=topology.tiers.__getitem__, reverse=True):
        reached = [far for upper in above[switch] if (far := down.get(upper, found.get(upper))) is not None]
        if switch not in down and reached:
            found[switch] = min(reached) + 1
    return found


def _neighbours(topology: Topology, down_links: Collection[str]) -> tuple[Adjacency, Adjacency]:
    above: dict[str, list[str]] = {switch: [] for switch in topology.switches}
    below: dict[str, list[str]] = {switch: [] for switch in topology.switches}
    for link in topology.switch_links:
        if link.name not in down_links:
            above[link.a.node].append(link.b.node)
            below[link.b.node].append(link.a.node)
    return above, below


def _networks(topology: Topology, switch: str) -> list[IPv4Network | IPv6Network]:
    ipv4, ipv6 = topology.router_addresses(switch)
    networks: list[IPv4Network | IPv6Network] = [IPv4Network(ipv4), IPv6Network(ipv6)]
    if switch in topology.leaves:
        networks += [*topology.leaf_networks(switch), *topology.strangers(switch)]
    return networks
