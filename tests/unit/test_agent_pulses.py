"""Pulses: which packets are sent over which paths, which ways back are passed over, and the process's orders."""

import os
from collections import Counter
from ipaddress import ip_address
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.agent import pulses, replyports
from cwdp.agent.orders import Orders
from cwdp.agent.pulse import REFRESH_NS, PulseHost
from cwdp.agent.pulses import CALM_TURNS, MOST_HASTE, SPARE_EVERY, URGENT_BELOW, PulseOrder, Pulses
from cwdp.agent.replyports import PORTS, REST_NS, ReplyTurns, draw_ports
from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState, Position, SlotState
from cwdp.dataplane.steering import address_words

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

    def send(self, start: int, stop: int) -> tuple[int, int]:
        return self.send_rows(np.arange(start, stop))

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


something_wrong = pytest.mark.parametrize(
    ("column", "value"), [("unanswered", 2), ("state", PathState.DOWN)], ids=["unanswered", "down"]
)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(pulses, "BatchSender", _Sender)
    _Sender.slots = np.zeros(abi.SLOTS + abi.PULSE_SLOTS, dtype=abi.SLOT)
    _Sender.dead, _Sender.sent = set(), []
    monkeypatch.setattr(_Sender, "at_most", 1 << 30)
    return SimpleNamespace(
        slots=_Sender.slots, paths=np.zeros(abi.PATHS, dtype=abi.PATH), sign_for=lambda *_: None
    )


def _watch(tables: SimpleNamespace, number: int, dst: str, sport: int, *, spare: bool = False) -> None:
    path = tables.paths[number]
    path["users"], path["dst"], path["sport"] = 1, address_words(ip_address(dst)), sport
    path["primaries"] = not spare


def _pulses(tables: SimpleNamespace, order: PulseOrder = ORDER) -> Pulses:
    made = Pulses(order, tables, np.random.default_rng(1), Counter(dict.fromkeys(pulses.COUNTERS, 0)))
    made.refresh(0)
    return made


def test_a_pulse_goes_over_every_watched_path(tables: SimpleNamespace) -> None:
    _watch(tables, 7, "10.0.0.2", 50_000)
    _watch(tables, 9, "10.0.0.3", 50_001)
    _watch(tables, 4, "fd00::2", 50_002)
    _pulses(tables).send()
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


def _path_and_backup(tables: SimpleNamespace) -> Pulses:
    _watch(tables, 1, "10.0.0.2", 50_000, spare=True)
    _watch(tables, 2, "10.0.0.2", 50_001)
    return _pulses(tables)


def _rounds(made: Pulses, count: int) -> list[list[int]]:
    """The numbers of the paths in each of the next rounds of one family."""
    _Sender.sent.clear()
    for _ in range(count):
        made.send()
    return [sent["packet"]["probe"]["path"].tolist() for sent in _Sender.sent]


def test_a_path_that_only_backs_others_up_has_a_pulse_now_and_then(tables: SimpleNamespace) -> None:
    _watch(tables, 1, "10.0.0.2", 50_000, spare=True)
    _watch(tables, 2, "10.0.0.2", 50_001)
    rounds = _rounds(_pulses(tables), 4 * SPARE_EVERY)
    assert rounds.count([2, 1]) == 4
    assert rounds.count([2]) == len(rounds) - 4


@something_wrong
def test_backups_have_every_pulse_while_something_is_wrong(
    tables: SimpleNamespace, column: str, value: int
) -> None:
    made = _path_and_backup(tables)
    tables.paths[2][column] = value
    assert _rounds(made, SPARE_EVERY) == [[2, 1]] * SPARE_EVERY
    tables.paths[2][column] = 0
    assert _rounds(made, SPARE_EVERY).count([2]) == SPARE_EVERY - 1


@something_wrong
def test_haste_that_does_not_end_is_given_up_and_can_be_made_again_after_a_calm(
    tables: SimpleNamespace, column: str, value: int
) -> None:
    made = _path_and_backup(tables)
    tables.paths[2][column] = value
    assert _rounds(made, MOST_HASTE) == [[2, 1]] * MOST_HASTE
    assert _rounds(made, SPARE_EVERY).count([2]) == SPARE_EVERY - 1
    assert not made.is_urgent()
    tables.paths[2][column] = 0
    _rounds(made, 5 * CALM_TURNS)
    tables.paths[2][column] = value
    assert _rounds(made, 5) == [[2, 1]] * 5
    assert _rounds(made, SPARE_EVERY).count([2]) == SPARE_EVERY - 1


def test_a_backup_that_is_dead_itself_wakes_nobody_for_long(tables: SimpleNamespace) -> None:
    made = _path_and_backup(tables)
    tables.paths[1]["unanswered"] = URGENT_BELOW
    assert _rounds(made, SPARE_EVERY).count([2]) == SPARE_EVERY - 1


def test_a_backup_comes_back_by_all_of_its_reply_ports_too(tables: SimpleNamespace) -> None:
    _watch(tables, 1, "10.0.0.2", 50_000, spare=True)
    made = _pulses(tables)
    for _ in range(PORTS * SPARE_EVERY):
        made.send()
    ports = {int(packet["packet"]["probe"]["reply_port"]) for sent in _Sender.sent for packet in sent}
    assert len(ports) == PORTS


def test_a_lost_pulse_is_held_against_its_way_back_once(tables: SimpleNamespace) -> None:
    """Though no other pulse goes that way until several judgements later."""
    _watch(tables, 1, "10.0.0.2", 50_000, spare=True)
    made = _pulses(tables)
    _rounds(made, SPARE_EVERY)
    _Sender.dead = {50_000}
    _rounds(made, SPARE_EVERY)
    for now_ns in range(1, 5):
        made.refresh(now_ns)
    assert made._rings[0]._turns._misses.sum() == 1


def test_each_path_comes_back_by_all_of_its_reply_ports_in_turn(tables: SimpleNamespace) -> None:
    _watch(tables, 1, "10.0.0.2", 50_000)
    made = _pulses(tables)
    for _ in range(2 * ROUND):
        made.send()
    ports = [int(sent["packet"]["probe"]["reply_port"][0]) for sent in _Sender.sent]
    assert len(set(ports)) == PORTS
    assert ports[:ROUND] == ports[ROUND:]


def test_changes_of_the_paths_are_taken_up(tables: SimpleNamespace) -> None:
    made = _pulses(tables)
    made.send()
    assert (made.count, _Sender.sent) == (0, [])
    _watch(tables, 1, "10.0.0.2", 50_000)
    made.refresh(1)
    made.send()
    tables.paths[1]["sport"] = 50_009
    made.refresh(2)
    made.send()
    tables.paths[1]["users"] = 0
    made.refresh(3)
    made.send()
    assert [int(sent["packet"]["sport"][0]) for sent in _Sender.sent] == [50_000, 50_009]


def test_a_path_of_a_family_without_an_address_is_counted(tables: SimpleNamespace) -> None:
    _watch(tables, 1, "fd00::2", 50_000)
    counters: Counter[str] = Counter()
    made = Pulses(msgspec.structs.replace(ORDER, ipv6=None), tables, np.random.default_rng(1), counters)
    made.refresh(0)
    made.send()
    assert (_Sender.sent, counters["pulses_without_address"]) == ([], 1)


def test_what_the_kernel_does_not_take_is_counted(
    tables: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Sender, "at_most", 1)
    _watch(tables, 1, "10.0.0.2", 50_000)
    _watch(tables, 2, "10.0.0.2", 50_001)
    made = _pulses(tables)
    made.send()
    assert made._counters == {"pulses_sent": 1, "pulses_unsent": 1, "pulses_without_address": 0}


@pytest.mark.parametrize(
    ("unanswered", "state", "urgent"),
    [
        (0, "UP", False),
        (1, "UP", False),
        (2, "UP", True),
        (15, "UP", True),
        (16, "UP", False),
        (5, "DOWN", False),
    ],
)
def test_only_a_path_about_to_be_given_up_is_urgent(
    tables: SimpleNamespace, unanswered: int, state: str, urgent: bool
) -> None:
    for number in (1, 2):
        _watch(tables, number, "10.0.0.2", 50_000 + number)
    made = _pulses(tables)
    tables.paths[2]["unanswered"], tables.paths[2]["state"] = unanswered, PathState[state]
    assert made.is_urgent() == urgent
    made.send_urgent()
    assert [sent["packet"]["probe"]["path"].tolist() for sent in _Sender.sent] == ([[2]] if urgent else [])


def _ports_used(made: Pulses, path: int) -> set[int]:
    _Sender.sent.clear()
    for _ in range(ROUND):
        made.send()
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
    orders = Orders(read, list[PulseOrder])
    assert orders.take() is None
    line = msgspec.json.encode([ORDER]) + b"\n"
    os.write(write, b"[]\n" + line + line[:9])
    assert orders.take() == [ORDER]
    os.write(write, line[9:])
    assert orders.take() == [ORDER]
    os.close(write)
    with pytest.raises(EOFError):
        orders.take()
    os.close(read)


def test_a_nic_without_a_dataplane_is_counted_and_tried_again() -> None:
    host = PulseHost()
    host.follow([msgspec.structs.replace(ORDER, ifname="cwdp-none")])
    host.refresh(0)
    host.refresh(1)
    assert host.counters["pulses_failed"] == 2
    assert host.send() is False
    assert host.interval_ns(2_000_000) == REFRESH_NS
