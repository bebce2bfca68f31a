"""What congestion control reads and writes: pulses, busy queue pairs, marks, classes and paces, episodes."""

import struct
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cwdp.congestion import leaf, pacing
from cwdp.congestion.busy import MOST_BUSY, BusyReader
from cwdp.congestion.episodes import LASTING_NS, QUIET_NS, Episodes, Held
from cwdp.congestion.marks import MarkReader
from cwdp.congestion.pacing import Pacer
from cwdp.congestion.signal import LOST_TRACK_NS, Bases, Delays, PulseReader, path_delays
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Enforcer, SlotState
from cwdp.dataplane.addresses import address_words
from cwdp.slices.edt import pace_q18
from cwdp.slices.htb import class_id

MS = 1_000_000
LINK = 1e9


class Pulses:
    """The slots, and pulses that are sent and answered."""

    def __init__(self) -> None:
        self.slots = np.zeros(abi.SLOTS + abi.PULSE_SLOTS, dtype=abi.SLOT)

    def set(self, seq: int, path: int, state: SlotState, owd_ns: int = 0, t1: int = 0) -> None:
        slot = self.slots[abi.SLOTS + seq % abi.PULSE_SLOTS]
        slot["tag"] = seq << 32 | state
        slot["path"], slot["fwd_owd_ns"], slot["rev_owd_ns"], slot["t1"] = path, owd_ns, owd_ns, t1 or seq


def test_answers_are_found_whatever_their_order() -> None:
    pulses = Pulses()
    pulses.set(1_000, 7, SlotState.DONE, 5)
    reader = PulseReader(pulses)
    assert len(reader.take(0)) == 0  # before its time
    for seq in (1_001, 1_002, 1_003):
        pulses.set(seq, 7, SlotState.SENT)
    assert len(reader.take(1 * MS)) == 0
    pulses.set(1_003, 7, SlotState.DONE, 30)
    assert reader.take(2 * MS)["fwd_owd_ns"].tolist() == [30]
    pulses.set(1_001, 7, SlotState.DONE, 10)
    pulses.set(1_004, 7, SlotState.DONE, 40)
    assert sorted(reader.take(3 * MS)["fwd_owd_ns"].tolist()) == [10, 40]
    assert len(reader.take(4 * MS)) == 0


def test_the_reader_goes_round_with_the_ring_and_over_what_was_never_sent() -> None:
    pulses = Pulses()
    reader = PulseReader(pulses)
    found = []
    for seq in range(5, 3 * abi.PULSE_SLOTS, 97):
        pulses.set(seq, 1, SlotState.DONE, seq)
        found += reader.take(seq)["fwd_owd_ns"].tolist()
    assert found == list(range(5, 3 * abi.PULSE_SLOTS, 97))[1:]


@pytest.mark.parametrize("step_ns", [20 * MS, 50 * MS, 120 * MS])
@pytest.mark.parametrize("first", [1_000, (1 << 32) - 100_000])
@pytest.mark.parametrize("paths", [20, 2_048])
def test_the_signal_never_lags(paths: int, first: int, step_ns: int) -> None:
    """50,000 pulses a second, all answered at once: none is left to the step after. Some rounds are never sent."""
    pulses = Pulses()
    pulses.set(first - 1, 1, SlotState.DONE)
    reader = PulseReader(pulses)
    reader.take(0)
    seq, sent = first, []
    for now_ns in range(step_ns, 5_000 * MS, step_ns):
        due = first + 50_000 * now_ns // 1_000_000_000
        while seq + paths <= due:
            if seq // paths % 7:
                sent += [number & 0xFFFFFFFF for number in range(seq, seq + paths)]
            seq += paths
        _send_at_once(pulses, sent, now_ns)
        assert sorted(reader.take(now_ns)["fwd_owd_ns"].tolist()) == sorted(sent)
        sent = []


def _send_at_once(pulses: Pulses, numbers: list[int], t1: int) -> None:
    seq = np.array(numbers, dtype=np.uint64)
    slots = pulses.slots
    at = abi.SLOTS + (seq % np.uint64(abi.PULSE_SLOTS)).astype(np.intp)
    slots["tag"][at] = seq << np.uint64(32) | np.uint64(SlotState.DONE)
    slots["fwd_owd_ns"][at], slots["t1"][at], slots["path"][at] = seq, t1, 1


def test_a_sender_that_begins_anew_is_found_again() -> None:
    pulses = Pulses()
    pulses.set(900_000, 1, SlotState.DONE, t1=1)
    reader = PulseReader(pulses)
    reader.take(1)
    pulses.set(50, 1, SlotState.DONE, t1=2)
    reader.take(LOST_TRACK_NS + 2)
    pulses.set(51, 1, SlotState.DONE, 77, t1=3)
    assert reader.take(LOST_TRACK_NS + 3)["fwd_owd_ns"].tolist() == [77]


def _slots(*rows: tuple[int, int, int, int]) -> np.ndarray[Any, Any]:
    """Of path, delay there, delay back, bound."""
    slots = np.zeros(len(rows), dtype=abi.SLOT)
    for slot, (path, there, back, bound) in zip(slots, rows, strict=True):
        slot["path"], slot["fwd_owd_ns"], slot["rev_owd_ns"], slot["bound_ns"] = path, there, back, bound
    return slots


def test_delays_are_told_by_path_and_only_by_clocks_that_agree() -> None:
    slots = _slots((3, 100, 50, 10), (3, 300, 60, 10), (4, 7, 9, 10), (4, 5, 5, abi.BOUND_UNSYNCED))
    delays, unsynced = path_delays(slots, 1_000)
    assert delays.path.tolist() == [3, 4]
    assert delays.owd_ns.tolist() == [200, 7]
    assert delays.least_ns.tolist() == [50, 7]
    assert unsynced == 1


def test_no_delays() -> None:
    delays, unsynced = path_delays(_slots(), 1_000)
    assert len(delays.path) == unsynced == 0
    assert len(Bases().queue_ns(delays, 5)) == 0


def _delays(path: int, owd: float, least: float) -> Delays:
    return Delays(np.array([path]), np.array([owd]), np.array([least]))


def test_a_path_that_is_full_from_its_beginning_is_seen_to_be() -> None:
    bases = Bases()
    assert bases.queue_ns(_delays(3, 9_000.0, 1_000.0), 1).tolist() == [8_000]
    assert bases.queue_ns(_delays(3, 4_000.0, 4_000.0), 2).tolist() == pytest.approx([3_000])
    bases.forget(np.array([3]))
    assert bases.queue_ns(_delays(3, 4_000.0, 4_000.0), 3).tolist() == [0]


def test_a_longer_way_is_learnt_in_time() -> None:
    bases = Bases()
    bases.queue_ns(_delays(3, 1_000.0, 1_000.0), 1)
    later = bases.queue_ns(_delays(3, 2_000.0, 2_000.0), 10**9 + 1)
    assert later.tolist() == pytest.approx([0])


def _table(rows: int = 64) -> np.ndarray[Any, Any]:
    return np.zeros(rows, dtype=abi.QP)


def test_queue_pairs_that_send_much_are_found_with_their_rates() -> None:
    table = _table()
    table["tag"][3], table["tag"][5], table["tag"][6] = 33, 55, 66
    reader = BusyReader(SimpleNamespace(qps={Direction.EGRESS: table}))
    reader.busy(0, LINK)
    table["bytes"][3], table["packets"][3] = 1_000_000, 1_000
    table["bytes"][5] = 1_000
    rows, rates = reader.busy(100 * MS, LINK)
    assert rows.tolist() == [3]
    assert rates.tolist() == [1_000_000 * 8 * 10]
    assert reader.busy(200 * MS, LINK)[0].tolist() == []


def test_a_place_that_another_queue_pair_has_taken_is_not_mixed_up() -> None:
    table = _table()
    table["tag"][3], table["bytes"][3] = 33, 10**9
    reader = BusyReader(SimpleNamespace(qps={Direction.EGRESS: table}))
    reader.busy(0, LINK)
    table["tag"][3], table["bytes"][3] = 34, 10**8
    assert reader.busy(100 * MS, LINK)[0].tolist() == []


def test_of_too_many_the_busiest_are_followed() -> None:
    table = _table(MOST_BUSY + 50)
    table["tag"] = np.arange(len(table)) + 2
    reader = BusyReader(SimpleNamespace(qps={Direction.EGRESS: table}))
    reader.busy(0, LINK)
    table["bytes"] = 10**6 + np.arange(len(table))
    assert sorted(reader.busy(100 * MS, LINK)[0].tolist()) == list(range(50, MOST_BUSY + 50))


def test_marks_are_of_the_destination_that_sends_them() -> None:
    table = _table()
    table["key"]["addr"][4] = address_words(ip_address("10.0.0.1"))
    reader = MarkReader(SimpleNamespace(qps={Direction.INGRESS: table}))
    where = np.array([address_words(ip_address(a)) for a in ("10.0.0.1", "10.0.0.2")])
    towards = where.astype(table["key"]["addr"].dtype)
    assert reader.marked(towards).tolist() == [False, False]
    table["cnps"][4] += 2
    reader.look()
    assert reader.marked(towards).tolist() == [True, False]
    reader.look()
    assert reader.marked(towards).tolist() == [False, False]


def test_the_message_that_changes_a_class() -> None:
    message = leaf.change_class(7, 0x4791_0101, 0x4791_0100, leaf.Limits(80_000, 50e6, 3, 9_018))
    length, kind, flags, _, _ = leaf.HEADER.unpack_from(message)
    assert (length, kind, flags) == (len(message), leaf.RTM_NEWTCLASS, leaf.NLM_F_REQUEST)
    _, ifindex, handle, parent, _ = leaf.TCMSG.unpack_from(message, leaf.HEADER.size)
    assert (ifindex, handle, parent) == (7, 0x4791_0101, 0x4791_0100)
    assert b"htb\0" in message
    ceiling = message.index(b"htb\0") + 4 + 4 + 4 + leaf.RATESPEC.size
    assert leaf.RATESPEC.unpack_from(message, ceiling)[-1] == 50_000_000 // 8


def test_rates_of_more_than_32_bits_have_their_own_attribute() -> None:
    message = leaf.change_class(1, 2, 3, leaf.Limits(80_000, 100e9, 0, 9_018))
    attribute = leaf.ATTRIBUTE.pack(12, leaf.TCA_HTB_CEIL64) + struct.pack("=Q", 100 * 10**9 // 8)
    assert attribute in message
    assert leaf.ATTRIBUTE.pack(12, leaf.TCA_HTB_RATE64) not in message


class Kernel:
    """Stands for the netlink socket; keeps the ceilings that were set, by class."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: list[tuple[int, float]] = []
        monkeypatch.setattr(leaf, "open_netlink", lambda: self)
        monkeypatch.setattr(leaf, "take_errors", lambda _: 0)
        monkeypatch.setattr(
            leaf, "change_class", lambda _ifindex, handle, _parent, limits: (handle, limits.ceiling_bps)
        )

    def send(self, message: tuple[int, float]) -> None:
        self.changes.append(message)

    def close(self) -> None:
        pass

    def taken(self) -> list[tuple[int, float]]:
        taken, self.changes = self.changes, []
        return taken


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def _tables(enforcer: Enforcer) -> Any:
    slices = np.zeros(abi.SLICES, dtype=abi.SLICE)
    slices["class_id"][1], slices["leaves"][1] = class_id(1), 64
    slices["qp_bps"][1], slices["ceiling_bps"][1] = 200e6, 500e6
    slices["class_id"][2], slices["ceiling_bps"][2] = class_id(2), 300e6
    slices["qp_pace_q18"][1] = pace_q18(200e6)
    pairs = _table()
    pairs["slice"][:4], pairs["slice"][4] = 1, 2
    pairs["priority"][:4] = class_id(1) + 1 + np.array([0, 1, 2, 2])
    pairs["priority"][4] = class_id(2)
    table = np.zeros(1, dtype=abi.SLICE_TABLE)
    table["enforcer"], table["link_bps"] = enforcer, LINK
    return SimpleNamespace(qps={Direction.EGRESS: pairs}, slices=slices, slice_table=table)


def _rows(*rows: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    return np.array(rows, dtype=np.intp)


def test_a_class_is_changed_when_its_rate_has_and_let_go_at_the_end(kernel: Kernel) -> None:
    pacer = Pacer(_tables(Enforcer.HTB), 1, 9_018)
    first = class_id(1) + 1
    pacer.hold(_rows(0, 1), np.array([50e6, np.inf]), 1)
    assert kernel.taken() == [(first, 50e6)]
    pacer.hold(_rows(0, 1), np.array([50.1e6, np.inf]), 2)
    assert kernel.taken() == []
    pacer.hold(_rows(0, 1), np.array([50.1e6, 20e6]), pacing.RENEW_NS + 3)
    assert kernel.taken() == [(first, 50.1e6), (first + 1, 20e6)]
    pacer.hold(_rows(1), np.array([np.inf]), pacing.RENEW_NS + 4)
    assert sorted(kernel.taken()) == [(first, 200e6), (first + 1, 200e6)]


def test_a_slice_stays_the_upper_bound(kernel: Kernel) -> None:
    pacer = Pacer(_tables(Enforcer.HTB), 1, 9_018)
    pacer.hold(_rows(0), np.array([900e6]), 1)
    assert kernel.taken() == [(class_id(1) + 1, 200e6)]
    assert pacer.ceilings_bps(_rows(0, 4, 5)).tolist() == [200e6, 300e6, LINK]


def test_queue_pairs_that_share_a_class_share_the_sum(kernel: Kernel) -> None:
    pacer = Pacer(_tables(Enforcer.HTB), 1, 9_018)
    pacer.hold(_rows(2, 3), np.array([10e6, 30e6]), 1)
    assert kernel.taken() == [(class_id(1) + 3, 40e6)]


def test_only_queue_pairs_with_classes_of_their_own_can_be_held(kernel: Kernel) -> None:
    del kernel
    assert Pacer(_tables(Enforcer.HTB), 1, 9_018).can_hold(_rows(0, 4, 5)).tolist() == [True, False, False]
    assert Pacer(_tables(Enforcer.EDT), 1, 9_018).can_hold(_rows(0, 4, 5)).tolist() == [True, True, True]


def test_departure_times_are_paced_in_the_map(kernel: Kernel) -> None:
    tables = _tables(Enforcer.EDT)
    paces = tables.qps[Direction.EGRESS]["pace_q18"]
    pacer = Pacer(tables, 1, 9_018)
    pacer.hold(_rows(0, 1, 4), np.array([50e6, 900e6, np.inf]), 1)
    assert paces[[0, 1, 4]].tolist() == [pace_q18(50e6), pace_q18(200e6), 0]
    pacer.release_all()
    assert paces[[0, 1, 4]].tolist() == [pace_q18(200e6), pace_q18(200e6), 0]
    assert kernel.taken() == []


def test_letting_go_covers_what_another_process_has_held(kernel: Kernel) -> None:
    Pacer(_tables(Enforcer.HTB), 1, 9_018).release_all()
    assert kernel.taken() == [(class_id(1) + 1 + i, 200e6) for i in range(64)]


HELD = Held("10.0.0.1", 17, 20e6, 12.3e6)


def test_an_episode_is_told_twice_however_often_it_flickers() -> None:
    episodes = Episodes(2e6)
    told = []
    for now in range(0, 10**9, 10 * MS):
        told += episodes.follow([HELD] if now // MS % 100 else [], now)
    for now in range(10**9, 10**9 + QUIET_NS + 100 * MS, 10 * MS):
        told += episodes.follow([], now)
    assert [one.kind for one in told] == ["incast_started", "incast_ended"]
    assert (
        told[0].detail
        == "packets to 10.0.0.1 wait 12.3 ms in the fabric, more than 2 ms: pacing 1 queue pair"
    )
    assert "down to 20mbit" in told[1].detail
    assert episodes.count == 1


def test_a_burst_is_no_episode() -> None:
    episodes = Episodes(2e6)
    told = episodes.follow([HELD], 0) + episodes.follow([HELD], LASTING_NS // 2)
    told += episodes.follow([], LASTING_NS + QUIET_NS)
    assert told == []


def test_queue_pairs_to_one_destination_are_one_episode() -> None:
    episodes = Episodes(2e6)
    both = [HELD, Held("10.0.0.1", 18, 30e6, 1e6)]
    episodes.follow(both, 0)
    (told,) = episodes.follow(both, LASTING_NS)
    assert told.detail.endswith("pacing 2 queue pairs")
