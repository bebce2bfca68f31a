"""A transfer in three runs: no failure; a link that dies silently, without cwdp; the same with cwdp.

Silently means that the carrier stays, so that no routing protocol ever learns of it.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any

import msgspec

from cwdp.agent.liveness.process import PulseOrders
from cwdp.agent.liveness.pulses import PulseOrder
from cwdp.dataplane import abi
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import LabError
from tools.rdma.scenarios.moves import Mover, another_port, mover
from tools.rdma.scenarios.scenario import Bench, Scenario, recorded
from tools.rdma.scenarios.transfers import run_plain
from tools.rdma.testbed.counters import Counters
from tools.rdma.testbed.fabric import RdmaHost, silent
from tools.rdma.testbed.programs import Transfer, started
from tools.waiting import wait_for

TRANSFER = Transfer("pyverbs", 4, messages=384, ack_timeout="19")
"""The transfer of all three runs: it gives up after 7 tries of 2.1 s, 15 s without an answer. (On a busy machine that
emulates, a timer of 0.5 s runs out by itself, again and again.)"""

PULSE_INTERVAL_MS = 20
DEAD_AFTER_NS = 500_000_000
"""Both far above what a host would have: emulated, everything takes a hundred times as long."""

_KEY_ID, _KEY = 1, bytes(range(16))
_SEED = 3
_FLOW_PACKETS = 100
_FLOW_TIMEOUT_S = 60.0
_FLOW_POLL_S = 0.2
_STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Way:
    """The spines that the packets from a source port take: the data there, the acknowledgements back."""

    sport: int
    there: str
    back: str


def without_cwdp() -> Iterator[tuple[str, Scenario]]:
    """Yield the first two runs."""
    yield "failure: none", partial(run_plain, TRANSFER)
    yield "failure: silent, without cwdp", run_cut


def with_cwdp() -> Iterator[tuple[str, Scenario]]:
    """Yield the third run, which needs the dataplane on both NICs."""
    yield "failure: silent, with cwdp", run_failover


def run_cut(bench: Bench) -> dict[str, Any]:
    """Cut the link that a transfer uses, and wait for what becomes of it."""
    with recorded(bench) as record, started(TRANSFER, bench.source, bench.target) as running:
        spine, _ = spines_in_use(bench.counters)
        with _cut(spine, record):
            record.update(asdict(running.finish()))
    return record


def run_failover(bench: Bench) -> dict[str, Any]:
    """Cut the link that a steered transfer uses, and which its backup does not use."""
    hosts = (bench.source, bench.target)
    with ExitStack() as stack:
        record = stack.enter_context(recorded(bench))
        maps = stack.enter_context(watched(hosts))
        running = stack.enter_context(started(TRANSFER, *hosts))
        steering = stack.enter_context(mover(running, *hosts, TRANSFER.version))
        primary, backup = find_ways(steering, bench.counters)
        steering.move(primary.sport, backup.sport)
        record |= {"primary": asdict(primary), "backup": asdict(backup)}
        with _cut(primary.there, record):
            record |= asdict(running.finish())
        record["dataplane"] = {host.ifname: each.counters() for host, each in zip(hosts, maps, strict=True)}
    return record


@contextmanager
def watched(hosts: tuple[RdmaHost, ...]) -> Iterator[list[Maps]]:
    """Have the paths of these hosts pulsed; their maps."""
    with ExitStack() as stack:
        maps = [stack.enter_context(Maps(tree.here(host.ifname))) for host in hosts]
        for each in maps:
            each.set_key(_KEY_ID, _KEY)
            each.control["dead_after_ns"] = DEAD_AFTER_NS
        stack.enter_context(pulses(hosts))
        yield maps


def find_ways(steering: Mover, counters: Counters) -> tuple[Way, Way]:
    """Move a transfer about until two ways are known of which the other avoids the one's spine."""
    draw = random.Random(_SEED)
    primary = _way(steering, counters, another_port(draw, 0))
    while True:
        backup = _way(steering, counters, another_port(draw, primary.sport))
        if primary.there not in {backup.there, backup.back}:
            return primary, backup


def spines_in_use(counters: Counters) -> tuple[str, str]:
    """Return the spines that carry the data and the acknowledgements of a transfer, once there is one under way.

    Raises:
        LabError: nothing was under way for long.
    """
    deadline = time.monotonic() + _FLOW_TIMEOUT_S
    before = counters.sent_to("l2"), counters.sent_to("l1")
    while time.monotonic() < deadline:
        time.sleep(_FLOW_POLL_S)
        there, back = (
            {spine: count - known[spine] for spine, count in counters.sent_to(leaf).items()}
            for leaf, known in zip(("l2", "l1"), before, strict=True)
        )
        if max(there.values()) >= _FLOW_PACKETS:
            return max(there, key=there.__getitem__), max(back, key=back.__getitem__)
    raise LabError("no packets of the transfer pass the spines")


def _way(steering: Mover, counters: Counters, sport: int) -> Way:
    steering.move(sport)
    time.sleep(_FLOW_POLL_S)  # what left before is still under way
    return Way(sport, *spines_in_use(counters))


@contextmanager
def _cut(spine: str, record: dict[str, Any]) -> Iterator[None]:
    """Have a spine's link to the first leaf lose everything; record which, and how long the transfer went on."""
    record["cut"] = link = f"l1-{spine}"
    with silent(link):
        began_s = time.monotonic()
        try:
            yield
        finally:
            record["went_on_s"] = time.monotonic() - began_s


@contextmanager
def pulses(hosts: tuple[RdmaHost, ...]) -> Iterator[None]:
    """Have the paths of these hosts probed, by the process which the agent has for that."""
    nics = [
        PulseOrder(host.ifname, 0, _KEY_ID, abi.ROCE_PORT, str(host.ipv4), str(host.ipv6)) for host in hosts
    ]
    with helper("cwdp.agent.liveness.process", PulseOrders(nics, [])):
        yield


class Helper:
    """A process of the agent's, which takes its orders and says its totals.

    Attributes:
        totals: what it has counted, by name; whole once it has ended.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        orders: msgspec.Struct | Sequence[msgspec.Struct],
        said: IO[bytes],
    ) -> None:
        assert process.stdin is not None
        self.totals: dict[str, int] = {}
        self._process, self._stdin, self._orders, self._said = process, process.stdin, orders, said

    def order(self) -> None:
        """Give it its orders, the first time or anew."""
        self._stdin.write(msgspec.json.encode(self._orders) + b"\n")
        self._stdin.flush()

    def await_word(self) -> None:
        """Return once it has said something."""
        wait_for(lambda: os.fstat(self._said.fileno()).st_size, _FLOW_TIMEOUT_S, poll_s=_FLOW_POLL_S)

    def end(self) -> None:
        """Have it end."""
        self._stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.seek(0)
        self.totals = msgspec.json.decode((self._said.read().splitlines() or [b"{}"])[-1])


@contextmanager
def helper(module: str, orders: msgspec.Struct | Sequence[msgspec.Struct]) -> Iterator[Helper]:
    """Run a process of the agent's with its orders."""
    with TemporaryFile() as said:
        command = (sys.executable, "-m", module, str(PULSE_INTERVAL_MS))
        running = Helper(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said), orders, said)
        try:
            running.order()
            running.await_word()
            yield running
        finally:
            running.end()
