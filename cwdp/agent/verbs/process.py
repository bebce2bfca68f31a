"""`python -m cwdp.agent.verbs.process LISTENER URGENT`: serves programs that have loaded the verbs shim.

A process of its own: when a path has fallen silent a thousand queue pairs are to be told within milliseconds, whatever else
the agent does, and no program's flood is to make the agent late. The numbers are of sockets that it inherits: one listens for programs, by the other
come paths that are down from those who watch them, and steps of migrations from the agent. The agent (`cwdp.agent.verbs.keeper`) writes its orders to standard input,
one line of JSON each, and reads from standard output which queue pairs there are. Its end is the end of standard input.
Programs wait for the first orders, so that what they are given and what they tell is by the agent's sources from the start.
"""

import gc
import os
import select
import socket
import sys
import time
from contextlib import suppress

from cwdp.agent.orders import Orders, Words
from cwdp.agent.verbs.host import VerbsHost
from cwdp.agent.verbs.orders import VerbsOrder

SAY_S, CALM_S = 0.1, 1.0
POLL_S = 0.05
NICE = -10


def run(orders: Orders[VerbsOrder], host: VerbsHost, words: Words) -> None:
    """Serve until the agent is gone."""
    said_s, is_ordered = 0.0, False
    ears = [orders.fileno(), *host.filenos()]
    with suppress(EOFError, BrokenPipeError):
        while True:
            order = orders.take()
            if order is not None:
                host.follow(order)
                is_ordered = True
            more = is_ordered and host.step()
            now_s = time.monotonic()
            is_due = now_s - said_s >= (SAY_S if host.has_news() else CALM_S) or host.has_answers()
            if is_due and words.is_free():
                said_s = now_s
                words.say(host.word())
            select.select(ears, [], [], 0 if more else CALM_S if host.is_idle else POLL_S)


def main() -> None:
    """Run with the sockets whose numbers are given on the command line."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    gc.disable()  # nothing here makes cycles
    listener, urgent = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    run(Orders(sys.stdin.fileno(), VerbsOrder), VerbsHost(listener, urgent), Words(sys.stdout.fileno()))


if __name__ == "__main__":
    main()
