"""Announcements of steered TCP connections: how often, by which paths and ways back, and of which connections."""

from collections import Counter
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.agent.liveness import announcements
from cwdp.agent.liveness.announcements import EVERY_NS, UNCONFIRMED_EVERY_NS, Announcements
from cwdp.agent.liveness.pulses import PulseOrder
from cwdp.agent.liveness.replyports import PORTS
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Position, Sender, SteerFlag
from cwdp.dataplane.steering.tcp import TcpConnection

ORDER = PulseOrder(ifname="nic0", load=1, key_id=3, port=4791, ipv4="10.0.0.1", ipv6="fd00::1")
SECOND_NS = 1_000_000_000
START_NS = 100 * SECOND_NS
V4 = TcpConnection(ip_address("10.0.0.1"), ip_address("10.0.0.2"), 43_210, 5_201)
V6 = TcpConnection(ip_address("fd00::1"), ip_address("fd00::2"), 43_210, 5_201)


class _Sender:
    """Takes packets as the kernel does."""

    sent: list[NDArray[np.void]]
    cookie = 7

    def __init__(self, _ifname: str, _family: int, templates: NDArray[np.void]) -> None:
        self._templates = templates

    def send_rows(self, rows: NDArray[np.intp]) -> tuple[int, int]:
        _Sender.sent.append(self._templates[rows].copy())
        return len(rows), 0

    def close(self) -> None:
        pass


class _Pulses:
    """Gives numbers out."""

    def __init__(self) -> None:
        self.next = 0xFFFFFFFE

    def take_numbers(self, count: int) -> int:
        first = self.next
        self.next = (self.next + count) % (1 << 32)
        return first


class _World:
    """One NIC's connections, and what was sent of them."""

    def __init__(self) -> None:
        self.conns = np.zeros(abi.TCP_CONNS, dtype=abi.TCP_CONN)
        self.counters: Counter[str] = Counter()
        self.signed: dict[Sender, int] = {}
        tables: Any = SimpleNamespace(sign_for=self.signed.__setitem__)
        pulses: Any = _Pulses()
        self.made = Announcements(ORDER, tables, self.conns, pulses, self.counters)

    def steer(self, number: int, connection: TcpConnection, *, flags: int = 0) -> None:
        record = self.conns[number : number + 1]
        record["key"], record["sport"], record["backup_sport"] = connection.record(), 50_001, 50_002
        record["flags"] = flags or int(SteerFlag.ON | SteerFlag.PORTS | SteerFlag.BACKUP)

    def run(self, start_ns: int, span_ns: int, step_ns: int = 50_000_000) -> list[NDArray[np.void]]:
        """The packets of a while, one an entry."""
        _Sender.sent = []
        for now_ns in range(start_ns, start_ns + span_ns, step_ns):
            self.made.refresh(now_ns)
        return [packet for batch in _Sender.sent for packet in batch]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> _World:
    monkeypatch.setattr(announcements, "BatchSender", _Sender)
    return _World()


def test_often_until_confirmed_then_once_a_second(world: _World) -> None:
    world.steer(3, V4)
    sent = world.run(START_NS, SECOND_NS)
    assert len(sent) == SECOND_NS // UNCONFIRMED_EVERY_NS
    for second in range(1, 11):
        world.conns["confirmed_ns"][3] = START_NS + second * SECOND_NS
        sent = world.run(START_NS + second * SECOND_NS, SECOND_NS)
        assert len(sent) == SECOND_NS // EVERY_NS
    assert world.counters["announcements_sent"] == 20


def test_one_that_is_confirmed_no_more_is_announced_often_again(world: _World) -> None:
    world.steer(3, V4)
    world.conns["confirmed_ns"][3] = START_NS - 3 * SECOND_NS
    assert len(world.run(START_NS, SECOND_NS)) == 10


def test_over_both_paths_and_many_ways_back(world: _World) -> None:
    world.steer(3, V4)
    probes = [packet["packet"]["probe"] for packet in world.run(START_NS, PORTS * UNCONFIRMED_EVERY_NS)]
    assert [int(probe["sport"]) for probe in probes] == [50_001, 50_002] * (PORTS // 2)
    assert len({int(probe["reply_port"]) for probe in probes}) == PORTS
    assert {int(probe["path"]) for probe in probes} == {3}
    assert {int(probe["pair_position"]) for probe in probes} == {Position.CONNECTION}
    assert [int(probe["seq"]) for probe in probes][:3] == [0xFFFFFFFE, 0xFFFFFFFF, 0]


def test_without_a_backup_over_the_only_path(world: _World) -> None:
    world.steer(3, V4, flags=int(SteerFlag.ON | SteerFlag.PORTS))
    sent = world.run(START_NS, SECOND_NS)
    assert {int(packet["packet"]["sport"]) for packet in sent} == {50_001}


def test_connections_of_both_families_and_none_that_keep_their_ports(world: _World) -> None:
    world.steer(3, V4)
    world.steer(9, V6)
    world.steer(11, V6, flags=int(SteerFlag.ON | SteerFlag.FLOW_LABEL))
    sent = world.run(START_NS, UNCONFIRMED_EVERY_NS)
    assert [int(packet["packet"]["probe"]["path"]) for packet in sent] == [3, 9]
    assert world.signed.keys() == {Sender.TCP_IPV4, Sender.TCP_IPV6}
    assert int(sent[1]["ip"]["flow"]) & 0x3FFF == 50_001 & 0x3FFF


def test_who_comes_and_goes(world: _World) -> None:
    assert world.run(START_NS, SECOND_NS) == []
    world.steer(3, V4)
    assert world.run(START_NS + SECOND_NS, UNCONFIRMED_EVERY_NS)
    world.conns["flags"][3] = 0
    assert world.run(START_NS + 2 * SECOND_NS, SECOND_NS) == []
