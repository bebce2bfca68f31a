"""Two agents with one name: one of them is heard, both are named, and nothing is rebuilt at every hello."""

import numpy as np
import pytest
from fakes import hello, nic
from msgspec.structs import replace

from cwdp.shared.messages import Hello, Report
from manager.config import ProbeSettings
from manager.graph_timer import GraphTimer
from manager.state import FleetState
from manager.timeline import Identity


def _state() -> FleetState:
    return FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)


def _agent(number: int, boot_id: str = "") -> Hello:
    mine = replace(nic(ipv4=f"10.0.0.{number}", ipv6=None), mac=f"02:00:00:00:00:{number:02x}")
    return replace(hello("twin", boot_id=boot_id or f"boot{number}"), nics=[mine])


def _told(state: FleetState) -> list[str]:
    return [event.detail for event in state.events if event.kind == "name_taken"]


@pytest.mark.parametrize("seed", range(5))
def test_the_second_of_two_agents_with_one_name_is_refused(seed: int) -> None:
    rng, state, timer = np.random.default_rng(seed), _state(), GraphTimer()
    state.hear_hello(hello("other"), 0.0)
    versions, built = [], 0
    for tick in range(400):
        now_s = tick / 10
        if tick % 10 == 0:
            state.hear_hello(hello("other"), now_s)
            state.hear_hello(_agent(1), now_s)
        if tick >= 50 and tick % 10 == int(rng.integers(10)):
            state.hear_hello(_agent(2), now_s)
        built += timer.due(state.probeable(now_s), now_s, taken_up=False)
        versions.append(state.members.version)
    assert state.members.hosts["twin"].hello == _agent(1)
    assert len(set(versions[100:])) == 1
    assert built <= 3
    (told,) = _told(state)
    for number in (1, 2):
        assert f"10.0.0.{number}" in told
        assert f"02:00:00:00:00:0{number}" in told
    assert state.hellos["name_taken"] > 10


def test_a_second_agent_that_begins_anew_again_and_again_is_refused_all_the_same() -> None:
    state = _state()
    for second in range(40):
        state.hear_hello(_agent(1), float(second))
        if second > 5:
            state.hear_hello(_agent(2, f"boot2-{second // 3}"), second + 0.5)
    assert state.members.hosts["twin"].hello == _agent(1)
    assert state.members.hosts["twin"].restarts <= 4
    assert len(_told(state)) == 1


@pytest.mark.parametrize("down_s", [0.2, 2.0, 30.0])
def test_an_agent_that_begins_anew_is_heard_at_once(down_s: float) -> None:
    state, now_s = _state(), 0.0
    for start in range(5):
        for _ in range(10):
            now_s += 1.0
            state.hear_hello(_agent(1, f"start{start}"), now_s)
            assert state.members.hosts["twin"].hello.boot_id == f"start{start}"
        now_s += down_s - 1.0
    assert _told(state) == []
    assert state.members.hosts["twin"].restarts == 4


def test_the_second_is_heard_once_the_first_is_gone() -> None:
    state = _state()
    for second in range(20):
        if second < 10:
            state.hear_hello(_agent(1), float(second))
        state.hear_hello(_agent(2), second + 0.5)
    assert state.members.hosts["twin"].hello == _agent(2)


def test_what_the_second_measured_is_not_taken_for_the_firsts() -> None:
    state = _state()
    for second in range(5):
        state.hear_hello(_agent(1), float(second))
        state.hear_hello(_agent(2), second + 0.5)
    for number in (1, 2):
        report = Report(
            host="twin",
            boot_id=f"boot{number}",
            seq=1,
            local_ns=1,
            fits=[],
            paths=[],
            counters={"agent.probes_sent": number},
            clock=None,
        )
        state.hear_report(report, 5.0)
    assert state.counters.of("twin") == {"agent.probes_sent": 1}
    assert state.reports["name_taken"] == 1
