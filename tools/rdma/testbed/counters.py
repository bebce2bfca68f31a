"""What is counted while a transfer runs: by the Soft-RoCE devices, by its ICRC check, and by the hops.

`rdma_rxe` drops a packet with a wrong ICRC without a counter or a word in the log. So every return of the function that
checks is counted by a kernel probe: how often it found what it should, and how often not.

Nor does it count a packet that it drops for its queue pair: one that is gone, or one whose address vector is being replaced
by `ibv_modify_qp` (`rxe_init_av` clears it first, and `check_addr` reads it meanwhile). Those come from the tracepoint of
packets that are freed, by the function that freed them.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cwdp.errors import LabError
from cwdp.rdma import sysfs
from tools.lab.network import fabric
from tools.lab.network.fabric import Node
from tools.lab.topology import Topology

_TRACING = Path("/sys/kernel/tracing")
_PROBE = "rxe_icrc"
_EVENT = _TRACING / "events/kprobes" / _PROBE
_HISTOGRAM = "hist:keys=found"
_ROW = re.compile(r"\{ found:\s*(\d+) \} hitcount:\s*(\d+)")
_FREED = _TRACING / "events/skb/kfree_skb"
_FREED_HISTOGRAM = "hist:keys=location.sym"
_FREED_ROW = re.compile(r"\] rxe_rcv\b.*\} hitcount:\s*(\d+)")
_SETTLE_TIMEOUT_S = 5.0
_SETTLE_POLL_S = 0.2
_DEVICE_COUNTERS = (
    "sent_pkts",
    "rcvd_pkts",
    "out_of_seq_request",
    "duplicate_request",
    "rcvd_seq_err",
    "send_rnr_err",
    "completer_retry_err",
    "retry_exceeded_err",
)


@dataclass(frozen=True)
class Counts:
    """Counters of all devices together, and packets of the ports.

    Attributes:
        devices: by name, as below `hw_counters`.
        icrc_right, icrc_wrong: packets by what the check of their ICRC found.
        rxe_dropped: packets that reached `rdma_rxe` and that it dropped, those with a wrong ICRC among them.
        spines: packets that each spine sent, by name.
    """

    devices: dict[str, int]
    icrc_right: int
    icrc_wrong: int
    rxe_dropped: int
    spines: dict[str, int]

    def since(self, before: Self) -> "Counts":
        """Return what was counted between `before` and this."""
        return Counts(
            _difference(self.devices, before.devices),
            self.icrc_right - before.icrc_right,
            self.icrc_wrong - before.icrc_wrong,
            self.rxe_dropped - before.rxe_dropped,
            _difference(self.spines, before.spines),
        )


class Counters:
    """Reads all counters. Made by `counting`."""

    def __init__(self, spines: list[Node]) -> None:
        self._spines = spines

    def read(self) -> Counts:
        """Return all counters as they are now."""
        found = {int(value): int(hits) for value, hits in _ROW.findall((_EVENT / "hist").read_text())}
        right = found.pop(0, 0)
        dropped = sum(map(int, _FREED_ROW.findall((_FREED / "hist").read_text())))
        return Counts(_device_counters(), right, sum(found.values()), dropped, self.spines())

    def settled(self) -> Counts:
        """Return the counters once nothing is under way any more."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        before = self.read()
        while time.monotonic() < deadline:
            time.sleep(_SETTLE_POLL_S)
            now = self.read()
            if now == before:
                break
            before = now
        return before

    def spines(self) -> dict[str, int]:
        """Return how many packets each spine has sent."""
        return {node.name: sum(_sent_packets(node).values()) for node in self._spines}

    def sent_to(self, leaf: str) -> dict[str, int]:
        """Return how many packets each spine has sent to a leaf."""
        return {node.name: _sent_packets(node)[leaf] for node in self._spines}


@contextmanager
def counting(topology: Topology) -> Iterator[Counters]:
    """Count ICRC checks, and keep the spines open for reading.

    Raises:
        LabError: this kernel cannot count them.
    """
    with _icrc_checks(), _freed_packets(), fabric.open_nodes(topology, topology.spines) as nodes:
        yield Counters(list(nodes.values()))


@contextmanager
def _icrc_checks() -> Iterator[None]:
    try:
        _append(_TRACING / "kprobe_events", f"r:{_PROBE} rdma_rxe:rxe_icrc_check found=$retval")
        _append(_EVENT / "trigger", _HISTOGRAM)
    except OSError as error:
        raise LabError(
            f"the ICRC checks of rdma_rxe cannot be counted: {error}",
            "A kernel with kprobes and tracefs is needed.",
        ) from error
    try:
        yield
    finally:
        _append(_EVENT / "trigger", f"!{_HISTOGRAM}")
        _append(_TRACING / "kprobe_events", f"-:{_PROBE}")


@contextmanager
def _freed_packets() -> Iterator[None]:
    _append(_FREED / "trigger", _FREED_HISTOGRAM)
    try:
        yield
    finally:
        _append(_FREED / "trigger", f"!{_FREED_HISTOGRAM}")


def _append(path: Path, line: str) -> None:
    """Add to one of the tracer's files: what is opened otherwise is cleared, and a file object would seek in it."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def _device_counters() -> dict[str, int]:
    total = dict.fromkeys(_DEVICE_COUNTERS, 0)
    for counter in sysfs.counters():
        if counter.name in total:
            total[counter.name] += counter.value
    return total


def _sent_packets(node: Node) -> dict[str, int]:
    """Return the packets sent by each port of a switch, by the neighbour, its name."""
    return {
        link.get_attr("IFLA_IFNAME"): link.get_attr("IFLA_STATS64")["tx_packets"]
        for link in node.ip.get_links()
    }


def _difference(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in now.items()}
