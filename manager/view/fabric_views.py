"""What the HTTP API answers about the fabric: plain data with stable keys."""

from collections import defaultdict
from dataclasses import asdict
from itertools import pairwise

from manager.fabric.discovery import Discovery
from manager.fabric.routes import MARK, Routes
from manager.tcp.names import is_tcp, plain_address
from manager.view.json_values import Json, is_at


def fabric(discovery: Discovery) -> Json:
    """Switches, links, NICs, rails, and what looks wrongly plugged in."""
    model = discovery.model()
    nics_at = defaultdict[str, list[str]](list)
    for nic, switches in model.seats.items():
        for switch in switches:
            nics_at[switch].append(nic)
    return {
        "version": model.routes.version,
        "path_count": len(model.routes.paths),
        "nic_count": len(model.seats),
        "switches": [asdict(node) | {"nics": nics_at[node.name]} for node in model.nodes],
        "links": [{"a": a, "b": b} for a, b in sorted(model.cables)],
        "rails": [{"ifname": ifname, "leaves": list(leaves)} for ifname, leaves in model.rails.items()],
        "suspects": [asdict(each) for each in discovery.miswired()],
        "set_aside": sorted(discovery.fabric.aside),
        "traces": dict(discovery.fabric.store.reasons) | {"dropped": discovery.dropped},
    }


def path(discovery: Discovery, src: str, dst: str, *, tcp: bool = False) -> Json:
    """The known paths between two NICs, or all those of two hosts, by source port: of RoCEv2 or of TCP."""
    pairs = sorted(
        (nic, address, owner)
        for nic, address in discovery.fabric.routes.pairs()
        if is_tcp(address) == tcp and (owner := discovery.fabric.store.nic_at(address)) is not None
        if is_at(nic, src) and is_at(owner, dst)
    )
    return {"pairs": [pair_paths(discovery, *pair) for pair in pairs]}


def pair_paths(discovery: Discovery, src: str, dst_addr: str, dst: str) -> Json:
    """The known paths from a NIC to an address as paths have it in their names, and to the NIC that has it."""
    routes, known = discovery.fabric.routes, discovery.path_counts.of(src, dst_addr)
    in_use = discovery.in_use.get((src, dst_addr), {})
    return {
        "src": src,
        "dst": dst,
        "dst_addr": plain_address(dst_addr),
        "protocol": "tcp" if is_tcp(dst_addr) else "rocev2",
        "paths_known": known.paths,
        "paths_between_leaves": known.peer_paths,
        "ports_traced": known.ports,
        "confidence": round(known.confidence, 6),
        "ports": [
            {"sport": sport, "in_use": sport in in_use, "nodes": nodes_of(routes, links)}
            for sport, links in sorted(routes.ports(src, dst_addr).items())
        ],
    }


def nodes_of(routes: Routes, links: tuple[int, ...]) -> list[str | None]:
    """The switches of a path; None for whatever is not known."""
    crossed = [routes.links[number] for number in links]
    nodes: list[str | None] = []
    for link, after in pairwise(crossed):
        nodes.append(None if link.b.startswith(MARK) else link.b)
        if after.a != link.b:
            nodes.append(None if after.a.startswith(MARK) else after.a)
    return nodes
