"""TCP ports for servers that are started soon, and perhaps again: of tests, of several processes at once."""

import os
import random
import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle

_FIRST, _LAST = 10_000, 32_000
_WORKERS = 16


def free_port() -> int:
    """A TCP port that nobody listens on now, below those that Linux gives to who connects.

    It is asked for long before it is bound. So each process of pytest-xdist has ports of its own, and none comes again
    before all others have.

    Raises:
        OSError: there is none.
    """
    ports = _ports()
    for _ in range(_FIRST, _LAST, _WORKERS):
        port = next(ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no TCP port between {_FIRST} and {_LAST} is free")


@cache
def _ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(_FIRST + worker % _WORKERS, _LAST, _WORKERS))
    random.Random(os.getpid()).shuffle(ports)
    return cycle(ports)
