"""Calls that are over, as rows. No I/O."""

from collections import deque
from collections.abc import Callable

import numpy as np

from cwdp.agent.collectives.orders import NcclWord
from cwdp.nccl.calls import Call, Peer, Rows
from cwdp.shared.bus.collectives import CALL_ROW, CHUNK_ROW, OVER, PEER_ROW, SLOW, Communicator
from cwdp.shared.bus.packing import row_bytes

MOST_CALLS, MOST_PEERS, MOST_CHUNKS = 512, 2_048, 1_024
"""Of one word."""

NAMES = ("peer", "step", "is_send", "channel", "bytes", "begin_ns", "wait_ns", "wr_id", "qpn", "posts")


def next_word(
    calls: deque[Call], comm_of: Callable[[Call], Communicator | None], counters: dict[str, int]
) -> NcclWord:
    """What is to be told of these calls, of which those are taken off the list that had room.

    Args:
        calls: to be told; shortened.
        comm_of: the communicator of a call; None where nobody knows it any more, and it is not told.
        counters: of the word.
    """
    comms: dict[Communicator, int] = {}
    told: list[tuple[Call, int]] = []
    peers: list[tuple[int, tuple[int, bool], Peer]] = []
    chunks: list[Rows] = []
    room = MOST_CHUNKS
    while calls and len(told) < MOST_CALLS and len(peers) + len(calls[0].peers) <= MOST_PEERS:
        call = calls.popleft()
        comm = comm_of(call)
        if comm is None:
            continue
        place = len(told)
        told.append((call, comms.setdefault(comm, len(comms))))
        peers += [(place, name, peer) for name, peer in call.peers.items()]
        if call.chunks is not None and room:
            chunks.append(_chunk_rows(call.chunks[:room], place))
            room -= len(chunks[-1])
    return NcclWord(
        counters=counters,
        comms=list(comms),
        calls=row_bytes(_call_rows(told)),
        peers=row_bytes(_peer_rows(peers)),
        chunks=row_bytes(np.concatenate([np.empty(0, CHUNK_ROW), *chunks])),
    )


def _call_rows(told: list[tuple[Call, int]]) -> Rows:
    rows = [
        (
            comm,
            call.peer,
            call.function,
            (OVER if call.is_over else 0) | (SLOW if call.is_slow else 0),
            (0, 0),
            call.ops,
            max(0, call.ops - call.ended),
            sum(peer.chunks for peer in call.peers.values()),
            call.seq,
            call.bytes,
            call.enqueued_ns,
            call.start_ns,
            call.last_ns,
        )
        for call, comm in told
    ]
    return np.array(rows, CALL_ROW)


def _peer_rows(peers: list[tuple[int, tuple[int, bool], Peer]]) -> Rows:
    rows = [
        (place, name, is_send, peer.chunks, peer.bytes, tuple(peer.wait_ns), peer.longest_ns)
        for place, (name, is_send), peer in peers
    ]
    return np.array(rows, PEER_ROW)


def _chunk_rows(chunks: Rows, place: int) -> Rows:
    rows = np.zeros(len(chunks), CHUNK_ROW)
    rows["call"] = place
    for name in NAMES:
        rows[name] = chunks[name]
    return rows
