"""Pulses: which packets are sent over which paths, which ways back are passed over, and the process's orders."""

import os
from collections import Counter
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.agent.liveness import process as pulse
from cwdp.agent.liveness import pulses, replyports
from cwdp.agent.liveness.process import PulseHost, PulseOrders
from cwdp.agent.liveness.pulses import SEQ_END, PulseOrder, Pulses
from cwdp.agent.liveness.replyports import PORTS, REST_NS, ReplyTurns, draw_ports
from cwdp.agent.liveness.watchedpaths import Way
from cwdp.agent.orders import Orders
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Position, SlotState
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.pinned import tree

ORDER = PulseOrder(ifname="nic0", load=1, key_id=3, port=4791, ipv4="10.0.0.1", ipv6="fd00::1")
ROUND = PORTS


class _Sender:
    """Takes packets as the kernel does, and answers all but those of the ports named dead."""

    slots: NDArray[np.void]
    dead: set[int]
    sent: list[NDArray[np.void]]
    at_most = 1 << 30
    cookie = 1

    def __init__(self, _ifname: str, _family: int, templates: NDArray[np.void]) -> None:
        self._templates = templates

    def send_rows(self, rows: NDArray[np.intp]) -> tuple[int, int]:
        taken = self._templates[rows[: self.at_most]].copy()
        _Sender.sent.append(taken)
        for probe in taken["packet"]["probe"]:
            alive = int(probe["reply_port"]) not in self.dead and int(probe["sport"]) not in self.dead
            state = SlotState.DONE if alive else SlotState.SENT
            seq = int(probe["seq"])
            _Sender.slots["tag"][abi.SLOTS + seq % abi.PULSE_SLOTS] = seq << 32 | state
        return len(taken), 0

    def close(self) -> None:
        pass


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(pulses, "BatchSender", _Sender)
    _Sender.slots = np.zeros(abi.SLOTS + abi.PULSE_SLOTS, dtype=abi.SLOT)
    _Sender.dead, _Sender.sent = set(), []
    monkeypatch.setattr(_Sender, "at_most", 1 << 30)
    return SimpleNamespace(
        slots=_Sender.slots, paths=np.zeros(abi.PATHS, dtype=abi.PATH), sign_for=lambda *_: None
    )


def _watch(tables: Any, number: int, dst: str, sport: int) -> None:
    path = tables.paths[number]
    path["users"], path["dst"], path["sport"] = 1, address_words(ip_address(dst)), sport
    path["primaries"] = 1


def _pulses(tables: SimpleNamespace, order: PulseOrder = ORDER) -> Pulses:
    made = Pulses(order, tables, np.random.default_rng(1), Counter(dict.fromkeys(pulses.COUNTERS, 0)))
    made.refresh(0)
    return made


def _send(made: Pulses) -> None:
    """A pulse over every path."""
    made.send(np.arange(len(made.numbers)))


def test_a_pulse_goes_over_every_watched_path(tables: SimpleNamespace) -> None:
    _watch(tables, 7, "10.0.0.2", 50_000)
    _watch(tables, 9, "10.0.0.3", 50_001)
    _watch(tables, 4, "fd00::2", 50_002)
    _send(_pulses(tables))
    four, six = _Sender.sent
    probe = four["packet"]["probe"]
    assert probe["path"].tolist() == [7, 9]
    assert probe["pair_position"].tolist() == [Position.PULSE] * 2
    assert four["packet"]["sport"].tolist() == probe["sport"].tolist() == [50_000, 50_001]
    assert set(probe["key_id"]) == {3}
    assert [bytes(a) for a in four["ip"]["destination"]] == [ip_address(f"10.0.0.{i}").packed for i in (2, 3)]
    assert six["packet"]["probe"]["path"].tolist() == [4]
    assert int(six["ip"]["flow"][0]) & 0xFFFFF == 50_002 & 0x3FFF
    assert bytes(six["ip"]["source"][0]) == ip_address("fd00::1").packed
    seqs = [int(seq) for packets in (four, six) for seq in packets["packet"]["probe"]["seq"]]
    assert seqs == list(range(seqs[0], seqs[0] + 3))


def test_sequence_numbers_leave_nothing_out_where_they_begin_anew(tables: SimpleNamespace) -> None:
    """Whoever reads the slots follows them by counting."""
    for number in range(1, 8):
        _watch(tables, number, "10.0.0.2", 50_000 + number)
    made = _pulses(tables)
    made._next_seq = SEQ_END - 10
    for _ in range(4):
        _send(made)
    seqs = [int(seq) for sent in _Sender.sent for seq in sent["packet"]["probe"]["seq"]]
    assert seqs == [seq % (1 << 32) for seq in range(SEQ_END - 10, SEQ_END + 18)]


def test_only_the_chosen_paths_have_one_and_each_by_all_of_its_reply_ports(tables: SimpleNamespace) -> None:
    """However rarely one is chosen."""
    _watch(tables, 1, "10.0.0.2", 50_000)
    _watch(tables, 2, "fd00::2", 50_001)
    _watch(tables, 3, "10.0.0.2", 50_002)
    made = _pulses(tables)
    assert made.numbers.tolist() == [1, 3, 2]
    for turn in range(4 * PORTS):
        made.send(np.array([0] if turn % 4 else [1, 2]))
    probes = np.concatenate([sent["packet"]["probe"] for sent in _Sender.sent])
    for number, count in ((1, 3 * PORTS), (2, PORTS), (3, PORTS)):
        ports = probes["reply_port"][probes["path"] == number]
        assert (len(ports), len(set(ports.tolist()))) == (count, PORTS)


def test_a_lost_pulse_is_held_against_its_way_back_once(tables: SimpleNamespace) -> None:
    """Though no other pulse goes that way until several judgements later."""
    _watch(tables, 1, "10.0.0.2", 50_000)
    made = _pulses(tables)
    _send(made)
    _Sender.dead = {50_000}
    _send(made)
    for now_ns in range(1, 5):
        made.refresh(now_ns)
    assert made._rings[0]._turns._misses.sum() == 1


def test_each_path_comes_back_by_all_of_its_reply_ports_in_turn(tables: SimpleNamespace) -> None:
    _watch(tables, 1, "10.0.0.2", 50_000)
    made = _pulses(tables)
    for _ in range(2 * ROUND):
        _send(made)
    ports = [int(sent["packet"]["probe"]["reply_port"][0]) for sent in _Sender.sent]
    assert len(set(ports)) == PORTS
    assert ports[:ROUND] == ports[ROUND:]


def test_changes_of_the_paths_are_taken_up(tables: SimpleNamespace) -> None:
    made = _pulses(tables)
    _send(made)
    assert (len(made.numbers), _Sender.sent) == (0, [])
    _watch(tables, 1, "10.0.0.2", 50_000)
    made.refresh(1)
    _send(made)
    tables.paths[1]["sport"] = 50_009
    made.refresh(2)
    _send(made)
    tables.paths[1]["users"] = 0
    made.refresh(3)
    _send(made)
    assert [int(sent["packet"]["sport"][0]) for sent in _Sender.sent] == [50_000, 50_009]


def test_a_path_of_a_family_without_an_address_is_counted(tables: SimpleNamespace) -> None:
    _watch(tables, 1, "fd00::2", 50_000)
    counters: Counter[str] = Counter()
    made = Pulses(msgspec.structs.replace(ORDER, ipv6=None), tables, np.random.default_rng(1), counters)
    made.refresh(0)
    _send(made)
    assert (_Sender.sent, counters["pulses_without_address"]) == ([], 1)


def test_what_the_kernel_does_not_take_is_counted(
    tables: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Sender, "at_most", 1)
    _watch(tables, 1, "10.0.0.2", 50_000)
    _watch(tables, 2, "10.0.0.2", 50_001)
    made = _pulses(tables)
    _send(made)
    assert made._counters == {"pulses_sent": 1, "pulses_unsent": 1, "pulses_without_address": 0}


def _ports_used(made: Pulses, path: int) -> set[int]:
    _Sender.sent.clear()
    for _ in range(ROUND):
        _send(made)
    probes = np.concatenate(_Sender.sent)["packet"]["probe"]
    return set(probes["reply_port"][probes["path"] == path].tolist())


def test_a_dead_way_back_is_passed_over_and_tried_again(tables: SimpleNamespace) -> None:
    for number in (1, 2):
        _watch(tables, number, "10.0.0.2", 50_000 + number)
    made = _pulses(tables)
    dead = set(sorted(_ports_used(made, 1))[:4])
    _Sender.dead = dead
    for now_ns in (0, 1, 2):
        _ports_used(made, 1)
        made.refresh(now_ns)
    assert _ports_used(made, 1).isdisjoint(dead)
    assert len(_ports_used(made, 2)) == PORTS
    made.refresh(REST_NS + 10)
    assert dead <= _ports_used(made, 1)


def test_a_dead_way_there_leaves_no_way_back_out(tables: SimpleNamespace) -> None:
    _watch(tables, 1, "10.0.0.2", 50_000)
    made = _pulses(tables)
    _Sender.dead = {50_000}
    for now_ns in range(6):
        assert len(_ports_used(made, 1)) == PORTS
        made.refresh(now_ns)


def test_turns_when_all_ways_back_have_been_missed() -> None:
    turns = ReplyTurns(1)
    first, second = np.zeros((2, 1, PORTS), dtype=bool)
    first[0, :8], second[0, 8:] = True, True
    for _ in range(replyports.MISSES):
        turns.judge(first, second, 0)
    assert set(turns.order[0].tolist()) == set(range(8))
    for _ in range(replyports.MISSES):
        turns.judge(second, first, 0)
    assert set(turns.order[0].tolist()) == set(range(PORTS))


def test_reply_ports_are_roce_source_ports_and_spread() -> None:
    ports = draw_ports(100, np.random.default_rng(1))
    assert ports.shape == (100, PORTS)
    assert int(ports.min()) >= abi.SPORT_MIN
    assert (np.diff(ports.astype(int), axis=1) > 0).all()
    assert (ports // 1024 == np.arange(PORTS) + abi.SPORT_MIN // 1024).all()


def test_the_latest_orders_count_and_the_end_is_told() -> None:
    read, write = os.pipe()
    orders = Orders(read, PulseOrders)
    assert orders.take() is None
    wanted = PulseOrders([ORDER], [Way("nic0", bytes(16), 50_000, 0, (0, 1))])
    line = msgspec.json.encode(wanted) + b"\n"
    os.write(write, b"[]\n" + line + line[:9])
    assert orders.take() == wanted
    os.write(write, line[9:])
    assert orders.take() == wanted
    os.close(write)
    with pytest.raises(EOFError):
        orders.take()
    os.close(read)


class _Maps:
    """The maps of a NIC, whose pulses are all answered."""

    def __init__(self, ifname: str) -> None:
        self.ifname = ifname
        self.slots = _Sender.slots
        self.paths = np.zeros(abi.PATHS, dtype=abi.PATH)
        self.tcp_conns = np.zeros(abi.TCP_CONNS, dtype=abi.TCP_CONN)
        self.control = np.zeros(1, dtype=abi.CONTROL)
        self.control["dead_after_ns"] = 10_000_000
        self.qps = {direction: np.zeros(8, dtype=abi.QP) for direction in Direction}

    def qp_places_made(self) -> int:
        return 0

    def sign_for(self, sender: abi.Sender, cookie: int) -> None:
        """Everything is signed."""

    def close(self) -> None:
        pass


class _NoSteering:
    def __init__(self, _maps: _Maps) -> None:
        pass

    def path_pairs(self) -> NDArray[np.intp]:
        return np.zeros((0, 2), dtype=np.intp)


@pytest.mark.parametrize("paths", [3, 300])
def test_all_nics_of_a_host_have_their_pulses_as_paths_come_and_go(
    tables: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, paths: int
) -> None:
    """Few paths or many; a NIC without any, one with both families, one that goes."""
    maps = {name: _Maps(name) for name in ("nic0", "nic1", "nic2")}
    monkeypatch.setattr(pulse, "Maps", maps.__getitem__)
    monkeypatch.setattr(tree, "here", lambda ifname: ifname)
    monkeypatch.setattr(pulse, "Steering", _NoSteering)
    for i in range(paths):
        _watch(maps["nic0"], 1 + i, f"10.0.{i // 250}.{i % 250}", 50_000 + i)
        _watch(maps["nic2"], 1 + i, f"fd00::{i:x}" if i % 2 else "10.9.0.2", 50_000 + i)
    orders = [msgspec.structs.replace(ORDER, ifname=name) for name in maps]
    host = PulseHost(2_000_000)
    host.follow(PulseOrders(orders, []))
    assert _asked(host) == 2 * paths
    maps["nic0"].paths["users"] = 0
    assert _asked(host) == paths
    _watch(maps["nic1"], 9, "10.0.0.9", 50_000)
    assert _asked(host) == paths + 1
    host.follow(PulseOrders(orders[:2], []))
    assert _asked(host) == 1
    assert host.counters["pulses_failed"] == host.counters["pulses_unsent"] == 0
    assert int(maps["nic1"].control["pulse_gap_ns"][0]) > 0


def _asked(host: PulseHost) -> int:
    """How many paths have a pulse within a second."""
    _Sender.sent.clear()
    for turn in range(500):
        if turn % 25 == 0:
            host.refresh(turn * 2_000_000)
        if host.send(turn * 2_000_000):
            host.send_between(turn * 2_000_000 + 1_000_000)
    return len(
        {
            bytes(one["ip"]["destination"]) + bytes(one["packet"]["sport"])
            for sent in _Sender.sent
            for one in sent
        }
    )


def test_a_nic_without_a_dataplane_is_counted_and_tried_again() -> None:
    host = PulseHost(2_000_000)
    host.follow(PulseOrders([msgspec.structs.replace(ORDER, ifname="cwdp-none")], []))
    host.refresh(0)
    host.refresh(1)
    assert host.counters["pulses_failed"] == 2
    assert host.send(0) is False
    assert not host.has_paths
