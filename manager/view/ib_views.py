"""What the HTTP API answers about InfiniBand: subnets, exact ways, loads of links. No I/O."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from cwdp.shared.ib.subnet import SWITCH
from manager.ib.links import link_rates
from manager.ib.subnets import SubnetNow, Subnets
from manager.ib.ways import Chosen, Way, chosen, ways
from manager.view.json_values import Json, is_at
from manager.view.link_table import LinkTable

ONE_LID = (
    "LMC is 0: one way, and nothing to go over to when it fails; the subnet manager gives more LIDs: "
    "`lmc 2` in opensm.conf makes four ways"
)
ONE_SWITCH = "both are at one switch: there is one way"
NONE_APART = "no two ways share no link"
MANY_LIDS = 2

Shares = Callable[[str, str], Mapping[int, float]]
"""From two addresses of ports: the part of new connections that each destination LID takes."""


def _no_shares(_src_addr: str, _dst_addr: str) -> Mapping[int, float]:
    return {}


def subnets(known: Subnets) -> Json:
    """Each subnet that is read, and what became of the messages of those who read."""
    return {
        "infiniband": [_subnet(one) for one in known.now],
        "infiniband_messages": dict(known.results),
    }


def pairs(known: Subnets, src: str, dst: str, shares: Shares = _no_shares) -> Iterator[Json]:
    """The ways between two NICs, or all those of two hosts, in the same subnet; `shares` of new connections by addresses of ports."""
    for one in known.now:
        nics = one.names.nics
        from_, to = (
            sorted((nic, row) for nic, row in nics.items() if is_at(nic, name)) for name in (src, dst)
        )
        for nic, row in from_:
            yield from (_pair(one, (nic, row), other, shares) for other in to if other[1] != row)


def with_infiniband(table: LinkTable, known: Subnets) -> LinkTable:
    """A table of links with those of InfiniBand behind the others, those that are down last."""
    rates = [link_rates(one) for one in known.now]
    if not rates:
        return table
    load_bps, capacity_bps = (
        np.concatenate([getattr(one, name) for one in rates]) for name in ("load_bps", "capacity_bps")
    )
    links = [link for one in rates for link in one.links]
    gone = sorted(set(known.down).difference(links))
    down = np.full(len(gone), np.nan)
    load_bps, capacity_bps = (np.concatenate([values, down]) for values in (load_bps, capacity_bps))
    unknown = np.full(len(load_bps), np.nan)
    more = {"load_bps": load_bps, "capacity_bps": capacity_bps, "likely_capacity_bps": capacity_bps}
    return LinkTable(
        [*table.names, *links, *gone],
        {key: np.concatenate([values, more.get(key, unknown)]) for key, values in table.values.items()},
        table.wrong,
        np.concatenate([table.stands, np.zeros(len(unknown), bool)]),
        table.avoided,
    )


def _subnet(one: SubnetNow) -> Json:
    subnet = one.subnet
    lmcs = np.unique(subnet.ports["lmc"][np.array(list(one.names.nics.values()), np.intp)])
    sm, engine = subnet.sm
    manager = np.flatnonzero(subnet.guids == sm)
    return {
        "reader": one.reader,
        "is_fresh": one.is_fresh,
        "prefix": f"{subnet.prefix:#018x}",
        "switch_count": int(np.count_nonzero(subnet.kinds == SWITCH)),
        "nic_count": len(one.names.nics),
        "cable_count": len(subnet.links),
        "lmcs": lmcs.tolist(),
        "subnet_manager": one.names.nodes[int(manager[0])] if sm and len(manager) else None,
        "routing_engine": engine or None,
        "silent": [one.names.ports[row] for row in subnet.silent],
        "note": ONE_LID if lmcs.tolist() == [0] else "",
    }


def _pair(one: SubnetNow, src: tuple[str, int], dst: tuple[str, int], shares: Shares) -> Json:
    found = ways(one.routes, src[1], dst[1])
    best = chosen(found)
    there = [way for way in found if way.leaves is not None]
    share = shares(one.subnet.gid(src[1]), one.subnet.gid(dst[1]))
    return {
        "src": src[0],
        "dst": dst[0],
        "dst_addr": one.subnet.gid(dst[1]),
        "protocol": "infiniband",
        "paths_known": len({way.leaves for way in there}),
        "paths_between_leaves": len({way.between for way in there}),
        "ports_traced": len(found),
        "confidence": 1.0,
        "ports": [_way(one, way, best) | {"share": share.get(way.dlid)} for way in there],
        "no_route": [way.dlid for way in found if way.leaves is None],
        "primary": None if best.primary is None else best.primary.dlid,
        "backup": None if best.backup is None else best.backup.dlid,
        "note": _note(found, best),
        "may_talk": one.subnet.may_talk(src[1], dst[1]),
    }


def _way(one: SubnetNow, way: Way, best: Chosen) -> Json:
    ports = one.names.ports
    return {
        "sport": way.dlid,
        "in_use": False,
        "role": "primary" if way is best.primary else "backup" if way is best.backup else None,
        "nodes": [one.names.nodes[row] for row in way.switches],
        "leaves_by": [ports[row] for row in way.leaves or ()],
    }


def _note(found: Sequence[Way], best: Chosen) -> str:
    if best.primary is None or best.backup is not None:
        return ""
    if not best.primary.between:
        return ONE_SWITCH
    return ONE_LID if len(found) < MANY_LIDS else NONE_APART
