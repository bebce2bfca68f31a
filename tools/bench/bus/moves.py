"""What it takes to move one queue pair of a host after the other: bytes on the bus, processor time of manager and agent.

A host with 8 NICs, 64 peers that it probes over 16 paths each, and 256 queue pairs with backups and detours. The whole
document is written each time, as for agents that read no changes, and what has changed; by turns in one process, without a bus.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean, median
from typing import TypeVar

from msgspec.structs import replace

from cwdp.shared.bus.desired import changes, stored
from cwdp.shared.bus.messages import Desired, Detour, ProbeEdge, RoceSettings, SteerQp, TraceOrder
from cwdp.shared.bus.sealing import HostSeal, LeaderSeal
from cwdp.shared.identity.jwt import public_key
from manager.identity.authority import Authority
from tools.bench.figures import Figure, figure

NICS, PEERS, PATHS, QUEUE_PAIRS = 8, 64, 16, 256
MOVES = 500
TARGET_BYTES = 5_700
"""A tenth of the whole document."""

_T = TypeVar("_T")


def figures() -> Iterator[Figure]:
    """Bytes and processor time of a move."""
    key = Authority.new().control_key
    manager, agent = LeaderSeal(key), HostSeal("h0", public_key(key))
    costs: dict[str, list[int]] = {name: [] for name in ("whole told", "whole heard", "told", "heard")}
    whole_bytes: list[int] = []
    move_bytes: list[int] = []
    document = base = _document(random.Random(1))
    draw, left_bytes, written_whole = random.Random(2), 0, 0
    for _ in range(MOVES):
        document = _moved(document, draw)
        whole = _timed(costs["whole told"], partial(manager.encode, stored.KIND, document))
        _timed(costs["whole heard"], partial(agent.opened, stored.KIND, Desired, whole))
        whole_bytes.append(len(whole))
        data = _timed(costs["told"], partial(_change, manager, base, document))
        if len(data) > left_bytes:
            base, left_bytes, written_whole = document, len(whole), written_whole + 1
            costs["told"].append(costs["told"].pop() + costs["whole told"][-1])
            costs["heard"].append(costs["whole heard"][-1])
            move_bytes.append(len(whole))
            continue
        left_bytes -= len(data)
        move_bytes.append(len(data))
        _timed(costs["heard"], partial(_heard, agent, base, data))
    reference = {
        "nics": NICS,
        "peers": PEERS,
        "paths": PATHS,
        "queue_pairs": QUEUE_PAIRS,
        "moves": MOVES,
        "median_bytes": median(move_bytes),
        "written_whole": written_whole,
    }
    yield figure("moves.whole_bytes", fmean(whole_bytes), "bytes", reference, None)
    yield figure("moves.bytes", fmean(move_bytes), "bytes", reference, TARGET_BYTES)
    for name, found in costs.items():
        reported = f"moves.{name.replace(' ', '_')}_cpu"
        yield figure(reported, fmean(found) / 1e9, "s", reference, None, digits=8)


def _change(seal: LeaderSeal, base: Desired, document: Desired) -> bytes:
    change = changes.change_of(base, document)
    assert change is not None
    return seal.encode(changes.KIND, change)


def _heard(seal: HostSeal, base: Desired, data: bytes) -> Desired:
    return changes.changed(base, seal.opened(changes.KIND, changes.Change, data))


def _timed(costs_ns: list[int], what: Callable[[], _T]) -> _T:
    begun_ns = time.process_time_ns()
    made = what()
    costs_ns.append(time.process_time_ns() - begun_ns)
    return made


def _moved(document: Desired, draw: random.Random) -> Desired:
    """One queue pair on another path, with another backup and detour."""
    at = draw.randrange(QUEUE_PAIRS)
    steer, round_nics = list(document.steer), list(document.detours)
    steer[at] = replace(steer[at], sport=_port(draw), backup_sport=_port(draw))
    round_nics[at] = replace(round_nics[at], sport=_port(draw))
    return replace(document, version=document.version + 1, steer=steer, detours=round_nics)


def _document(draw: random.Random) -> Desired:
    nics = [f"nic{i}" for i in range(NICS)]
    probes = [
        ProbeEdge(
            src=f"h0/{nic}",
            dst=f"h{peer}/{nic}",
            src_addr=f"10.0.{i}.1",
            dst_addr=f"10.{peer}.{i}.1",
            sports=[_port(draw) for _ in range(PATHS)],
            reply_sports=[_port(draw) for _ in range(PATHS)],
            pairs_per_s=25.0,
        )
        for i, nic in enumerate(nics)
        for peer in range(1, 1 + PEERS // NICS)
    ]
    steer = [
        SteerQp(
            nic=nics[i % NICS],
            dst_addr=f"10.{1 + i // NICS}.{i % NICS}.1",
            qpn=draw.randrange(1 << 24),
            sport=_port(draw),
            backup_sport=_port(draw),
        )
        for i in range(QUEUE_PAIRS)
    ]
    return Desired(
        host="h0",
        version=1,
        epoch=1,
        probes=probes,
        steer=steer,
        roce=RoceSettings(),
        traces=[
            TraceOrder(nic=edge.src.partition("/")[2], dst_addr=edge.dst_addr, sports=edge.sports, switches=3)
            for edge in probes
        ],
        detours=[
            Detour(nic=one.nic, dst_addr=one.dst_addr, other_addr=one.dst_addr, sport=_port(draw))
            for one in steer
        ],
    )


def _port(draw: random.Random) -> int:
    return draw.randrange(0xC000, 0x10000)
