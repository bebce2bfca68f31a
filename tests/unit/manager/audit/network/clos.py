"""Leaves and spines in arithmetic: routes of RoCEv2, and what walks over them would tell."""

from collections.abc import Callable
from itertools import pairwise

from cwdp.shared.audit.facts import Walk, Walked, WalkHop
from manager.fabric.routes import DirectedLink, PathName, Routes

Switch = Callable[[Walk, DirectedLink], Walk | WalkHop | None]
"""What becomes of a packet on a link: it goes on, is refused by the switch before it, or vanishes."""


def address(host: int) -> str:
    """Of a host's NIC."""
    return f"10.0.0.{host}"


def routes(leaves: int = 3, spines: int = 2, hosts: int = 2) -> Routes:
    """All paths between hosts of different leaves, one over each spine; hosts are numbered from 1 on."""
    numbers: dict[DirectedLink, int] = {}
    paths = {}
    everybody = range(1, leaves * hosts + 1)
    for a in everybody:
        for b in everybody:
            leaf_a, leaf_b = (a - 1) // hosts + 1, (b - 1) // hosts + 1
            for spine in range(1, spines + 1) if leaf_a != leaf_b else ():
                nodes = [f"h{a}/eth1", f"l{leaf_a}", f"s{spine}", f"l{leaf_b}", f"h{b}/eth1"]
                way = [DirectedLink(*ends) for ends in pairwise(nodes)]
                name = PathName(nodes[0], address(b), 50_000 + spine)
                paths[name] = tuple(numbers.setdefault(link, len(numbers)) for link in way)
    return Routes(1, tuple(numbers), paths)


def walked(
    known: Routes, host: str, walk: Walk, meet: Switch, silent: frozenset[str] = frozenset()
) -> Walked:
    """What a walk tells over links that do with packets what `meet` says."""
    name = PathName(f"{host}/{walk.nic}", walk.dst_addr, walk.sport)
    way = [known.links[number] for number in known.paths[name]]
    return Walked(
        walk=walk, hops=[_hop(walk, way[:limit], meet, silent) for limit in range(1, walk.hops + 1)]
    )


def _hop(walk: Walk, way: list[DirectedLink], meet: Switch, silent: frozenset[str]) -> WalkHop:
    for link in way:
        found = meet(walk, link)
        if found is None:
            return WalkHop(answer="none")
        if isinstance(found, WalkHop):
            return WalkHop(answer="none") if link.a in silent else found
        walk = found
    if "/" in way[-1].b or way[-1].b in silent:
        return WalkHop(answer="none")
    return WalkHop(answer="expired", responder=way[-1].b, tos=walk.tos)
