"""What the probe programs cost a packet, and how long the dataplane takes to load and to have its detours.

Needs root and `build/bpf/bench.bpf.o`.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import numpy as np
from pyroute2 import IPRoute

from cwdp.agent.probing import packets
from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.detours import Detour, Detours
from tools.bench.figures import Figure, figure
from tools.bench.packet_costs.measure import BENCH_OBJECT, Case, cost_figure, costs, skb_context
from tools.lab.network import netns

PROBE_TARGET_NS = 150
LOADS = 15
LOAD_TARGET_MS = 100
DETOURS, RECONCILES = 1_000, 5
FIRST_DST, FIRST_OTHER = ip_address("10.0.0.1"), ip_address("10.1.0.1")
RECONCILE_TARGET_MS = 100
SETTLE_S = 0.1
"""The kernel frees a detached program after a grace period, under a lock that the next load would wait for."""

FRAME_BYTES = 144
"""`struct bench_frame`: probes are padded to this."""

KEY_ID = 1
PATHS = {
    "ipv4": packets.Path(0, "10.0.0.1", "10.0.0.2", 50_001, 50_002),
    "ipv6": packets.Path(0, "fd00::1", "fd00::2", 50_001, 50_002),
}
ETHER_TYPES = {"ipv4": 0x0800, "ipv6": 0x86DD}


def figures() -> Iterator[Figure]:
    """Every figure of this part."""
    yield from cost_figures()
    yield load_figure()
    yield detours_figure()


def cost_figures() -> Iterator[Figure]:
    """What each thing that can happen to a probe costs over an empty program."""
    with BpfObject(BENCH_OBJECT) as obj:
        obj.load()
        _set_key(obj)
        for family in PATHS:
            yield from _family_figures(obj, family)


def _family_figures(obj: BpfObject, family: str) -> Iterator[Figure]:
    template = _template(family)
    request = _run(obj, "tc_send", template, abi.MARK)
    reply = _run(obj, "xdp_ingress", request)
    libbpf.map_update(obj.map_fd("bench_frame"), 0, request)
    cases = [
        Case("send", "tc_send", "tc_own_socket", template, PROBE_TARGET_NS, abi.MARK),
        Case("reflect", "xdp_reflect", "xdp_put_frame_back", request, PROBE_TARGET_NS),
        Case("accept", "xdp_accept", "xdp_put_slot_back", reply, PROBE_TARGET_NS),
    ]
    for case, cost in zip(cases, costs(obj, cases), strict=True):
        yield cost_figure(f"program_{case.name}_{family}", cost.ns, "ns", cost.reference_ns, case.target_ns)


def _run(obj: BpfObject, program: str, packet: bytes, mark: int | None = None) -> bytes:
    """The packet as the program leaves it."""
    context = skb_context(mark) if mark is not None else b""
    return libbpf.prog_test_run(obj.program_fd(program), packet, ctx=context)[1]


def _template(family: str) -> bytes:
    """A probe as the agent hands it to the kernel, in an Ethernet frame, its sequence number 0."""
    datagram = packets.build([PATHS[family]], KEY_ID, abi.ROCE_PORT)[:1].tobytes()
    frame = bytes(12) + ETHER_TYPES[family].to_bytes(2, "big") + datagram
    return frame.ljust(FRAME_BYTES, b"\0")


def _set_key(obj: BpfObject) -> None:
    record = np.zeros((), dtype=abi.KEY)
    record["k0"], record["k1"], record["key_id"], record["valid"] = 1, 2, KEY_ID, 1
    libbpf.map_update(obj.map_fd("keys"), KEY_ID % abi.KEYS, record.tobytes())


def load_figure() -> Figure:
    """The whole call of `loader.load` on a veth with native XDP, against that of loading empty programs."""
    with _veth() as ifname:
        loads, empties = [], []
        for _ in range(LOADS):
            empties.append(_timed_empty_attach(ifname))
            start = time.perf_counter()
            loader.load(ifname)
            loads.append(time.perf_counter() - start)
            loader.unload(ifname)
            time.sleep(SETTLE_S)
    value, reference = (1e3 * float(np.median(times)) for times in (loads, empties))
    return cost_figure("dataplane_load", value, "ms", reference, LOAD_TARGET_MS)


def _timed_empty_attach(ifname: str) -> float:
    """How long the kernel takes to attach empty programs to the same hooks, in seconds."""
    ifindex = ifindex_of(ifname)
    with BpfObject(BENCH_OBJECT) as obj:
        obj.load()
        start = time.perf_counter()
        links = [
            libbpf.link_create(
                obj.program_fd("xdp_empty"), ifindex, libbpf.BPF_XDP, libbpf.XDP_FLAGS_DRV_MODE
            ),
            libbpf.link_create(obj.program_fd("tc_empty"), ifindex, libbpf.BPF_TCX_EGRESS),
        ]
        took = time.perf_counter() - start
        for link in links:
            os.close(link)
    time.sleep(SETTLE_S)
    return took


def detours_figure() -> Figure:
    """How long the lock of all dataplanes is held for new detours to many destinations; that of the same again beside it."""
    wanted = {FIRST_DST + n: Detour(FIRST_OTHER + n, 50_000) for n in range(DETOURS)}
    with _veth() as ifname:
        wheres = [loader.load(name).where for name in (ifname, "far0")]
        with Maps(wheres[0]) as maps, Maps(wheres[1]) as partner:
            table, times = Detours(maps, partner), []
            for _ in range(RECONCILES):
                table.reconcile({})
                for _ in ("new", "again"):
                    start = time.perf_counter()
                    table.reconcile(wanted)
                    times.append(time.perf_counter() - start)
        for name in (ifname, "far0"):
            loader.unload(name)
    new, again = (1e3 * float(np.median(times[which::2])) for which in (0, 1))
    return figure("detours_reconcile", new, "ms", f"again {again:.1f} ms", RECONCILE_TARGET_MS)


@contextmanager
def _veth() -> Iterator[str]:
    """A veth, `roce0` and `far0`, in a namespace of its own, which this thread is in."""
    name = f"cwdp-bench-{os.getpid()}"
    netns.create(name, "cwdp bench")
    try:
        with netns.netns_enter(name), IPRoute() as ip:
            ip.link("add", ifname="roce0", kind="veth", peer={"ifname": "far0"})
            for ifname in ("roce0", "far0"):
                ip.link("set", index=ip.link_lookup(ifname=ifname)[0], state="up")
            yield "roce0"
    finally:
        netns.remove(name)
