"""From the manager's probe edges to paths in the order in which one NIC sends them."""

import socket
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.probing.packets import Path, build, round_robin
from cwdp.shared.bus.messages import ProbeEdge


@dataclass(frozen=True)
class PathKey:
    """Names one path for as long as it is probed."""

    src: str
    dst: str
    sport: int
    reply_sport: int


@dataclass(frozen=True)
class FamilySchedule:
    """What a NIC sends over one address family.

    Attributes:
        family: AF_INET or AF_INET6.
        templates: rows of `packets.build`, two a turn, in the order of sending.
        path: the index into `Schedule.paths` of each turn, shape (turns,).
        pairs_per_s: how fast turns follow one another.
    """

    family: socket.AddressFamily
    templates: NDArray[np.void]
    path: NDArray[np.intp]
    pairs_per_s: float


@dataclass(frozen=True)
class Schedule:
    """What a NIC sends.

    Attributes:
        paths: every path.
        edge: the index of each path's edge in the edges given, shape (paths,).
        families: one ring of packets per address family in use.
    """

    paths: list[PathKey]
    edge: NDArray[np.intp]
    families: list[FamilySchedule]


def make_schedule(edges: list[ProbeEdge], *, key_id: int, port: int, rng: np.random.Generator) -> Schedule:
    """Lay out the packets of a NIC's edges; edges without paths or rate are left out."""
    keys: list[PathKey] = []
    packets: list[Path] = []
    owner: list[int] = []
    rates: list[float] = []
    for index, edge in enumerate(edges):
        ports = list(zip(edge.sports, edge.reply_sports, strict=False))
        for sport, reply_sport in ports if edge.pairs_per_s > 0 else ():
            packets.append(Path(len(keys), edge.src_addr, edge.dst_addr, sport, reply_sport))
            keys.append(PathKey(edge.src, edge.dst, sport, reply_sport))
            owner.append(index)
            rates.append(edge.pairs_per_s / len(ports))
    families = []
    for family in (socket.AF_INET, socket.AF_INET6):
        chosen = np.array([i for i, p in enumerate(packets) if p.family == family], dtype=np.intp)
        if len(chosen):
            rate = np.array(rates)[chosen]
            order = chosen[round_robin(rate, rng)]
            templates = build([packets[i] for i in order], key_id, port)
            families.append(FamilySchedule(family, templates, order, float(rate.sum())))
    return Schedule(keys, np.array(owner, dtype=np.intp), families)
