"""What agents tell of NCCL's and RCCL's collectives and point-to-point calls."""

import numpy as np
from msgspec import Struct

from cwdp.shared.bus.messages import FromAgent

FUNCTIONS = (
    "other", "AllGather", "AllReduce", "AlltoAll", "Broadcast", "Gather", "Recv", "Reduce", "ReduceScatter", "Scatter",
    "Send", "SendRecv",
)  # fmt: skip
"""By their numbers in rows."""

WAITS = ("buffer", "gpu", "peer", "network", "flush")
"""What the chunks of a call waited for: a free buffer; the rank's own GPU; sending, that the peer is clear to take them; that they are
sent, or that they arrive; receiving, that they are in the GPU's memory."""

OVER, SLOW, ENQUEUED = 1, 2, 4
"""Flags of a call: it is over; it took much longer than others like it; uprobes saw it return, so that nothing is known but when it
was enqueued, and its end is that of the call."""

CALL_ROW = np.dtype(
    [
        ("comm", "<u4"),
        ("peer", "<i4"),
        ("function", "u1"),
        ("flags", "u1"),
        ("reserved", "u1", (2,)),
        ("ops", "<u4"),
        ("open_ops", "<u4"),
        ("chunks", "<u4"),
        ("seq", "<u8"),
        ("bytes", "<u8"),
        ("enqueued_ns", "<i8"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
    ]
)
"""A call of one rank, on the common timeline. `comm` is a place in the report's communicators, `peer` the root or the peer, `bytes`
the count that it was called with, times its type's. It was enqueued (0: not known), its first data left the GPU, or its first
operation began where it sends none, and its last operation ended; of a call that is not over, its last
operation or chunk so far. An operation is one channel with one peer."""

PEER_ROW = np.dtype(
    [
        ("call", "<u4"),
        ("peer", "<i4"),
        ("is_send", "<u4"),
        ("chunks", "<u4"),
        ("bytes", "<u8"),
        ("wait_ns", "<u8", (len(WAITS),)),
        ("longest_ns", "<u8"),
    ]
)
"""All chunks of a call to or from a peer: what they waited for, summed, and how long the longest one took. `call` is a place in
the report's calls."""

CHUNK_ROW = np.dtype(
    [
        ("call", "<u4"),
        ("peer", "<i4"),
        ("step", "<i4"),
        ("is_send", "u1"),
        ("channel", "u1"),
        ("reserved", "u1", (2,)),
        ("bytes", "<u8"),
        ("begin_ns", "<i8"),
        ("wait_ns", "<u8", (len(WAITS),)),
        ("wr_id", "<u8"),
        ("qpn", "<u4"),
        ("posts", "<u4"),
    ]
)
"""One chunk, of a call that was slow or is one of many: `posts` work requests (0: not known) of the queue pair `qpn` sent it, the
last of which is `wr_id`."""


class Communicator(Struct, frozen=True, kw_only=True):
    """A communicator as one rank has it.

    Attributes:
        id: NCCL's hash of it, the same for all ranks.
        rank: -1 where it is not known.
        ranks, nodes: 0 where they are not known.
        job: as `cwdp.shared.verbs.Program` has it.
    """

    id: int
    name: str
    rank: int
    ranks: int
    nodes: int
    pid: int
    job: str = ""


class CollectiveReport(FromAgent, frozen=True, kw_only=True):
    """Calls that are over, or have stood still for long, since the last report: CALL_ROWs, PEER_ROWs and CHUNK_ROWs."""

    comms: list[Communicator]
    calls: bytes
    peers: bytes
    chunks: bytes
