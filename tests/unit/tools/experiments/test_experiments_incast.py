"""The incast experiment without a lab: who is drawn, how often pulses fly, what is made of a run."""

import random
from typing import Any

import numpy as np
import pytest

from cwdp.errors import ConfigError
from tools.experiments.incast.model import (
    BEGINNING_S,
    FRAME_BYTES,
    PULSE_BYTES,
    PULSE_SHARE,
    compare,
    congestion,
    draw_incast,
    jain,
    lab_spec,
    pulse_interval_ms,
    summarise,
)
from tools.experiments.measure import NS_PER_S
from tools.lab.topology import Topology
from tools.roce.patterns import NIC_WINDOW

RATE = 100_000_000
START_NS = 10**12


@pytest.mark.parametrize("senders", [2, 7, 8, 15, 31])
def test_everybody_that_is_drawn_sends_to_one(senders: int) -> None:
    seed = random.randrange(10**6)
    spec = lab_spec("x", senders, RATE, seed, "steady")
    drawn = draw_incast(Topology(spec), senders, 4096, seed)
    assert len(set(drawn.sources) | {drawn.target}) == senders + 1
    assert [flow.source.host for flow in drawn.flows] == list(drawn.sources)
    assert {flow.target.host for flow in drawn.flows} == {drawn.target}
    assert sum(flow.window for flow in drawn.flows) <= max(NIC_WINDOW, 4 * senders)
    assert drawn == draw_incast(Topology(spec), senders, 4096, seed)


def test_more_senders_than_hosts() -> None:
    with pytest.raises(ConfigError):
        draw_incast(Topology(lab_spec("x", 3, RATE, 1, "steady")), 30, 4096, 1)


@pytest.mark.parametrize("senders", [2, 7, 40])
def test_pulses_leave_the_link_to_the_incast(senders: int) -> None:
    per_s = senders * 1e3 / pulse_interval_ms(senders, RATE)
    assert per_s * PULSE_BYTES * 8 <= PULSE_SHARE * RATE * 1.001


def test_the_threshold_is_some_frames_of_the_link() -> None:
    assert congestion(RATE).threshold_us == pytest.approx(6 * FRAME_BYTES * 8 / 100)


def test_fairness() -> None:
    assert jain(np.ones(7)) == pytest.approx(1)
    assert jain(np.array([1.0, 0, 0, 0])) == pytest.approx(0.25)
    assert jain(np.zeros(3)) == 0


def _result() -> dict[str, Any]:
    """Two queue pairs, one twice as fast, for three seconds."""
    snapshots = [
        {
            "at_ns": START_NS + tenth * NS_PER_S // 10,
            "delivered_bytes": {0: tenth * 100_000, 1: tenth * 200_000},
        }
        for tenth in range(1, 31)
    ]
    summary = {"p50_ns": 1, "p99_ns": 2}
    total = {"owd": summary, "completion": summary, "retransmitted_packets": 3, "failed": 0}
    return {
        "start_ns": START_NS,
        "flows": [{"id": 0}, {"id": 1}],
        "timeline": snapshots,
        "total": total,
        "idle_share": 0.5,
    }


def test_a_run_in_numbers() -> None:
    left_ns = np.array([0.5, 1.5, 2.5]) * NS_PER_S
    found = summarise(_result(), left_ns, np.array([9, 1, 3]), RATE)
    assert found["owd_beginning_p99_ns"] == 9
    assert found["owd_p50_ns"] == 2
    assert found["owd_packets"] == 2
    assert found["goodput_share"] == pytest.approx(0.24)
    assert (found["least_bps"], found["most_bps"]) == (pytest.approx(8e6), pytest.approx(16e6))
    assert found["jain"] == pytest.approx(0.9)
    assert BEGINNING_S == 1.0


def test_a_run_in_which_nothing_was_seen() -> None:
    nothing = np.zeros(0)
    found = summarise(_result(), nothing, nothing.astype(np.int64), RATE)
    assert found["owd_p99_ns"] is None
    assert compare(found, found)["met"]["owd"] is False


@pytest.mark.parametrize(
    ("owd", "share", "fairness", "met"),
    [(5.0, 0.97, 0.95, True), (5.1, 0.98, 1.0, False), (1.0, 0.96, 1.0, False), (1.0, 1.0, 0.94, False)],
)
def test_what_is_to_be_reached(owd: float, share: float, fairness: float, met: bool) -> None:
    held = {"owd_p99_ns": owd, "goodput_share": share, "jain": fairness}
    assert all(compare({"owd_p99_ns": 20.0}, held)["met"].values()) is met
