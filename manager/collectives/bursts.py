"""What ranks of NCCL and RCCL send each other in their calls, as bursts: for NICs whose packets pass no host's network stack. No I/O."""

import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.collectives import ENQUEUED, OVER, Communicator
from cwdp.shared.bus.records import BURST_ROW, EGRESS, INGRESS, qp_keys, taken, together
from manager.hosts.order import in_order
from manager.jobs.flows import Flow, NicName, nic_name
from manager.jobs.membership import Owner, Owners
from manager.jobs.watch import Told, ToldBursts
from manager.queue_pairs.bursts import REMEMBERED_NS, BurstStore

GAP_NS = 10_000_000
"""Calls of a rank that follow each other sooner are one burst, as in the dataplane by default (`burst_gap_ms`)."""

MOST_PROCESSES, MOST_RANKS = 64, 1_024
"""Of a host, and what these are in communicators: those heard of last."""

NO_QPN = 1 << 24
"""QPNs have 24 bits: what stands for one that is not known has more."""

Rows = NDArray[np.void]
Process = tuple[str, int]
Rank = tuple[int, int]
"""A communicator, and the place in it."""

Claim = tuple[int, Process]
"""Who says that it has a rank, and since when it does."""

_PEER = np.dtype([("comm", "<u8"), ("rank", "<i4"), ("reserved", "u1", (4,))])
"""Who has the other end, in the place of its address in a BURST_ROW."""


class _Known(NamedTuple):
    """What is known at a moment; read only, so that a thread may.

    Attributes:
        rings: bursts of each process, dtype BURST_ROW with a _PEER for an address and no QPN, shape (n,).
        claims: the ranks that the processes of each host have.
        jobs: what processes call their job; empty for none.
    """

    rings: Mapping[Process, Rows]
    claims: Sequence[Mapping[Rank, Claim]]
    jobs: Mapping[Process, str]


class CallBursts:
    """The latest of every process that tells."""

    def __init__(self) -> None:
        self._store = BurstStore()
        self._claims: defaultdict[str, OrderedDict[Rank, Claim]] = defaultdict(OrderedDict)
        self._heard: defaultdict[str, OrderedDict[Process, tuple[int, str]]] = defaultdict(OrderedDict)

    def hear(
        self, host: str, comms: Sequence[Communicator], calls: Rows, peers: Rows, now_ns: int | None
    ) -> None:
        """Take in what a host tells of calls that are over.

        Args:
            host: that tells.
            comms: of its ranks.
            calls: dtype CALL_ROW, shape (calls,), all of these communicators.
            peers: dtype PEER_ROW, shape (peers,).
            now_ns: the timeline now; None while it is not known: then nothing is taken in.
        """
        if now_ns is None or not comms:
            return
        for comm in comms:
            self._know(host, comm, now_ns)
        of = peers[peers["call"] < len(calls)]
        call = calls[of["call"]]
        is_over = (call["flags"] & (OVER | ENQUEUED)) == OVER
        is_over &= (of["peer"] >= 0) & (call["start_ns"] <= call["end_ns"])
        rows, pids = _rows(comms, taken(call, is_over), taken(of, is_over))
        for pid in np.unique(pids).tolist():
            if (host, pid) in self._heard[host]:
                mine = taken(rows, pids == pid)
                self._store.hear([_name((host, pid))], mine, [len(mine)], now_ns)

    def told(self, now_ns: int) -> Told | None:
        """What tells of hosts on which no burst is seen; None where no rank tells. Who has told nothing for long is forgotten."""
        for host, those in list(self._heard.items()):
            for process in [each for each, (at_ns, _) in those.items() if at_ns < now_ns - REMEMBERED_NS]:
                self._forget(host, process)
        rings = {(host, int(pid)): rows for (host, pid), rows in self._store.now().items()}
        if not rings:
            return None
        claims = [dict(those) for those in self._claims.values()]
        jobs = {process: job for those in self._heard.values() for process, (_, job) in those.items()}
        return partial(_as_seen, _Known(rings, claims, jobs))

    def _know(self, host: str, comm: Communicator, now_ns: int) -> None:
        process, those, claims = (host, comm.pid), self._heard[host], self._claims[host]
        those[process] = now_ns, comm.job
        those.move_to_end(process)
        if len(those) > MOST_PROCESSES:
            self._forget(host, next(iter(those)))
        rank = comm.id % 2**64, comm.rank
        if rank not in claims or claims[rank][1] != process:
            claims[rank] = now_ns, process
        claims.move_to_end(rank)
        if len(claims) > MOST_RANKS:
            claims.popitem(last=False)

    def _forget(self, host: str, process: Process) -> None:
        self._store.forget(_name(process))
        del self._heard[host][process]
        if not self._heard[host]:
            del self._heard[host], self._claims[host]


def _name(process: Process) -> NicName:
    host, pid = process
    return host, str(pid)


def _rows(comms: Sequence[Communicator], calls: Rows, peers: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """What went to and from peers, calls that follow each other as one burst; and whose each is, by its pid, shape (n,)."""
    order = np.lexsort((calls["start_ns"], peers["is_send"], peers["peer"], calls["comm"]))
    calls, peers = taken(calls, order), taken(peers, order)
    start_ns, end_ns = calls["start_ns"], calls["end_ns"]
    is_first = np.ones(len(calls), np.bool_)
    is_first[1:] = start_ns[1:] - end_ns[:-1] > GAP_NS
    for column in (calls["comm"], peers["peer"], peers["is_send"]):
        is_first[1:] |= column[1:] != column[:-1]
    firsts = np.flatnonzero(is_first)
    rows = np.zeros(len(firsts), BURST_ROW)
    pids = np.array([comm.pid for comm in comms], np.int64)[calls["comm"][firsts]]
    if not len(firsts):
        return rows, pids
    far = np.zeros(len(firsts), _PEER)
    far["comm"] = np.array([comm.id % 2**64 for comm in comms], np.uint64)[calls["comm"][firsts]]
    far["rank"] = peers["peer"][firsts]
    rows["addr"] = far.view(np.uint8).reshape(len(firsts), _PEER.itemsize)
    rows["direction"] = np.where(peers["is_send"][firsts] > 0, EGRESS, INGRESS)
    rows["start_ns"], rows["end_ns"] = start_ns[firsts], np.maximum.reduceat(end_ns, firsts)
    rows["packets"] = np.add.reduceat(peers["chunks"].astype(np.uint64), firsts)
    rows["bytes"] = np.add.reduceat(peers["bytes"], firsts)
    return rows, pids


@dataclass(frozen=True)
class _Ends:
    """Where processes send.

    Attributes:
        nics: the NIC of each process that programs have told of.
        first: the first NIC of each host, for the others.
        qpns: the least QPN of a process to a NIC, by both.
    """

    nics: Mapping[Process, str]
    first: Mapping[str, str]
    qpns: Mapping[tuple[Process, str], int]

    def nic(self, process: Process) -> str | None:
        return self.nics.get(process) or self.first.get(process[0])

    def flow(self, sender: Process, receiver: Process) -> Flow | None:
        """From one to the other; None where it is not known, or goes over no network."""
        src, dst = self.nic(sender), self.nic(receiver)
        if src is None or dst is None or src == dst:
            return None
        stands_in = NO_QPN | zlib.crc32(f"{sender[1]} {receiver[1]}".encode())
        return Flow(src, dst, self.qpns.get((sender, dst), stands_in))


def _as_seen(
    told: _Known, seen: Mapping[NicName, Rows], owners: Mapping[Flow, Owners], addresses: Mapping[bytes, str]
) -> ToldBursts:
    """What ranks tell on hosts where no burst is seen, as if it had been.

    A process whose NIC no program has told of is taken to use the first of its host.

    Args:
        told: by ranks.
        seen: bursts that are, of each NIC.
        owners: whose the ends of flows are, as programs have told.
        addresses: the NIC that has each packed address.
    """
    hosts, ranks = {host for host, _ in seen}, _ranks(told.claims)
    ends, address = _ends(owners, addresses), {nic: packed for packed, nic in addresses.items()}
    rings: defaultdict[NicName, list[Rows]] = defaultdict(list)
    whose: dict[Flow, Owners] = {}
    for process, rows in told.rings.items():
        nic = ends.nic(process)
        if process[0] not in hosts and nic is not None:
            own, found = _resolved(process, rows, ranks, ends, address)
            rings[nic_name(nic)].append(own)
            whose |= {flow: (_owner(src, told), _owner(dst, told)) for flow, (src, dst) in found.items()}
    return ToldBursts({nic: together(parts) for nic, parts in rings.items()}, whose)


def _ranks(claims: Iterable[Mapping[Rank, Claim]]) -> dict[Rank, Process]:
    """Who has each rank: of several hosts that say so the one that said so first."""
    found: dict[Rank, Claim] = {}
    for those in claims:
        for rank, claim in those.items():
            found[rank] = min(found.get(rank, claim), claim)
    return {rank: process for rank, (_, process) in found.items()}


def _resolved(
    process: Process, rows: Rows, ranks: Mapping[Rank, Process], ends: _Ends, address: Mapping[str, bytes]
) -> tuple[Rows, dict[Flow, tuple[Process, Process]]]:
    """A process's bursts with addresses and QPNs, those that go elsewhere; and the processes that have the ends of their flows."""
    _, first, of = np.unique(qp_keys(rows), return_index=True, return_inverse=True)
    packed, qpns = (
        np.zeros((len(first), BURST_ROW["addr"].shape[0]), np.uint8),
        np.zeros(len(first), np.uint32),
    )
    is_known, found = np.zeros(len(first), np.bool_), {}
    for i, row in enumerate(rows[first]):
        peer = np.frombuffer(row["addr"].tobytes(), _PEER)[0]
        other = ranks.get((int(peer["comm"]), int(peer["rank"])))
        if other is None:
            continue
        is_sent = row["direction"] == EGRESS
        both = (process, other) if is_sent else (other, process)
        flow = ends.flow(*both)
        if flow is not None:
            far = flow.dst if is_sent else flow.src
            packed[i], qpns[i], is_known[i] = np.frombuffer(address[far], np.uint8), flow.qpn, True
            found[flow] = both
    kept = is_known[of]
    own = taken(rows, kept).copy()
    own["addr"], own["qpn"] = packed[of[kept]], qpns[of[kept]]
    return own, found


def _owner(process: Process, told: _Known) -> Owner:
    return Owner(*process, told.jobs.get(process, ""))


def _ends(owners: Mapping[Flow, Owners], addresses: Mapping[bytes, str]) -> _Ends:
    nics: dict[Process, str] = {}
    qpns: dict[tuple[Process, str], int] = {}
    for flow in sorted(owners):
        sender, _ = owners[flow]
        if sender is not None:
            process = sender.host, sender.pid
            nics.setdefault(process, flow.src)
            qpns.setdefault((process, flow.dst), flow.qpn)
    first = {nic_name(nic)[0]: nic for nic in reversed(in_order(set(addresses.values())))}
    return _Ends(nics, first, qpns)
