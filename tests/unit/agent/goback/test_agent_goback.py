"""Going back: which queue pairs wait, what they are told, and how often."""

import errno
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cwdp.agent.goback import process as goback
from cwdp.agent.goback.packets import acknowledgement
from cwdp.agent.goback.process import (
    COUNTERS,
    GoBackHost,
    GoBackOrder,
    NicGoBack,
    ProvedDevices,
)
from cwdp.agent.goback.unacknowledged import Unacknowledged
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, PathState, SteerFlag
from cwdp.dataplane.addresses import address_words
from cwdp.rdma.netlink import QueuePair
from cwdp.rdma.sysfs import Port

HERE = GoBackOrder("nic0", 1, "10.0.0.1", "fd00::1")
PEER, OTHER, PEER6 = ip_address("10.0.0.2"), ip_address("10.0.0.3"), ip_address("fd00::2")
KNOWN, BY_NAK, LAST = 1 << 31, 1 << 30, 0xFFFFFF
PATH = 3
AETH = 0x1F000002
QP = QueuePair("rxe0", 1, 17, 29, "RC", "RTS", 0, 0, None, 4711, None)


class Tables:
    """The maps of a NIC with room for some queue pairs, and a path in doubt."""

    def __init__(self) -> None:
        self.qps = {direction: np.zeros(64, dtype=abi.QP) for direction in Direction}
        self.paths = np.zeros(8, dtype=abi.PATH)
        self.paths["unanswered"][PATH] = 4
        self._next = 0

    def add(self, direction: Direction, peer: Any, qpn: int, **fields: int) -> Any:
        """A record of a queue pair, as the dataplane makes it."""
        record = self.qps[direction][self._next]
        self._next += 1
        record["tag"] = 1000 + self._next
        record["key"]["addr"], record["key"]["qpn"] = address_words(peer), qpn
        for name, value in fields.items():
            record[name] = value
        return record

    def connect(
        self, qp: QueuePair = QP, peer: Any = PEER, path: int = PATH, sent: int = 9
    ) -> tuple[Any, Any]:
        """Both records of a steered queue pair that has sent up to a PSN, and nothing acknowledged."""
        assert qp.rqpn is not None
        flags = SteerFlag.ON | SteerFlag.BACKUP
        out = self.add(Direction.EGRESS, peer, qp.rqpn, path=path, flags=flags, next_psn=KNOWN | sent + 1)
        return out, self.add(Direction.INGRESS, peer, qp.lqpn)

    def close(self) -> None:
        pass


@pytest.fixture
def tables() -> Tables:
    return Tables()


def acknowledge(into: Any, psn: int) -> None:
    into["acked_psn"] = KNOWN | psn


def test_one_that_waits(tables: Tables) -> None:
    _, into = tables.connect()
    known = Unacknowledged(tables)
    known.follow([QP])
    acknowledge(into, 5)
    (one,) = known.waiting()
    assert (one.peer, one.lqpn, one.rqpn, one.path, one.psn) == (PEER, 17, 29, PATH, 6)


@pytest.mark.parametrize(("acked", "psn"), [(LAST, 0), (LAST - 1, LAST), (0, 1)])
def test_psns_go_round(tables: Tables, acked: int, psn: int) -> None:
    _, into = tables.connect(sent=200)
    known = Unacknowledged(tables)
    known.follow([QP])
    acknowledge(into, acked)
    assert [one.psn for one in known.waiting()] == [psn]


def test_all_acknowledged(tables: Tables) -> None:
    _, into = tables.connect(sent=9)
    known = Unacknowledged(tables)
    known.follow([QP])
    acknowledge(into, 9)
    assert known.waiting() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("path", 0), ("path", 1), ("flags", int(SteerFlag.ON))],
    ids=["not watched", "alive", "no backup"],
)
def test_one_whose_path_is_not_in_doubt(tables: Tables, field: str, value: int) -> None:
    out, into = tables.connect()
    out[field] = value
    known = Unacknowledged(tables)
    known.follow([QP])
    acknowledge(into, 5)
    assert known.waiting() == []


def test_what_was_said_to_an_earlier_one_does_not_count(tables: Tables) -> None:
    """Numbers are used again: an old acknowledgement would tell of messages that never arrived."""
    _, into = tables.connect()
    acknowledge(into, 5)
    known = Unacknowledged(tables)
    known.follow([QP])
    assert [one.psn for one in known.waiting()] == [None]
    acknowledge(into, 5)
    known.follow([QP])
    assert [one.psn for one in known.waiting()] == [6]
    known.follow([replace(QP, pid=4712)])
    assert [one.psn for one in known.waiting()] == [None]


def test_one_that_was_gone_for_a_while(tables: Tables) -> None:
    _, into = tables.connect()
    known = Unacknowledged(tables)
    known.follow([QP])
    acknowledge(into, 5)
    known.follow([])
    assert (len(known), known.waiting()) == (0, [])
    known.follow([QP])
    assert [one.psn for one in known.waiting()] == [None]


def test_equal_numbers_at_two_peers(tables: Tables) -> None:
    second = replace(QP, lqpn=18)
    _, into = tables.connect()
    _, into_second = tables.connect(second, OTHER)
    known = Unacknowledged(tables)
    known.follow([QP, second])
    acknowledge(into, 5)
    acknowledge(into_second, 7)
    assert {(one.peer, one.lqpn, one.psn) for one in known.waiting()} == {(PEER, 17, 6), (OTHER, 18, 8)}


def test_nobody_is_taken_for_another(tables: Tables) -> None:
    """With packets in either direction from two peers it is not known whose the queue pair is."""
    for peer in (PEER, OTHER):
        _, into = tables.connect(peer=peer)
        acknowledge(into, 5)
    known = Unacknowledged(tables)
    known.follow([QP])
    assert known.waiting() == []


def test_a_place_that_another_has_taken(tables: Tables) -> None:
    out, into = tables.connect()
    known = Unacknowledged(tables)
    known.follow([QP])
    acknowledge(into, 5)
    out["tag"] += 1
    assert known.waiting() == []


class _Sender:
    """In place of the sockets: what was sent, and what becomes of it."""

    def __init__(self, _ifname: str) -> None:
        self.sent: list[tuple[bytes, Any, int]] = []
        self.given: bool | OSError = True
        self.on_send: Any = lambda: None

    def send(self, packet: bytes, peer: Any, rqpn: int = 0) -> bool:
        self.sent.append((packet, peer, rqpn))
        self.on_send()
        if isinstance(self.given, OSError):
            raise self.given
        return self.given

    def close(self) -> None:
        pass


@pytest.fixture
def nic(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(goback, "Maps", lambda _: tables)
    monkeypatch.setattr(goback.tree, "here", lambda _: None)
    sender = _Sender("nic0")
    monkeypatch.setattr(goback, "GoBackSender", lambda *_: sender)
    counters = Counter(dict.fromkeys(COUNTERS, 0))
    return SimpleNamespace(nic=NicGoBack(HERE, counters), sender=sender, counters=counters, tables=tables)


def waiting(nic: SimpleNamespace, count: int = 1) -> list[Any]:
    """Queue pairs over one path that wait; what came to each."""
    qps = [replace(QP, lqpn=QP.lqpn + n) for n in range(count)]
    peers = [ip_address(f"10.0.1.{n}") for n in range(count)]
    arrived = [nic.tables.connect(qp, peer)[1] for qp, peer in zip(qps, peers, strict=True)]
    nic.nic.follow(qps)
    for into in arrived:
        acknowledge(into, 5)
    return arrived


def switch(nic: SimpleNamespace) -> None:
    nic.tables.paths["state"][PATH] = PathState.DOWN
    nic.tables.paths["flaps"][PATH] += 1


def test_each_is_told_once(nic: SimpleNamespace) -> None:
    waiting(nic, 3)
    switch(nic)
    for _ in range(8):
        nic.nic.act()
    assert len(nic.sender.sent) == nic.counters["go_backs_sent"] == 3


def test_the_telling_that_finds_the_path_dead_is_of_that_switch(nic: SimpleNamespace) -> None:
    waiting(nic)
    nic.sender.on_send = lambda: switch(nic)
    nic.nic.act()
    nic.nic.act()
    assert len(nic.sender.sent) == 1


def test_one_asks_for_all_while_the_path_is_in_use(nic: SimpleNamespace) -> None:
    waiting(nic, 3)
    nic.sender.given = False
    nic.nic.act()
    nic.nic.act()
    assert (len(nic.sender.sent), nic.counters["go_backs_sent"]) == (2, 0)
    nic.sender.given = True
    nic.nic.act()
    assert nic.counters["go_backs_sent"] == 3


def test_no_second_word_before_anything_was_acknowledged(nic: SimpleNamespace) -> None:
    """Soft-RoCE ignores it, and starts its timer anew."""
    (into,) = waiting(nic)
    for _ in range(5):
        switch(nic)
        nic.nic.act()
    assert nic.counters["go_backs_sent"] == 1
    acknowledge(into, 6)
    switch(nic)
    nic.nic.act()
    assert nic.counters["go_backs_sent"] == 2


def test_not_again_for_one_switch_however_much_is_acknowledged(nic: SimpleNamespace) -> None:
    """It has gone back and is under way by the backup."""
    (into,) = waiting(nic)
    switch(nic)
    for psn in range(5, 9):
        acknowledge(into, psn)
        nic.nic.act()
    assert nic.counters["go_backs_sent"] == 1


def test_who_was_told_by_its_peer_is_not_told_again(nic: SimpleNamespace) -> None:
    """It sends again already, and what it sent is lost: only its timer moves it."""
    (into,) = waiting(nic)
    acknowledge(into, BY_NAK | 5)
    nic.nic.act()
    assert (nic.sender.sent, nic.counters["go_backs_retrying"]) == ([], 0)
    switch(nic)
    for _ in range(5):
        nic.nic.act()
    assert (nic.sender.sent, nic.counters["go_backs_retrying"]) == ([], 1)
    acknowledge(into, 6)
    switch(nic)
    nic.nic.act()
    assert (len(nic.sender.sent), nic.counters["go_backs_retrying"]) == (1, 1)


@pytest.mark.parametrize("said", [0, KNOWN | BY_NAK | 5], ids=["nothing acknowledged", "told by its peer"])
def test_one_that_is_not_told_keeps_nobody_from_it(nic: SimpleNamespace, said: int) -> None:
    """A path in doubt is judged when somebody asks; that the first may not says nothing about the path."""
    first, *rest = waiting(nic, 3)
    first["acked_psn"] = said
    nic.nic.act()
    assert len(nic.sender.sent) == len(rest)


def test_the_next_time_that_the_path_is_in_doubt(nic: SimpleNamespace) -> None:
    """A path that was given up before, and came back: nobody but the one that waits may notice that it is dead again."""
    (into,) = waiting(nic)
    switch(nic)
    nic.nic.act()
    acknowledge(into, 6)
    nic.tables.paths["state"][PATH] = PathState.UP
    nic.sender.on_send = lambda: switch(nic)
    nic.nic.act()
    nic.nic.act()
    assert nic.counters["go_backs_sent"] == 2


def test_none_without_an_acknowledgement(nic: SimpleNamespace) -> None:
    nic.tables.connect()
    nic.nic.follow([QP])
    nic.nic.act()
    assert nic.counters["go_backs_unknown"] == 0
    switch(nic)
    for _ in range(5):
        nic.nic.act()
    assert (nic.sender.sent, nic.counters["go_backs_unknown"]) == ([], 1)


def test_what_the_kernel_does_not_take(nic: SimpleNamespace) -> None:
    waiting(nic)
    switch(nic)
    nic.sender.given = OSError(errno.EHOSTUNREACH, "no route")
    nic.nic.act()
    assert nic.counters["go_backs_unsent"] == 1
    nic.sender.given = True
    nic.nic.act()
    assert nic.counters["go_backs_sent"] == 1


def acknowledged(nic: SimpleNamespace, count: int = 1) -> list[Any]:
    """Queue pairs over one path that have all they asked for, and have acknowledged; what each sends."""
    qps = [replace(QP, lqpn=QP.lqpn + n) for n in range(count)]
    made = [nic.tables.connect(qp, ip_address(f"10.0.1.{n}"), sent=5) for n, qp in enumerate(qps)]
    nic.nic.follow(qps)
    for out, into in made:
        acknowledge(into, 5)
        out["ack_sent"] = AETH << 32 | KNOWN | 8
    return [out for out, _ in made]


def test_each_acknowledges_again_once_for_a_switch(nic: SimpleNamespace) -> None:
    acknowledged(nic, 3)
    for switches in (1, 2):
        switch(nic)
        for _ in range(4):
            nic.nic.act()
        assert len(nic.sender.sent) == nic.counters["go_back_acks_sent"] == 3 * switches
    here = ip_address("10.0.0.1")
    assert {packet for packet, _, _ in nic.sender.sent} == {
        acknowledgement(here, ip_address(f"10.0.1.{n}"), 29, AETH, 8) for n in range(3)
    }


def test_what_was_acknowledged_before_the_switch_was_known_may_be_lost(nic: SimpleNamespace) -> None:
    (out,) = acknowledged(nic)
    nic.sender.on_send = lambda: switch(nic)
    nic.nic.act()
    nic.sender.on_send = lambda: None
    out["ack_sent"] = AETH << 32 | KNOWN | 9
    nic.nic.act()
    nic.nic.act()
    assert [int.from_bytes(packet[36:40]) for packet, _, _ in nic.sender.sent] == [8, 9]


def test_one_acknowledges_for_all_while_the_path_is_in_use(nic: SimpleNamespace) -> None:
    acknowledged(nic, 3)
    nic.sender.given = False
    nic.nic.act()
    nic.nic.act()
    assert (len(nic.sender.sent), nic.counters["go_back_acks_sent"]) == (2, 0)


def test_an_acknowledgement_that_the_kernel_does_not_take_is_sent_later(nic: SimpleNamespace) -> None:
    acknowledged(nic)
    switch(nic)
    nic.sender.given = OSError(errno.EHOSTUNREACH, "no route")
    nic.nic.act()
    nic.sender.given = True
    nic.nic.act()
    assert (nic.counters["go_backs_unsent"], nic.counters["go_back_acks_sent"]) == (1, 1)


@pytest.mark.parametrize("fields", [{"ack_sent": 0}, {"path": 1}, {"flags": int(SteerFlag.ON)}], ids=str)
def test_who_has_nothing_to_acknowledge_again(nic: SimpleNamespace, fields: dict[str, int]) -> None:
    (out,) = acknowledged(nic)
    for name, value in fields.items():
        out[name] = value
    switch(nic)
    nic.nic.act()
    assert nic.sender.sent == []


def test_what_an_earlier_one_has_acknowledged_is_not_said_again(nic: SimpleNamespace) -> None:
    """Numbers are used again."""
    acknowledged(nic)
    nic.nic.follow([replace(QP, pid=4712)])
    switch(nic)
    nic.nic.act()
    assert nic.sender.sent == []


def test_only_connected_ones_of_proved_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    mlx5 = replace(QP, device="mlx5_0")
    listed = [
        QP,
        mlx5,
        replace(QP, type="UD"),
        replace(QP, state="ERR"),
        replace(QP, rqpn=None),
        replace(QP, port=None),
    ]
    ports = [
        Port(name, 1, "ACTIVE", "LinkUp", "Ethernet", None, netdev)
        for name, netdev in (("rxe0", "nic0"), ("mlx5_0", "nic1"))
    ]
    monkeypatch.setattr(goback.netlink, "drivers", lambda: {"rxe0": "rxe", "mlx5_0": "mlx5"})
    monkeypatch.setattr(goback.netlink, "queue_pairs", lambda: listed)
    monkeypatch.setattr(goback.sysfs, "ports", lambda: ports)
    devices = ProvedDevices()
    assert devices.queue_pairs(1) == devices.queue_pairs(2) == {"nic0": [QP]}


def test_a_nic_without_a_dataplane_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: str) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(ProvedDevices, "queue_pairs", lambda *_: {"nic0": [QP]})
    monkeypatch.setattr(goback.tree, "here", lost)
    host = GoBackHost()
    host.follow([HERE])
    for _ in range(3):
        host.look(1)
    assert (host.counters["go_back_failed"], host.is_needed()) == (3, False)
