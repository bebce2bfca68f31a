"""What is steered on a host, told in as many messages as that takes, and put together again."""

import random
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest
from fakes import hello

from cwdp.agent.steering import steered
from cwdp.agent.steering.steered import steer_reports
from cwdp.dataplane.steering.steering import QpKey, Steer
from cwdp.shared.bus.messages import Leader, SteerReport
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.planner.steering_state import SteerParts
from manager.state import FleetState

LARGEST_MESSAGE = 1 << 20


class _Maps:
    """Stands in for a NIC's maps and for what reads them."""

    def __init__(self, managed: int, by_hand: int, network: str) -> None:
        self._steers = {
            QpKey(ip_address(f"{network}::{number & 0xFFFF:x}"), number): Steer(
                50_000 + number % 10_000,
                60_000,
                flow_label=True,
                managed=number < managed,
                override=number < managed and number % 3 == 0,
            )
            for number in range(managed + by_hand)
        }

    def all(self) -> dict[QpKey, Steer]:
        return self._steers


def _reports(
    monkeypatch: pytest.MonkeyPatch, managed: int, by_hand: int, number: int = 1
) -> list[SteerReport]:
    monkeypatch.setattr(steered, "Steering", lambda maps: maps)
    nics: Any = {f"eth{nic}": _Maps(managed, by_hand, f"fd00:1111:2222:3333:4444:{nic}") for nic in range(2)}
    return list(steer_reports("a", number, nics))


@pytest.mark.parametrize(
    ("managed", "by_hand"), [(0, 0), (3, 2), (2048, 0), (2049, 0), (1, 9000), (30_000, 11)]
)
def test_all_that_is_steered_arrives_in_messages_that_fit_the_bus(
    monkeypatch: pytest.MonkeyPatch, managed: int, by_hand: int
) -> None:
    reports = _reports(monkeypatch, managed, by_hand)
    assert all(len(msgspec.msgpack.encode(report)) < LARGEST_MESSAGE for report in reports)
    random.Random(managed).shuffle(reports)
    parts = SteerParts()
    wholes = [whole for report in reports if (whole := parts.hear(report)) is not None]
    assert len(wholes) == 1
    assert (len(wholes[0].managed), len(wholes[0].by_hand)) == (2 * managed, 2 * by_hand)
    assert all(steer.override == (steer.qpn % 3 == 0) for steer in wholes[0].managed)
    assert len({(steer.nic, steer.qpn) for steer in wholes[0].managed + wholes[0].by_hand}) == 2 * (
        managed + by_hand
    )


def test_parts_of_different_reports_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = SteerParts()
    first, second = (_reports(monkeypatch, 3000, 0, number) for number in (1, 2))
    for report in (first[0], second[1], first[1]):
        assert parts.hear(report) is None
    whole = parts.hear(first[0])
    assert whole is not None
    assert len(whole.managed) == 6000


def test_a_manager_adopts_more_than_one_message_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    state.stand_by()
    state.hear_hello(hello("a", nics=2, desired_version=7), 0.0)
    state.lead(0.0, Leader(3), timeline="t", others_led=True)
    for report in _reports(monkeypatch, 6000, 5000):
        assert not state.take_up("a", None, 1.0)
        state.hear_steering(report, 1.0)
    assert state.take_up("a", None, 1.0)
    assert state.planner.counters["adopted"] == 8000
    members = state.probeable(1.0)
    (document,) = state.schedule(members, state.build_graph(members))
    assert len(document.steer) == 8000
