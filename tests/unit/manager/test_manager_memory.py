"""What the manager remembers of hosts goes when they go: memory follows the fleet that there is."""

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from fakes import hello, nic
from msgspec.structs import replace

from cwdp.shared.bus.messages import SteerQp, SteerReport
from cwdp.shared.bus.records import EGRESS, SAMPLE_ROW, packed_address
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.hosts.members import FORGET_AFTER_S
from manager.queue_pairs.delays import WINDOW_NS
from manager.state import FleetState

HOSTS = 10
BY_HAND = [SteerQp(nic="eth0", dst_addr="10.0.0.9", qpn=qpn, sport=50_000) for qpn in range(20)]
MOST_BYTES_A_HOST = 500
"""Kept of a host that is gone: nothing but the room that allocators keep. Of one that is there it is thousands."""


def _state(*, leads: bool) -> FleetState:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    if not leads:
        state.stand_by()
    return state


def _live(state: FleetState, generation: int, now_s: float) -> None:
    """Hosts that were never there come, speak, and are forgotten."""
    names = [f"host{generation}-{i}" for i in range(HOSTS)]
    for i, name in enumerate(names):
        nics = [nic(f"nic{k}", ipv4=f"10.{k}.0.{i}", ipv6=None) for k in range(8)]
        state.hear_hello(replace(hello(name), nics=nics), now_s)
    state.traffic.delays.know(state.members.hosts.values())
    for name in names:
        state.planner.hear_steering(SteerReport(host=name, managed=[], by_hand=BY_HAND), now_s)
        rows = np.zeros(1, SAMPLE_ROW)
        rows["direction"], rows["addr"] = EGRESS, np.frombuffer(packed_address("10.0.0.1"), np.uint8)
        for k in range(8):
            state.traffic.delays.hear((name, f"nic{k}"), rows, round(now_s * 1e9))
    state.expire(now_s + FORGET_AFTER_S + 1.0)
    state.expire(now_s + FORGET_AFTER_S + 2.0)
    state.traffic.delays.expire(round(now_s * 1e9) + 2 * WINDOW_NS)
    state.traffic.delays.join(round(now_s * 1e9) + 4 * WINDOW_NS)
    state.events.clear()


def _grown(act: Callable[[int], None], rounds: int) -> int:
    """By how many bytes memory has grown in some rounds, once it has seen a few."""
    tracemalloc.start()
    try:
        for i in range(3):
            act(i)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for i in range(3, 3 + rounds):
            act(i)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("leads", [True, False])
def test_hosts_that_come_and_go_leave_nothing_behind(leads: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # pytest keeps what is logged
    state, rounds = _state(leads=leads), 12
    grown = _grown(lambda i: _live(state, i, 2 * FORGET_AFTER_S * i), rounds)
    assert state.members.hosts == {}
    assert grown < MOST_BYTES_A_HOST * HOSTS * rounds
