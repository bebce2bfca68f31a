"""The programs that have passed over a ring: who may, whose turn it is to be read, who is gone.

Any user of the host may connect. A program is read as much of at once as of all others, and its memory is never trusted.
"""

import select
import socket
import struct
import time
from collections import Counter
from contextlib import suppress

from cwdp.nccl.calls import Calls
from cwdp.nccl.ring import COUNTS, RECORDS, Ring, take_ring

MOST_PROGRAMS, MOST_OF_A_USER = 256, 128
RECORDS_A_TURN, FEWEST = 65_536, 1_024
"""Of all programs, and of each at least."""

GREETING_S = 10.0
MOST_COUNTED = 2**40

_CREDENTIALS = struct.Struct("=iII")


class Program:
    """One of them; `pid` and `uid` are as the kernel says, 0 where its namespace is not below this one's."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, self.uid, _ = _CREDENTIALS.unpack(credentials)
        self.number, self.sock = number, sock
        self.since_s = time.monotonic()
        self.ring: Ring | None = None
        self.counted: Counter[str] = Counter()


class Programs:
    """All of them.

    Args:
        listener: a socket that listens; it stays the caller's.
        calls: are told what programs have written.
        counters: of `cwdp.agent.collectives.orders.COUNTERS`.
    """

    def __init__(self, listener: socket.socket, calls: Calls, counters: Counter[str]) -> None:
        self._listener, self._calls, self._counters = listener, calls, counters
        self._programs: dict[int, Program] = {}
        self._by_number: dict[int, Program] = {}
        self._gone: list[Program] = []
        self._numbers = 0
        self._poll = select.poll()
        listener.setblocking(False)
        self._poll.register(listener, select.POLLIN)

    def __len__(self) -> int:
        return len(self._programs)

    def of(self, number: int) -> Program | None:
        """The program of a number; those that are gone stay until `bury`."""
        return self._by_number.get(number)

    def turn(self) -> None:
        """See who comes and goes, and read some of what there is."""
        for fd, _ in self._poll.poll(0):
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._programs:
                self._hear(self._programs[fd])
        read_s = time.monotonic()
        for program in list(self._programs.values()):
            if program.ring is None and read_s - program.since_s > GREETING_S:
                self._drop(program, "programs_mute")
        self._read()

    def bury(self) -> None:
        """Forget those that are gone; what they did has been told."""
        for program in self._gone:
            del self._by_number[program.number]
        self._gone.clear()

    def close(self) -> None:
        """Let go of all."""
        for program in list(self._programs.values()):
            program.sock.close()
        self._programs.clear()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            self._numbers += 1
            program = Program(self._numbers, sock)
            same = sum(other.uid == program.uid for other in self._programs.values())
            if same >= MOST_OF_A_USER or len(self._programs) >= MOST_PROGRAMS:
                self._counters["programs_refused"] += 1
                sock.close()
                continue
            self._programs[sock.fileno()] = self._by_number[program.number] = program
            self._poll.register(sock, select.POLLIN)

    def _hear(self, program: Program) -> None:
        """A program says one thing, with which it passes its ring over; later it can but end."""
        if program.ring is not None:
            with suppress(BlockingIOError):
                why = "programs_garbage" if _has_words(program.sock) else None
                self._drop(program, why)
            return
        try:
            program.ring = take_ring(program.sock)
        except BlockingIOError:
            return
        except OSError:
            self._drop(program, None)
            return
        if program.ring is None:
            self._drop(program, "programs_garbage")

    def _drop(self, program: Program, why: str | None) -> None:
        if why is not None:
            self._counters[why] += 1
        self._poll.unregister(program.sock)
        del self._programs[program.sock.fileno()]
        program.sock.close()
        self._gone.append(program)
        if program.ring is not None:
            self._read_one(program, RECORDS, self._pids())
        self._calls.forget(program.number)

    def _pids(self) -> dict[int, int]:
        """The numbers of programs by what they call themselves; those that share one by no means."""
        pids = Counter(program.ring.pid for program in self._programs.values() if program.ring)
        return {
            program.ring.pid: program.number
            for program in self._programs.values()
            if program.ring and pids[program.ring.pid] == 1
        }

    def _read(self) -> None:
        readable = [program for program in self._programs.values() if program.ring]
        most = max(FEWEST, RECORDS_A_TURN // max(1, len(readable)))
        pids = self._pids()
        for program in readable:
            self._read_one(program, most, pids)

    def _read_one(self, program: Program, most: int, pids: dict[int, int]) -> None:
        assert program.ring is not None
        records = program.ring.read(most)
        if len(records):
            self._calls.take(program.number, pids, program.ring.pid, records, time.monotonic_ns())
        told = program.ring.counts()
        for name in COUNTS:
            grown = min(told[name], MOST_COUNTED) - program.counted[name]
            if grown > 0:
                self._counters[f"plugin_{name}"] += grown
                program.counted[name] += grown


def _has_words(sock: socket.socket) -> bool:
    """Whether it has said something; not where it has ended.

    Raises:
        BlockingIOError: neither.
    """
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        raise
    except OSError:
        return False
