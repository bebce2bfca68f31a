"""The rings of collectives of several hosts' programs, read as their agents read them, and put together as their manager does.

No agent and no manager are in between: emulated, four of them would leave no time for the programs.
"""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cwdp.agent.collectives.process import Reading
from cwdp.shared.bus.collectives import CollectiveReport
from manager.collectives.store import CollectiveStore
from manager.collectives.views import collectives

_BACKLOG = 16
_TURN_S = 0.2


class Rings:
    """What was read so far. Made by `reading`."""

    def __init__(self, readings: dict[str, Reading]) -> None:
        self._readings = readings
        self._store = CollectiveStore()
        self._ended = threading.Event()
        self._guard = threading.Lock()

    def told(self) -> list[dict[str, Any]]:
        """The calls, as `/v1/collectives` has them, by CLOCK_MONOTONIC; those that took longest first."""
        with self._guard:
            shown = collectives(self._store, job="", sort="slowest", limit=0)
        found: list[dict[str, Any]] = shown["collectives"]
        return found

    def counters(self) -> dict[str, dict[str, int]]:
        """What each host's reader has counted."""
        with self._guard:
            return {host: dict(reading.word().counters) for host, reading in self._readings.items()}

    def run(self) -> None:
        """Read until `end`."""
        while not self._ended.wait(_TURN_S):
            with self._guard:
                self._turn()

    def end(self) -> None:
        """Have `run` come to its end."""
        self._ended.set()

    def _turn(self) -> None:
        for host, reading in self._readings.items():
            reading.turn()
            word = reading.word()
            report = CollectiveReport(
                host=host, comms=word.comms, calls=word.calls, peers=word.peers, chunks=word.chunks
            )
            if word.comms:
                self._store.hear(report, self._readings, time.monotonic_ns())


def nccl_socket(folder: Path, host: str) -> Path:
    """Where programs of a host pass over their rings."""
    return folder / f"{host}.nccl"


@contextmanager
def reading(hosts: Iterable[str], folder: Path) -> Iterator[Rings]:
    """Read what programs of these hosts tell, by sockets in a folder."""
    with ExitStack() as stack:
        readings = {}
        for host in hosts:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.bind(str(nccl_socket(folder, host)))
            listener.listen(_BACKLOG)
            readings[host] = Reading(listener)
            stack.callback(readings[host].programs.close)
        rings = Rings(readings)
        reader = threading.Thread(target=rings.run, name="rings")
        reader.start()
        stack.callback(reader.join)
        stack.callback(rings.end)
        yield rings
