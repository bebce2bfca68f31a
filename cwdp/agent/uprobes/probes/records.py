"""What the probes write down (`uprobes.c`), as Python has it. No I/O."""

import struct
from typing import NamedTuple

QP_CREATED, QP_CHANGED, QP_DESTROYED, CALL, COMM_MADE, COMM_GONE = range(6)
"""`enum kind`."""

COUNTS = ("lost", "unmatched", "unreadable", "refused")
"""`enum count`: no room for a record, an end without its beginning, memory of a program that could not be read, calls that failed."""

TYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""By `ncclDataType_t`."""

_KIND = struct.Struct("=II")
_QP = struct.Struct("=IIQIIIBBBB16s64s")
_CALL = struct.Struct("=IIQQQQIIIi")
_COMM = struct.Struct("=IIQQii128s")
_HASH_SEED, _HASH_FACTOR, _64 = 14_695_981_039_346_656_037, 1_099_511_628_211, 2**64


class QpSeen(NamedTuple):
    """A queue pair was made, given another state, or destroyed.

    Attributes:
        time_ns: CLOCK_MONOTONIC, as all of them.
        dest_qpn: None where the call does not tell.
        dgid: None where the call does not tell of a path.
    """

    kind: int
    pid: int
    time_ns: int
    device: str
    qpn: int
    state: int
    dest_qpn: int | None
    port: int
    gid_index: int
    dgid: bytes | None


class CallSeen(NamedTuple):
    """A call of NCCL has returned: it is enqueued, no more.

    Attributes:
        lasted_ns: of the call itself.
        function: a place in `cwdp.shared.bus.collectives.FUNCTIONS`.
        bytes: the count that it was called with, times its type's.
        comm: where the program has its communicator.
        peer: the root or the peer; -1 where there is none.
    """

    pid: int
    tid: int
    time_ns: int
    lasted_ns: int
    function: int
    bytes: int
    comm: int
    peer: int


class CommSeen(NamedTuple):
    """A communicator was made, or is gone; `id` is the same for all its ranks."""

    is_made: bool
    pid: int
    time_ns: int
    comm: int
    id: int
    rank: int
    ranks: int


Seen = QpSeen | CallSeen | CommSeen


def seen(data: bytes) -> Seen:
    """One record."""
    kind, _ = _KIND.unpack_from(data)
    if kind == CALL:
        _, pid, time_ns, lasted_ns, count, comm, tid, function, datatype, peer = _CALL.unpack_from(data)
        size = TYPE_BYTES[datatype] if datatype < len(TYPE_BYTES) else 1
        return CallSeen(pid, tid, time_ns, lasted_ns, function, count * size, comm, peer)
    if kind in (COMM_MADE, COMM_GONE):
        _, pid, time_ns, comm, ranks, rank, unique = _COMM.unpack_from(data)
        return CommSeen(kind == COMM_MADE, pid, time_ns, comm, hashed(unique), rank, ranks)
    _, pid, time_ns, qpn, state, dest_qpn, port, gid_index, has_path, has_dest, dgid, device = (
        _QP.unpack_from(data)
    )
    name = device.split(b"\0", 1)[0].decode("ascii", errors="replace")
    dest, path = dest_qpn if has_dest else None, dgid if has_path else None
    return QpSeen(kind, pid, time_ns, name, qpn, state, dest, port, gid_index, path)


def hashed(unique: bytes) -> int:
    """A number of 64 bits for the ID of a communicator (FNV-1a)."""
    value = _HASH_SEED
    for byte in unique:
        value = (value ^ byte) * _HASH_FACTOR % _64
    return value
