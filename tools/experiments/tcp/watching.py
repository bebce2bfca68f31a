"""What connections have received by when, as the kernel of their receiver counts it, and what was reset."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.tcp.diag import Diag, Sockets, condition
from cwdp.shared.addresses import Address, bytes_address
from tools.lab import Lab
from tools.lab.network.netns import netns_enter

INTERVAL_S = 0.004
LEAST_BYTES = 64 * 1024
"""A connection by which less came is not one of data: `iperf3` has one more to talk over."""

RESETS = "EstabResets"
_SNMP = Path("/proc/thread-self/net/snmp")


class Ends(NamedTuple):
    """A connection as its receiver has it."""

    host: str
    address: Address
    port: int
    far_address: Address
    far_port: int


@dataclass(frozen=True, eq=False)
class Received:
    """What one connection's receiver had by when: CLOCK_MONOTONIC in ns and bytes, both of shape (n,)."""

    at_ns: NDArray[np.int64]
    octets: NDArray[np.int64]

    def stall_ns(self, from_ns: int, until_ns: int) -> int:
        """The longest time without anything new that has a part between these two moments; up to the watch's interval more."""
        grew = np.flatnonzero(np.diff(self.octets) > 0) + 1
        news = np.concatenate([self.at_ns[:1], self.at_ns[grew], self.at_ns[-1:]])
        touches = (news[1:] > from_ns) & (news[:-1] < until_ns)
        return int(np.diff(news)[touches].max(initial=0))

    def mean_bps(self, from_ns: int, until_ns: int) -> float:
        """Between two moments."""
        first, last = np.interp([from_ns, until_ns], self.at_ns, self.octets)
        return float((last - first) * 8e9 / (until_ns - from_ns))


class Watch:
    """Asks all hosts of a lab again and again from when it is entered until it is left.

    Args:
        lab: where.
        ports: one of the two of connections that count.
    """

    def __init__(self, lab: Lab, ports: Sequence[tuple[int, int]]) -> None:
        self._lab, self._condition = lab, condition(ports, [])
        self._seen: list[tuple[int, str, Sockets]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def received(self) -> dict[Ends, Received]:
        """What came by connections of data; once it is left."""
        found: dict[Ends, tuple[list[int], list[int]]] = {}
        for at_ns, host, sockets in self._seen:
            for row in sockets:
                times, octets = found.setdefault(_ends(host, row), ([], []))
                times.append(at_ns)
                octets.append(int(row["bytes_received"]))
        return {
            ends: Received(np.array(times), np.array(octets))
            for ends, (times, octets) in found.items()
            if octets[-1] >= LEAST_BYTES
        }

    def retransmitted_bytes(self) -> int:
        """What was sent again by all connections; once it is left."""
        most: dict[Ends, int] = {}
        for _, host, sockets in self._seen:
            most |= {_ends(host, row): int(row["bytes_retransmitted"]) for row in sockets}
        return sum(most.values())

    def _run(self) -> None:
        with ExitStack() as stack:
            asked = {}
            for host in self._lab.hosts:
                with netns_enter(host.netns):
                    asked[host.name] = stack.enter_context(Diag())
            while not self._is_over.wait(INTERVAL_S):
                for name, diag in asked.items():
                    sockets = diag.read(self._condition)
                    self._seen.append((time.monotonic_ns(), name, sockets))


def resets(lab: Lab) -> dict[str, int]:
    """Connections of each host that were reset while they were established, since it is there."""
    found = {}
    for host in lab.hosts:
        with netns_enter(host.netns):
            found[host.name] = _tcp_counters(_SNMP.read_text())[RESETS]
    return found


def _tcp_counters(snmp: str) -> Mapping[str, int]:
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:"))
    return dict(zip(names, map(int, values), strict=True))


def _ends(host: str, row: np.void) -> Ends:
    near, far = (bytes_address(row[f"{end}_addr"].tobytes()) for end in ("local", "remote"))
    return Ends(host, near, int(row["local_port"]), far, int(row["remote_port"]))
