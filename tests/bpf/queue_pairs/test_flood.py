"""Packets of queue pairs that nobody has, as fast as the kernel runs the programs: those that are there keep their places.

Anybody who can send a UDP datagram can make them up, on this host or on the fabric.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

import need
import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Reason, SteerFlag
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned import control
from cwdp.dataplane.pinned.maps import shared
from cwdp.dataplane.steering.steering import QpKey
from tools.bench.packet_costs.flows import ADDRESSES, FLOWS, QPN_FIRST, Flow
from tools.bench.packet_costs.measure import BENCH_OBJECT

pytestmark = pytest.mark.kernel

ACTIVE = Flow("ipv4", "full", qps_bits=10)
STRANGERS = Flow("ipv4", "ack", qps_bits=23, is_random=True)
NEWCOMER = Flow("ipv6", "full")
EACH_ONCE = 1 << ACTIVE.qps_bits
TICK_S = 0.35
"""At least 32 jiffies, on a kernel of any HZ."""

FLOOD = 40_000
LEAVES, CLASS = 64, 0x10001
SIDES = {Direction.EGRESS: ("tc_flows", "qps_out"), Direction.INGRESS: ("xdp_flows", "qps_in")}


@dataclass
class Host:
    """The programs of the benchmark, which make the next packet of a flow before each run."""

    obj: BpfObject
    direction: Direction
    _states: dict[Flow, bytes] = field(default_factory=dict)

    def run(self, flow: Flow, packets: int) -> None:
        """The next packets of a flow."""
        program, _ = SIDES[self.direction]
        flows = self.obj.map_fd("bench_flows")
        libbpf.map_update(flows, 0, self._states.get(flow, flow.record()))
        libbpf.prog_test_run(self.obj.program_fd(program), flow.frame(), repeat=packets)
        self._states[flow] = libbpf.map_lookup(flows, 0, FLOWS.itemsize)

    def of(self, flow: Flow) -> NDArray[np.void]:
        """The records of a flow's queue pairs that are there, in the order of their numbers; dtype `abi.QP`."""
        every = shared(self.obj.map_fd(SIDES[self.direction][1]), abi.QP, abi.QP_WAYS)
        numbers = every["key"]["qpn"].astype(np.int64) - QPN_FIRST
        is_there = (every["tag"] > 1) & (numbers >= 0) & (numbers < 1 << flow.qps_bits)
        mapped = every["key"]["addr"][:, 2] == 0xFFFF
        found = every[is_there & (mapped == (flow.family == "ipv4"))].copy()
        ordered: NDArray[np.void] = found[np.argsort(found["key"]["qpn"])]
        return ordered

    def steer(self, flow: Flow) -> None:
        """Have the first of a flow's queue pairs take another port."""
        record = np.zeros((), dtype=abi.STEER)
        record["sport"], record["flags"] = 60_000, SteerFlag.ON
        key = QpKey(ip_address(ADDRESSES[flow.family][1]), QPN_FIRST)
        libbpf.hash_update(self.obj.map_fd("steer"), key.pack(), record.tobytes())
        counts = shared(self.obj.map_fd("steered"), abi.STEERED)["qps"][0]
        counts[QPN_FIRST % abi.STEERED_QPNS] += 1

    def counted(self, reason: Reason) -> int:
        """How often, on all CPUs."""
        size = abi.COUNTERS.itemsize * libbpf.possible_cpus()
        raw = libbpf.map_lookup(self.obj.map_fd("counters"), 0, size)
        return int(np.frombuffer(raw, dtype=abi.COUNTERS)["count"][:, reason].sum())


@pytest.fixture(params=list(SIDES), ids=lambda direction: direction.name.lower())
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """A host with classes of its own for queue pairs."""
    need.installed(BENCH_OBJECT)
    with BpfObject(BENCH_OBJECT) as obj:
        obj.set_initial_value(".rodata", Settings().to_bytes())
        obj.load()
        record = control.initial()
        record["sample_below"] = 0
        libbpf.map_update(obj.map_fd("control"), 0, record.tobytes())
        every = np.zeros((), dtype=abi.SLICE)
        every["class_id"], every["leaves"] = CLASS, LEAVES
        libbpf.map_update(obj.map_fd("slices"), 0, every.tobytes())
        yield Host(obj, request.param)


def settle(host: Host, flow: Flow, packets: int) -> None:
    """Have queue pairs send for a while."""
    for _ in range(2):
        host.run(flow, packets)
        time.sleep(TICK_S)
    host.run(flow, packets)


def test_who_is_there_loses_nothing(host: Host) -> None:
    """Record, counters and class, though strangers come a hundred times as often."""
    settle(host, ACTIVE, EACH_ONCE)
    before = host.of(ACTIVE)
    assert len(before) == EACH_ONCE
    turns = 20
    for _ in range(turns):
        host.run(STRANGERS, FLOOD)
        host.run(ACTIVE, EACH_ONCE)
        time.sleep(TICK_S / 4)
    after = host.of(ACTIVE)
    assert (after["key"] == before["key"]).all()
    assert (after["packets"] >= before["packets"] + turns).all()
    assert (after["priority"] == before["priority"]).all()
    assert host.counted(Reason.QP_UNTRACKED) > 0


def test_few_strangers_are_given_a_place(host: Host) -> None:
    """However many come: so it is the same work for whoever reads the tables."""
    began = time.monotonic()
    for _ in range(5):
        host.run(STRANGERS, 10 * FLOOD)
    ticks = (time.monotonic() - began) / 0.032 + 2
    given = host.counted(Reason.QP_ADDED) + host.counted(Reason.QP_EVICTED)
    assert 0 < given < abi.QP_NEWCOMERS * ticks
    assert given + host.counted(Reason.QP_UNTRACKED) >= 49 * FLOOD


def test_a_queue_pair_that_is_new_finds_a_place_in_a_flood(host: Host) -> None:
    """Soon, and keeps it."""
    for _ in range(5):
        host.run(STRANGERS, FLOOD)
        time.sleep(TICK_S / 4)
    for _ in range(20):
        for _ in range(20):
            host.run(STRANGERS, FLOOD // 20)
            host.run(NEWCOMER, 50)
        time.sleep(TICK_S / 4)
    (record,) = host.of(NEWCOMER)
    assert record["packets"] > 20 * 20 * 50 // 2


def test_a_steered_queue_pair_finds_a_place_at_once(host: Host) -> None:
    if host.direction == Direction.INGRESS:
        pytest.skip("only what leaves is steered")
    host.run(STRANGERS, 5 * FLOOD)
    host.steer(NEWCOMER)
    host.run(NEWCOMER, 1)
    (record,) = host.of(NEWCOMER)
    assert record["packets"] == 1
    assert record["flags"] & SteerFlag.ON
