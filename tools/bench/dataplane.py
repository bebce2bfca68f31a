"""What the dataplane costs a RoCEv2 packet, and how that goes with the number of queue pairs.

Needs root and `build/bpf/bench.bpf.o`, whose programs make the next packet of a flow before each run: its PSN
advances, and its source port is the sender's again. BPF_PROG_TEST_RUN makes no buffer for tc that is longer than a
page, so a full packet has 3,328 bytes of payload here instead of 4,096; nothing that is measured reads it. Cycles
and instructions are not reported: virtual machines of this kind have no performance counters.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address

import numpy as np

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, SteerFlag
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned import control, tree
from cwdp.dataplane.steering.steering import QpKey
from tools.bench.figures import Figure
from tools.bench.packet_costs.flows import ADDRESSES, OPCODES, QPN_FIRST, Flow
from tools.bench.packet_costs.measure import BENCH_OBJECT, Case, cost_figure, costs

UNSTEERED_TARGET_NS = 40
STEERED_TARGET_NS = 80
FOREIGN_TARGET_NS = 10
STRANGER_TARGET_NS = 60
SAMPLING_TARGET_NS = BURSTS_TARGET_NS = 5

QP_BUCKETS = 16_384
STRANGER_BITS = 23
QPS_BITS = (0, 4, 8, 12, 16)
WARM_ROUNDS = 8
ADDED_ROUNDS = 5
BURST_GAP_JIFFIES = 3
STEERED_SPORT, BACKUP_SPORT = 60_002, 60_003
ALTERNATING_BIT = 0x0100
HTB_CLASS = 0x10001


@dataclass(frozen=True)
class Wanted:
    """What is wanted of all queue pairs: a path, departure times, a class, a share of samples."""

    steered: bool = False
    paced: bool = False
    in_class: bool = False
    sample_every: int = control.SAMPLE_EVERY
    burst_gap_jiffies: int = BURST_GAP_JIFFIES


class Bench:
    """The loaded benchmark programs."""

    def __init__(self, obj: BpfObject) -> None:
        self._obj = obj
        self._generation = 0

    def want(self, wanted: Wanted, flow: Flow) -> None:
        """Have the queue pairs of a flow treated so, and each be known."""
        self._generation += 1
        record = control.initial()
        record["generation"], record["hash_seed"] = self._generation, 1
        record["sample_below"] = control.sample_below(wanted.sample_every)
        record["burst_gap_jiffies"] = wanted.burst_gap_jiffies
        libbpf.map_update(self._obj.map_fd("control"), 0, record.tobytes())
        self._write_default_slice(wanted)
        everywhere = np.full(abi.STEERED_QPNS, wanted.steered, dtype=np.uint32)
        libbpf.map_update(self._obj.map_fd("steered"), 0, everywhere.tobytes())
        destination = ip_address(ADDRESSES[flow.family][1])
        for n in range(1 << flow.qps_bits):
            key = QpKey(destination, QPN_FIRST + n).pack()
            if wanted.steered:
                libbpf.hash_update(self._obj.map_fd("steer"), key, _steer_record())
            else:
                libbpf.hash_delete(self._obj.map_fd("steer"), key)
        self.follow(flow)
        for program in ("xdp_flows", "tc_flows"):
            fd = self._obj.program_fd(program)
            _, packet, _ = libbpf.prog_test_run(fd, flow.frame(), repeat=WARM_ROUNDS << flow.qps_bits)
        left_from = int.from_bytes(packet[flow.udp_offset :][:2], "big")
        if wanted.steered != (left_from == STEERED_SPORT):
            raise RuntimeError(f"the packet left from port {left_from}: nothing worth measuring")

    def follow(self, flow: Flow) -> None:
        """Make the packets of a flow from now on."""
        libbpf.map_update(self._obj.map_fd("bench_flows"), 0, flow.record())

    def _write_default_slice(self, wanted: Wanted) -> None:
        record = np.zeros((), dtype=abi.SLICE)
        record["fair_q18"] = wanted.paced
        record["class_id"] = HTB_CLASS if wanted.in_class else 0
        libbpf.map_update(self._obj.map_fd("slices"), 0, record.tobytes())

    def cost_ns(self, flow: Flow, hook: str = "tc", *, of: str = "flows") -> tuple[float, float]:
        """What a program costs the flow's packets beyond making them, and what making them takes."""
        case = Case("", f"{hook}_{of}", f"{hook}_next_packet", flow.frame(), None)
        (cost,) = costs(self._obj, [case])
        return cost.ns, cost.reference_ns


def _steer_record() -> bytes:
    record = np.zeros((), dtype=abi.STEER)
    record["sport"], record["backup_sport"] = STEERED_SPORT, BACKUP_SPORT
    record["path"], record["backup_path"] = 1, 2
    record["flags"] = int(SteerFlag.ON | SteerFlag.BACKUP)
    return record.tobytes()


def figures() -> Iterator[Figure]:
    """Every figure of this part."""
    with _loaded(Settings(qp_buckets=QP_BUCKETS)) as bench:
        for family in ADDRESSES:
            for size in OPCODES:
                yield from packet_figures(bench, Flow(family, size), f"{size}_{family}")
            yield from foreign_figures(bench, family)
        yield sampling_figure(bench, Flow("ipv4", "full"))
        yield bursts_figure(bench, Flow("ipv4", "full"))
        yield from curve_figures(bench)
    with _loaded(Settings()) as bench:
        yield from stranger_figures(bench)


@contextmanager
def _loaded(settings: Settings) -> Iterator[Bench]:
    with BpfObject(BENCH_OBJECT) as obj:
        obj.set_initial_value(".rodata", settings.to_bytes())
        for name in tree.QP_MAPS:
            obj.set_max_entries(name, settings.qp_buckets)
        obj.set_max_entries(tree.BURST_STARTS, len(Direction) * abi.QP_WAYS * settings.qp_buckets)
        obj.load()
        yield Bench(obj)


def packet_figures(bench: Bench, flow: Flow, name: str) -> Iterator[Figure]:
    """A packet of one steady queue pair, in each way that it can be treated."""
    wanted = {
        "steered": (Wanted(steered=True), flow, STEERED_TARGET_NS),
        "steered_class": (Wanted(steered=True, in_class=True), flow, STEERED_TARGET_NS),
        "steered_paced": (Wanted(steered=True, paced=True), flow, STEERED_TARGET_NS),
        "steered_icrc_miss": (Wanted(steered=True), replace(flow, sport_flips=ALTERNATING_BIT), None),
    }
    bench.want(Wanted(), flow)
    for hook, side in (("tc", "egress"), ("xdp", "ingress")):
        yield cost_figure(
            f"roce_unsteered_{side}_{name}", *_ns(bench.cost_ns(flow, hook)), UNSTEERED_TARGET_NS
        )
    for what, (how, treated, target_ns) in wanted.items():
        bench.want(how, treated)
        yield cost_figure(f"roce_{what}_egress_{name}", *_ns(bench.cost_ns(treated)), target_ns)


def foreign_figures(bench: Bench, family: str) -> Iterator[Figure]:
    """A packet that is not RoCEv2: UDP to the port beside."""
    flow = Flow(family, "ack", dport=abi.ROCE_PORT + 1)
    bench.want(Wanted(), flow)
    for hook, side in (("tc", "egress"), ("xdp", "ingress")):
        yield cost_figure(f"roce_foreign_{side}_{family}", *_ns(bench.cost_ns(flow, hook)), FOREIGN_TARGET_NS)


def stranger_figures(bench: Bench) -> Iterator[Figure]:
    """A packet of a flood: each is of another queue pair, which nobody steers; in a table of the usual size."""
    for family in ADDRESSES:
        flow = Flow(family, "ack", qps_bits=STRANGER_BITS, is_random=True)
        bench.want(Wanted(), replace(flow, qps_bits=0))
        bench.follow(flow)
        for hook, side in (("tc", "egress"), ("xdp", "ingress")):
            yield cost_figure(
                f"roce_stranger_{side}_{family}", *_ns(bench.cost_ns(flow, hook)), STRANGER_TARGET_NS
            )


def sampling_figure(bench: Bench, flow: Flow) -> Figure:
    """What sampling at the usual rate adds to a packet, against none."""
    return _added(bench, flow, "roce_sampling", Wanted(sample_every=0), SAMPLING_TARGET_NS)


def bursts_figure(bench: Bench, flow: Flow) -> Figure:
    """What following bursts with the usual gap adds to a packet within one, against none."""
    return _added(bench, flow, "roce_bursts", Wanted(burst_gap_jiffies=0), BURSTS_TARGET_NS)


def _added(bench: Bench, flow: Flow, name: str, without: Wanted, target_ns: float) -> Figure:
    """What the usual adds to a packet, against what is without it: by turns, the medians."""
    rounds = []
    for _ in range(ADDED_ROUNDS):
        bench.want(Wanted(), flow)
        usual_ns, _ = bench.cost_ns(flow)
        bench.want(without, flow)
        rounds.append((usual_ns, bench.cost_ns(flow)[0]))
    usual, bare = np.median(rounds, axis=0)
    return cost_figure(name, usual - bare, "ns", bare, target_ns)


def curve_figures(bench: Bench) -> Iterator[Figure]:
    """Steered packets of more and more queue pairs; the reference touches an array as large as the table."""
    for is_random in (False, True):
        for bits in QPS_BITS:
            flow = Flow("ipv4", "ack", qps_bits=bits, is_random=is_random)
            bench.want(Wanted(steered=True), flow)
            order = "random" if is_random else "turns"
            for hook, side in (("tc", "egress"), ("xdp", "ingress")):
                memory_ns, _ = bench.cost_ns(flow, hook, of="touch_places")
                cost_ns, _ = bench.cost_ns(flow, hook)
                yield cost_figure(f"roce_qps_{1 << bits}_{order}_{side}", cost_ns, "ns", memory_ns, None)


def _ns(cost: tuple[float, float]) -> tuple[float, str, float]:
    value_ns, reference_ns = cost
    return value_ns, "ns", reference_ns
