"""Which queue pairs are kept: the fastest, and those that a finding touches; and the path of each."""

import json

import numpy as np
import pytest
from fakes import hello, nic
from msgspec.structs import replace

from cwdp.shared.bus.messages import Trace, TraceReport
from cwdp.shared.bus.records import EGRESS, INGRESS, QP_ROW, packed_address
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.faults.finding import Finding, Subject
from manager.history.queue_pairs import TOP, chosen
from manager.queue_pairs.counters import NicReport
from manager.state import FleetState

HOSTS = 8


def _state(queue_pairs: int) -> FleetState:
    """Host `i` sends `queue_pairs` of them to the next one, the faster the higher host and QPN."""
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    for i in range(HOSTS):
        one = nic("e", ipv4=f"10.0.0.{i + 1}", ipv6=None)
        state.hear_hello(replace(hello(f"h{i}"), nics=[one]), 0.0)
    for turn in (0, 1):
        for i in range(HOSTS):
            rows = np.zeros(2 * queue_pairs, QP_ROW)
            rows["qpn"] = np.tile(np.arange(queue_pairs), 2)
            rows["direction"] = np.repeat([EGRESS, INGRESS], queue_pairs)
            rows["addr"] = np.frombuffer(packed_address(f"10.0.0.{(i + 1) % HOSTS + 1}"), np.uint8)
            rows["bytes"] = turn * (rows["qpn"].astype(np.uint64) + np.uint64(1000 * i))
            report = NicReport((f"h{i}", "e"), rows)
            state.traffic.queue_pairs.hear([report], local_ns=turn * 10**9, now_s=float(turn))
    return state


def _names(state: FleetState, now_s: float) -> list[tuple[str, int, str]]:
    kept = ((host, json.loads(data)) for host, _, data in chosen(state, now_s))
    return [(host, row["qpn"], row["why"]) for host, row in kept]


@pytest.mark.parametrize("queue_pairs", [1, 3, 40])
def test_the_fastest_that_send(queue_pairs: int) -> None:
    state = _state(queue_pairs)
    every = sorted(
        ((1000 * i + q, f"h{i}", q) for i in range(HOSTS) for q in range(queue_pairs)), reverse=True
    )
    wanted = [(host, qpn, "rate") for bytes_per_s, host, qpn in every[:TOP] if bytes_per_s]
    assert _names(state, 1.2) == wanted
    assert _names(state, 60.0) == []


def test_those_that_a_finding_touches() -> None:
    state = _state(40)
    for subject in (Subject("nic", "h2/e"), Subject("host", "h2")):
        finding = Finding(number=0, kind="lossy", subject=subject, confidence=1.0, evidence=[], start_s=1.0)
        state.faults.open(finding)
        kept = _names(state, 1.2)
        touched = {host for host, _, why in kept if why == "finding"}
        assert touched == {"h1", "h2"}
        assert sum(why == "rate" for _, _, why in kept) == TOP
        state.faults.close(finding, 2.0)
    assert {why for _, _, why in _names(state, 1.2)} == {"rate"}


@pytest.mark.parametrize("way", [["10.254.1.1", "10.254.2.2", "10.254.1.2"], ["10.254.1.1"]])
def test_their_paths_are_kept(way: list[str]) -> None:
    state = _state(2)
    (sport,) = {json.loads(data)["sport"] for _, _, data in chosen(state, 1.2)}
    told: list[str | None] = list(way)
    trace = Trace(nic="e", dst_addr="10.0.0.4", sport=sport, hops=told, reached=True, local_ns=0)
    state.fabric.know(state.members.nics_by_address)
    state.fabric.hear(TraceReport(host="h2", traces=[trace]), ["e"], 1.0)
    state.fabric.step(1.0)
    kept = {host: json.loads(data)["path"] for host, _, data in chosen(state, 1.2)}
    assert kept == {f"h{i}": ["h2/e", *way, "h3/e"] if i == 2 else None for i in range(HOSTS)}


def test_a_fleet_without_traffic() -> None:
    assert _names(_state(0), 1.0) == []
