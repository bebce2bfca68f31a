"""`python -m cwdp.agent.collectives.process LISTENER`: reads the rings of NCCL's programs, and tells the agent what they did.

A process of its own, so that no program's flood makes the agent late. The number is of a socket that listens for programs, which
it inherits. It is over when standard input is.
"""

import os
import select
import socket
import sys
import time
from collections import Counter
from contextlib import suppress

from cwdp.agent.collectives.orders import COUNTERS, NcclOrder, NcclWord
from cwdp.agent.collectives.programs import Programs
from cwdp.agent.collectives.words import next_word
from cwdp.agent.orders import Orders, Words
from cwdp.agent.programs.programs import program
from cwdp.nccl.calls import Call, Calls
from cwdp.shared.bus.collectives import Communicator
from cwdp.shared.verbs import Program

READ_S, IDLE_S, SAY_S = 0.25, 1.0, 0.4
NICE = 5


class Reading:
    """All that the process does, but for waiting."""

    def __init__(self, listener: socket.socket) -> None:
        self.calls = Calls()
        self._counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.programs = Programs(listener, self.calls, self._counters)
        self._known: dict[int, Program] = {}
        self._read_us = 0

    def turn(self) -> None:
        """Read what there is."""
        began_ns = time.monotonic_ns()
        self.programs.turn()
        self.calls.close(time.monotonic_ns())
        self._read_us = (time.monotonic_ns() - began_ns) // 1_000

    def word(self) -> NcclWord:
        """What is to be told now."""
        word = next_word(self.calls.over, self._comm_of, self._numbers())
        if not self.calls.over:
            self.programs.bury()
            self._known = {number: one for number, one in self._known.items() if self.programs.of(number)}
        return word

    def _numbers(self) -> dict[str, int]:
        total = self._counters + self.calls.counters
        numbers = {name: total[name] for name in COUNTERS}
        return numbers | {
            "programs": len(self.programs), "calls_open": len(self.calls), "read_us": self._read_us
        }  # fmt: skip

    def _comm_of(self, call: Call) -> Communicator | None:
        owner = self.programs.of(call.owner)
        comm = None if owner is None or owner.ring is None else owner.ring.comm(call.comm)
        if owner is None or owner.ring is None or comm is None:
            return None
        known = self._known.get(call.owner)
        if known is None:
            known = self._known[call.owner] = program(owner.pid, owner.ring.job)
        return Communicator(
            id=comm.id,
            name=comm.name,
            rank=comm.rank,
            ranks=comm.ranks,
            nodes=comm.nodes,
            pid=owner.pid,
            job=known.job,
        )


def run(orders: Orders[NcclOrder], reading: Reading, words: Words) -> None:
    """Read until the agent is gone."""
    said_s = 0.0
    with suppress(EOFError, BrokenPipeError):
        while True:
            orders.take()
            reading.turn()
            now_s = time.monotonic()
            if now_s - said_s >= SAY_S and words.is_free():
                said_s = now_s
                words.say(reading.word())
            select.select([orders.fileno()], [], [], READ_S if len(reading.programs) else IDLE_S)


def main() -> None:
    """Run with the socket whose number is given on the command line."""
    os.nice(NICE)
    reading = Reading(socket.socket(fileno=int(sys.argv[1])))
    run(Orders(sys.stdin.fileno(), NcclOrder), reading, Words(sys.stdout.fileno()))


if __name__ == "__main__":
    main()
