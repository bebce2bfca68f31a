"""What is steered on a host, told in as many messages as that takes, and put together again."""

import random
from ipaddress import ip_address
from typing import Any

import msgspec
import numpy as np
import pytest
from fakes import hello

from cwdp.agent.steering import steered
from cwdp.agent.steering.steered import steer_reports
from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState, SlotState
from cwdp.dataplane.steering.steering import QpKey, Steer
from cwdp.dataplane.steering.tcp import SteeredConnection, TcpConnection, TcpSteer
from cwdp.shared.bus.messages import Leader, SteerReport, decode, encode
from cwdp.shared.tcp import PulseDelay, SteeredTcp, SteerTcp
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.planner.steering_state import SteerParts
from manager.state import FleetState

LARGEST_MESSAGE = 1 << 20
NOW_NS = 10**12


class _Maps:
    """Stands in for a NIC's maps and for what reads them."""

    def __init__(self, managed: int, by_hand: int, network: str, connections: int) -> None:
        self._connections = [_connection(network, port) for port in range(1, connections + 1)]
        self.slots = np.zeros(abi.SLOTS + abi.PULSE_SLOTS, abi.SLOT)
        self.paths = np.zeros(abi.PATHS, abi.PATH)
        if connections:
            self._answer_pulses()
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

    def _answer_pulses(self) -> None:
        """Pulses over all paths of the connections, with delays as large as can be."""
        keys = sorted({key for one in self._connections for key in one.steer.path_keys(one.connection)})
        for number, key in enumerate(keys, 1):
            path, slot = self.paths[number], self.slots[abi.SLOTS + number]
            path["dst"] = np.frombuffer(key.dst, path["dst"].dtype)
            path["sport"], path["protocol"], path["users"] = key.sport, key.protocol, 1
            slot["tag"], slot["path"], slot["t4"] = SlotState.DONE, number, NOW_NS
            slot["fwd_owd_ns"], slot["bound_ns"] = 2**61, 2**31

    def all(self) -> dict[QpKey, Steer]:
        return self._steers

    def listed(self, _now_ns: int) -> list[SteeredConnection]:
        return self._connections


def _connection(network: str, port: int) -> SteeredConnection:
    """One that has failed over if its port is even, and is set by hand if it is divisible by 3."""
    ends = ip_address(f"{network}::1"), ip_address(f"{network}::2")
    return SteeredConnection(
        TcpConnection(*ends, port, 5_201),
        TcpSteer(50_000, 60_000, flow_label=True, managed=port % 3 != 0),
        confirmed=True,
        used_sport=50_000 if port % 2 else 60_000,
        buffers=2**40,
        nbytes=2**50,
        primary_state=PathState.UP,
        backup_state=PathState.UP,
    )


def _reports(
    monkeypatch: pytest.MonkeyPatch, managed: int, by_hand: int, number: int = 1, connections: int = 0
) -> list[SteerReport]:
    for reads in ("Steering", "TcpSteering"):
        monkeypatch.setattr(steered, reads, lambda maps: maps)
    networks = [f"fd00:1111:2222:3333:4444:{nic}" for nic in range(2)]
    nics: Any = {
        f"eth{nic}": _Maps(managed, by_hand, network, connections) for nic, network in enumerate(networks)
    }
    return list(steer_reports("a", number, nics, NOW_NS))


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


def test_connections_arrive_with_how_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = _reports(monkeypatch, 3000, 0, connections=4095)
    assert all(len(encode(report)) < LARGEST_MESSAGE for report in reports)
    parts = SteerParts()
    (whole,) = (one for each in reports if (one := parts.hear(decode(SteerReport, encode(each)))) is not None)
    assert whole.tcp is not None
    assert (len(whole.managed), len(whole.tcp)) == (6000, 8190)
    delay = PulseDelay(pulses=1, min_ns=2**61, p50_ns=2**61, bound_ns=2**31)
    assert whole.tcp[1] == SteeredTcp(
        steer=SteerTcp(
            nic="eth0",
            local_addr="fd00:1111:2222:3333:4444::1",
            remote_addr="fd00:1111:2222:3333:4444::2",
            local_port=2,
            remote_port=5_201,
            sport=50_000,
            backup_sport=60_000,
            flow_label=True,
        ),
        managed=True,
        confirmed=True,
        used_sport=60_000,
        failed_over=True,
        buffers=2**40,
        bytes=2**50,
        delay=delay,
        backup_delay=delay,
    )
    assert [one.managed for one in whole.tcp[:3]] == [True, True, False]


def test_an_agent_of_before_tells_of_no_connections() -> None:
    report = decode(SteerReport, msgspec.msgpack.encode({"host": "a", "managed": [], "by_hand": []}))
    whole = SteerParts().hear(report)
    assert whole is not None
    assert whole.tcp is None
