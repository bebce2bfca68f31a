"""The ring of a program's events, as `cwdp/nccl/plugin/ring.h` has it, for the one who reads it.

A program may write whatever it wants into it at any time. So nothing is read by it but numbers, of which none is used before it is
bounded, and what is read is copied first. Its memory is sealed: it cannot be taken away.
"""

import fcntl
import mmap
import os
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.kernel.barrier import store_barrier
from cwdp.errors import KernelError

SOCKET = "/run/cwdp-verbs/nccl.sock"
MAGIC, VERSION = 0x6E765743, 1
COMMS, RECORDS = 1_024, 32_768
NAME_BYTES, JOB_BYTES, WAITS = 40, 64, 5
NO_COMM = 2**16 - 1

CALL, OP_BEGIN, OP_END, STEP = 1, 2, 3, 4
"""Kinds of records."""

POST, GPU, PEER, WIRE, FLUSH = range(WAITS)
"""What a step waited for, as `enum cwdp_nccl_wait`."""

RECORD = np.dtype(
    [
        ("place", "u8"), ("begin_ns", "u8"), ("lasted_ns", "u8"), ("seq", "u8"), ("bytes", "u8"),
        ("wait_ns", "u8", (WAITS,)), ("comm", "u2"), ("kind", "u1"), ("function", "u1"), ("channel", "u1"),
        ("is_send", "u1"), ("reserved", "u2"), ("peer", "i4"), ("step", "i4"), ("pid", "i4"), ("qpn", "u4"),
        ("wr_id", "u8"), ("posted_bytes", "u4"), ("posts", "u4"), ("spare", "u8"),
    ]
)  # fmt: skip
"""See `struct cwdp_nccl_record`."""

COMM = np.dtype(
    [
        ("id", "u8"),
        ("rank", "i4"),
        ("ranks", "i4"),
        ("nodes", "i4"),
        ("used", "u4"),
        ("name", f"S{NAME_BYTES}"),
    ]
)
HELLO = struct.Struct("=II")
HEADER = struct.Struct(f"=IIIIiI{JOB_BYTES}s")
HEAD_AT, TAIL_AT, COUNTS_AT, COMMS_AT = 128, 256, 384, 4_096
RECORDS_AT = COMMS_AT + COMMS * COMM.itemsize
BYTES = RECORDS_AT + RECORDS * RECORD.itemsize

COUNTS = ("records_dropped", "events_unfollowed", "comms_unfollowed", "handles_stale")
"""What the plug-in counts that came to nothing."""

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Comm(NamedTuple):
    """A communicator, as the program says.

    Attributes:
        rank: -1 where it is not known yet.
        ranks, nodes: 0 where they are not known.
    """

    id: int
    rank: int
    ranks: int
    nodes: int
    name: str


class Ring:
    """One program's.

    Args:
        memory: all of it; whoever gives it leaves it here.
        pid: the program's, as it says itself.
        job: a variable of its environment that names its job, NAME=VALUE, of characters that can be shown.
    """

    def __init__(self, memory: mmap.mmap, pid: int, job: str) -> None:
        self._memory = memory
        self._records = np.frombuffer(memory, RECORD, RECORDS, RECORDS_AT)
        self._comms = np.frombuffer(memory, COMM, COMMS, COMMS_AT)
        self._head = np.frombuffer(memory, "u8", 1, HEAD_AT)
        self._tail = np.frombuffer(memory, "u8", 1, TAIL_AT)
        self._counts = np.frombuffer(memory, "u8", len(COUNTS), COUNTS_AT)
        self._next = int(self._tail[0])
        self._known: dict[int, tuple[bytes, Comm]] = {}
        self.pid, self.job = pid, job

    def read(self, most: int = RECORDS) -> NDArray[np.void]:
        """The next records that are whole, at most so many, dtype RECORD, shape (n,); the program may use their places again."""
        waiting = (int(self._head[0]) - self._next) % 2**64
        count = min(waiting, most, RECORDS)
        if not count:
            return np.empty(0, RECORD)
        places = (self._next % RECORDS + np.arange(count)) % RECORDS
        wanted = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(self._next)
        is_whole = self._records["place"][places] == wanted
        whole = count if is_whole.all() else int(is_whole.argmin())
        with suppress(KernelError):
            store_barrier()
        taken = self._records[places[:whole]]
        with suppress(KernelError):
            store_barrier()
        self._next = (self._next + whole) % 2**64
        self._tail[0] = self._next
        return taken

    def comm(self, place: int) -> Comm | None:
        """The communicator that records name by this; None for none."""
        if not 0 <= place < COMMS:
            return None
        written = self._comms[place].tobytes()
        known = self._known.get(place)
        if known is None or known[0] != written:
            known = self._known[place] = written, _comm(np.frombuffer(written, COMM)[0])
        return known[1]

    def counts(self) -> dict[str, int]:
        """COUNTS, as the program says."""
        return dict(zip(COUNTS, self._counts.tolist(), strict=True))


def _comm(row: np.void) -> Comm:
    return Comm(
        int(row["id"]), int(row["rank"]), int(row["ranks"]), int(row["nodes"]), shown(bytes(row["name"]))
    )


def take_ring(connection: socket.socket) -> Ring | None:
    """What a program passes over with its first message; None where it is no ring.

    Raises:
        OSError: there is no message yet, or no program any more.
    """
    data, passed, _, _ = socket.recv_fds(connection, HELLO.size + 1, 4)
    try:
        if not data:
            raise ConnectionResetError("it has ended")
        if len(data) != HELLO.size or HELLO.unpack(data) != (MAGIC, VERSION) or len(passed) != 1:
            return None
        return _mapped(passed[0])
    finally:
        for fd in passed:
            os.close(fd)


def shown(text: bytes) -> str:
    """Up to its end, with another sign for each character that is not printable ASCII."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "?" for byte in text.split(b"\0", 1)[0])


def _mapped(fd: int) -> Ring | None:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # no memfd: what else it is could end or stop who reads it
        return None
    if seals & SEALS != SEALS or os.fstat(fd).st_size != BYTES:
        return None
    memory = mmap.mmap(fd, BYTES)
    magic, version, comms, records, pid, _, job = HEADER.unpack_from(memory)
    if (magic, version, comms, records) != (MAGIC, VERSION, COMMS, RECORDS):
        return None
    return Ring(memory, pid, shown(job))
