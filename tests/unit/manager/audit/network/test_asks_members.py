"""Who is asked about in an audit, from the manager's state."""

import time
from collections.abc import Sequence

import pytest
from fakes import hello

from manager.audit.service import network
from manager.audit.service.network import Network
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.hosts.members import MISSED_HELLOS
from manager.probing.schedule import Member
from manager.state import FleetState


def test_a_host_that_is_lost_is_asked_about_no_more_though_it_keeps_its_place_in_the_probe_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def plan(members: Sequence[Member], _hosts: object, **_settings: object) -> network.asks.Plan:
        asked.extend(host for host, _ in members)
        return network.asks.Plan()

    monkeypatch.setattr(network.asks, "plan", plan)
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    now_s = time.monotonic()
    state.members.hear(hello("lost"), now_s - MISSED_HELLOS - 1.0)
    state.members.hear(hello("up"), now_s)
    state.members.expire(now_s)
    Network(state, "ipv4").plan_asks(["lost", "up"], 1)()
    assert asked == ["up"]
    assert [host for host, _ in state.probeable(now_s)] == ["lost", "up"]
