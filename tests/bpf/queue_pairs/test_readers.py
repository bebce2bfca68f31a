"""What is read of the maps while others write them, as fast as the kernel runs the programs."""

import itertools
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address

import need
import numpy as np
import pytest
from machine import Machine
from numpy.typing import NDArray
from probes import request

from cwdp.dataplane import abi
from cwdp.dataplane.abi import SteerFlag
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned import control
from cwdp.dataplane.pinned.maps import shared
from cwdp.dataplane.steering.steering import QpKey
from tools.bench.packet_costs.flows import ADDRESSES, QPN_FIRST, SPORT, Flow
from tools.bench.packet_costs.measure import BENCH_OBJECT

pytestmark = pytest.mark.kernel

STEERED = 60_000
PACKETS, READS = 3_000_000, 20_000


def read_meanwhile(busy: Callable[[], None], read: Callable[[], NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """All that was read while a thread was busy."""
    thread = threading.Thread(target=busy)
    thread.start()
    seen = [read()]
    while thread.is_alive():
        seen.append(np.unique(read()))
    thread.join()
    return np.unique(np.concatenate(seen[1:]))


@pytest.mark.parametrize("family", list(ADDRESSES))
def test_a_steered_queue_pair_is_seen_on_its_path_only(family: str) -> None:
    """Each packet comes from the application's port and leaves from another; that is no move."""
    need.installed(BENCH_OBJECT)
    flow = Flow(family, "ack")
    with BpfObject(BENCH_OBJECT) as obj:
        obj.set_initial_value(".rodata", Settings().to_bytes())
        obj.load()
        libbpf.map_update(obj.map_fd("control"), 0, control.initial().tobytes())
        wanted = np.zeros((), dtype=abi.STEER)
        wanted["sport"], wanted["flags"] = STEERED, SteerFlag.ON
        key = QpKey(ip_address(ADDRESSES[family][1]), QPN_FIRST)
        libbpf.hash_update(obj.map_fd("steer"), key.pack(), wanted.tobytes())
        libbpf.map_update(obj.map_fd("bench_flows"), 0, flow.record())
        program = obj.program_fd("tc_flows")

        def send(packets: int = PACKETS) -> None:
            libbpf.prog_test_run(program, flow.frame(), repeat=packets)

        send(1)
        places = shared(obj.map_fd("qps_out"), abi.QP, abi.QP_WAYS)
        place = np.flatnonzero(places["tag"])
        assert len(place) == 1
        again = np.repeat(place, READS)
        seen = read_meanwhile(send, lambda: places["used_sport"][again])
    assert STEERED != SPORT
    assert seen.tolist() == [STEERED]


def test_the_dataplane_reads_whole_lines(dataplane: Machine) -> None:
    """By each of these lines local time stands still, at the same moment; by no mixture of two of them."""
    moment_ns, step_ns = time.monotonic_ns() + 10**12, 10**9 + 7
    slot, number = dataplane.slot(0), itertools.count()
    again = np.zeros(READS, dtype=np.intp)

    def switch() -> None:
        ahead_ns = next(number) % 500 * step_ns
        dataplane.maps.write_base(ref_mono_ns=moment_ns - ahead_ns, ahead_ns=ahead_ns, rate=-1.0)

    def read() -> NDArray[np.uint64]:
        switch()
        stamps: NDArray[np.uint64] = slot["t1"].reshape(1)[again]
        return stamps

    switch()
    dataplane.egress(request())
    seen = read_meanwhile(lambda: dataplane.send(request(), PACKETS), read)
    assert seen.tolist() == [moment_ns]
