"""`python -m cwdp.agent.uprobes.process`: traces calls of programs in named cgroups by uprobes, and tells the agent.

A process of its own, as bcc brings a compiler along, whose memory and faults are not to be the agent's. The probes are gone when
it is. It is over when standard input is.
"""

import os
import resource
import select
import sys
import time
from contextlib import suppress

from cwdp.agent.orders import Orders, Words
from cwdp.agent.uprobes.cgroups import mounts
from cwdp.agent.uprobes.orders import UprobesOrder
from cwdp.agent.uprobes.probes.tracer import Tracer
from cwdp.agent.uprobes.tracing import Tracing

LOOK_S, SAY_S, SOON_S, WAIT_S = 1.0, 0.5, 0.02, 0.1
NICE = 5


def run(orders: Orders[UprobesOrder], words: Words) -> None:
    """Trace until the agent is gone."""
    tracing: Tracing | None = None
    looked_s = said_s = 0.0
    with suppress(EOFError, BrokenPipeError):
        while True:
            order = orders.take()
            if order is not None:
                tracing = Tracing(order.cgroups, mounts(), Tracer)
            now_s = time.monotonic()
            if tracing is None or not tracing.is_tracing:
                select.select([orders.fileno()], [], [], LOOK_S if tracing is None or said_s else SOON_S)
            if tracing is None:
                continue
            if now_s - looked_s >= LOOK_S:
                looked_s = now_s
                tracing.look(now_s)
            tracing.read(WAIT_S if tracing.is_tracing else 0.0)
            if now_s - said_s >= (SOON_S if tracing.has_news else SAY_S) and words.is_free():
                said_s = now_s
                words.say(tracing.word())


def main() -> None:
    """Run, out of the way of programs."""
    os.nice(NICE)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each library takes some twenty descriptors
    said = os.dup(sys.stdout.fileno())
    os.dup2(
        sys.stderr.fileno(), sys.stdout.fileno()
    )  # what bcc and the programs that it calls write is none of our words
    run(Orders(sys.stdin.fileno(), UprobesOrder), Words(said))


if __name__ == "__main__":
    main()
