"""Whose steering is whose after a takeover: the planner goes on with its own, operators' overrides are theirs."""

from itertools import permutations

import pytest
from fakes import hello

from cwdp.shared.bus.messages import Desired, Leader, SteerQp, SteerReport
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.overrides.steering import SteerOverride
from manager.state import FleetState

PLANNED = SteerQp(nic="eth0", dst_addr="10.0.0.9", qpn=7, sport=50_007, backup_sport=60_000)
OVERRIDE = SteerOverride(host="a", nic="eth0", dst="10.0.0.8", qpn=8, sport=50_008, backup_sport=60_000)


def _state(document: Desired | None = None) -> FleetState:
    """A manager that waits, with the override that is on the bus."""
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    state.stand_by()
    state.hear_hello(hello("a", desired_version=0 if document is None else document.version), 0.0)
    state.steering.set(OVERRIDE)
    return state


def _document(state: FleetState) -> Desired:
    members = state.probeable(0.0)
    (document,) = state.schedule(members, state.build_graph(members))
    return document


def _before() -> Desired:
    """What an earlier manager told the host: what its planner wants, and the override."""
    state = _state()
    state.lead(0.0, Leader(1), timeline="t", others_led=False)
    state.hear_steering(SteerReport(host="a", managed=[PLANNED], by_hand=[]), 0.0)
    state.take_up("a", None, 0.0)
    document = _document(state)
    assert [steer.qpn for steer in document.steer] == [OVERRIDE.qpn, PLANNED.qpn]
    return document


@pytest.mark.parametrize("order", list(permutations(("lead", "report", "document", "withdraw"))))
def test_an_override_that_is_withdrawn_at_a_takeover_is_not_the_planners(order: tuple[str, ...]) -> None:
    before = _before()
    state = _state(before)
    steps = {
        "lead": lambda: state.lead(0.0, Leader(2), timeline="t", others_led=True),
        "report": lambda: state.hear_steering(SteerReport(host="a", managed=before.steer, by_hand=[]), 0.0),
        "document": lambda: state.take_up("a", before, 0.0),
        "withdraw": lambda: state.steering.unset(OVERRIDE.key),
    }
    for step in order:
        steps[step]()
    state.take_up("a", before, 0.0)
    assert _document(state).steer == [PLANNED]
    assert state.planner.counters["adopted"] == 1
