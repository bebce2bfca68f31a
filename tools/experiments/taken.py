"""Which links between switches queue pairs take at a moment, and which have a backup, as their hosts' dataplanes say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cwdp.dataplane.abi import Direction, SteerFlag
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.shared.addresses import Address
from tools.lab import Host, Lab
from tools.lab.network.netns import netns_enter
from tools.lab.truth.ecmp import Stream, switches_of
from tools.roce.flows import Flow


@dataclass(frozen=True)
class _Side:
    """One direction of a queue pair: its packets, or what acknowledges them."""

    flow: int
    source: str
    source_address: Address
    target: str
    target_address: Address
    qpn: int


def links_taken(lab: Lab, flows: Sequence[Flow]) -> dict[int, frozenset[str]]:
    """The directed links (`l1>s2`) between switches of each queue pair's packets and acknowledgements, by flow."""
    sides = [side for flow in flows for side in _sides(flow)]
    streams = {
        side: Stream(side.source, side.source_address, side.target_address, int(record["used_sport"]))
        for host in lab.hosts
        for side, record in _records(host, sides)
    }
    switches = switches_of(lab, list(streams.values()))
    links: dict[int, set[str]] = {flow.id: set() for flow in flows}
    for side, stream in streams.items():
        links[side.flow] |= {f"{a}>{b}" for a, b in pairwise(switches[stream])}
    return {flow: frozenset(found) for flow, found in links.items()}


def without_backup(lab: Lab, flows: Sequence[Flow]) -> int:
    """How many directions of queue pairs between leaves have no backup, or have not sent yet."""
    leaf = {host.name: host.nics[0].leaf for host in lab.hosts}
    sides = [side for flow in flows for side in _sides(flow) if leaf[side.source] != leaf[side.target]]
    found = [record for host in lab.hosts for _, record in _records(host, sides)]
    return len(sides) - sum(bool(record["flags"] & SteerFlag.BACKUP) for record in found)


def _sides(flow: Flow) -> Iterator[_Side]:
    there, back = flow.source, flow.target
    yield _Side(flow.id, there.host, there.address, back.host, back.address, flow.remote_qpn)
    yield _Side(flow.id, back.host, back.address, there.host, there.address, flow.qpn)


def _records(host: Host, sides: Sequence[_Side]) -> Iterator[tuple[_Side, np.void]]:
    """Of `abi.QP`, for each side that begins at a host and has sent."""
    with netns_enter(host.netns):
        maps = Maps(tree.here(host.nics[0].name))
    with maps:
        table = maps.qps[Direction.EGRESS]
        known = table[table["tag"] > 0]
    for side in sides:
        is_its = (known["key"]["qpn"] == side.qpn) & (
            known["key"]["addr"] == address_words(side.target_address)
        ).all(axis=1)
        if side.source == host.name and is_its.any():
            yield side, known[np.flatnonzero(is_its)[0]]
