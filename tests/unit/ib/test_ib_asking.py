"""Many requests at once: what is lost is asked for again, what is refused is not, nothing but questions leaves."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from subnets import Node, Port, two_leaves

from cwdp.ib.asking import AT_ONCE, MOST_NUMBER, TRIES, Asker, FellSilentError
from cwdp.ib.attributes import Attribute, ask_name, ask_node, read_name
from cwdp.ib.umad import DATA_BYTES, MAD_BYTES, METHOD_GET, Answers, MadClass, Request


def test_answers_come_in_the_order_of_requests() -> None:
    port = Port(two_leaves()["h0"])
    asker = Asker(port)
    told = asker.ask([ask_name(path) for path in ((), (1,), (1, 3), (1, 4))])
    assert [read_name(data) for data in told if data is not None] == ["h0", "l0", "s0", "s1"]
    assert (asker.counters["asked"], asker.counters["answered"]) == (4, 4)


def test_what_is_lost_is_asked_for_again() -> None:
    asker = Asker(Port(two_leaves()["h0"], lost={1: True, 5: True}))
    told = asker.ask([ask_name(()) for _ in range(4)])
    assert [data is not None for data in told] == [True] * 4
    assert (asker.counters["asked"], asker.counters["timed_out"]) == (6, 2)


def test_what_never_answers_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker(Port(two_leaves()["h0"]))
    assert asker.ask([ask_node((1, 9)), ask_name(())])[0] is None
    assert asker.counters["timed_out"] == TRIES


def test_what_is_refused_is_not_asked_for_again() -> None:
    port = Port(two_leaves()["h0"])
    asker = Asker(port)
    unknown = Request(MadClass.SUBNET_DIRECT, Attribute.LINEAR_FORWARDING_TABLE, 0, ())
    assert asker.ask([unknown]) == [None]
    assert (len(port.asked), asker.counters["refused"]) == (1, 1)


@pytest.mark.parametrize("number", [0, 77, 1])
def test_an_answer_to_nothing_or_one_that_comes_twice_is_counted(number: int) -> None:
    port = Port(two_leaves()["h0"])
    port._answers.append((number, 0, bytes(DATA_BYTES)))
    asker = Asker(port)
    assert asker.ask([ask_name(()), ask_name((1,))])[1] is not None
    assert asker.counters["unexpected"] == 1


def test_only_some_of_what_is_ready_are_asked() -> None:
    port = Port(two_leaves()["h0"])
    asker = Asker(port)
    made = asker.prepare([ask_name(path) for path in ((), (1,), (1, 3), (1, 4))])
    told = asker.ask_again(made, places=np.array([1, 3]))
    assert told.came.tolist() == [False, True, False, True]
    assert [read_name(data) for data in told.each() if data is not None] == ["l0", "s1"]
    assert len(port.asked) == 2


def test_numbers_of_transactions_begin_anew_before_they_have_more_than_32_bits() -> None:
    asker = Asker(Port(two_leaves()["h0"]))
    asker._number = MOST_NUMBER - 1
    assert None not in asker.ask([ask_name(())] * 3)
    assert asker._number == 3


def test_no_more_are_under_way_than_switches_have_room_for() -> None:
    class Counting(Port):
        most = under_way = 0

        def send(self, made: Sequence[Request], places: NDArray[np.intp], number: int) -> None:
            self.under_way += len(places)
            self.most = max(self.most, self.under_way)
            super().send(made, places, number)

        def receive(self, least: int, most: int, timeout_ms: int) -> Answers:
            answers = super().receive(least, min(most, 7), timeout_ms)
            self.under_way -= len(answers.numbers)
            return answers

    port = Counting(two_leaves()["h0"])
    assert None not in Asker(port).ask([ask_name(())] * 500)
    assert port.most == AT_ONCE


@pytest.mark.parametrize("to", [(), (1, 2, 3), 17])
def test_all_that_leaves_asks(to: tuple[int, ...] | int) -> None:
    kind = MadClass.SUBNET_DIRECT if isinstance(to, tuple) else MadClass.PERFORMANCE
    packed = Request(kind, 0x11, 5, to, b"\x01\x02").packed()
    assert len(packed) == MAD_BYTES
    assert (packed[1], packed[3]) == (kind, METHOD_GET)
    assert (packed[16:18], packed[20:24], packed[64:66]) == (b"\x00\x11", b"\x00\x00\x00\x05", b"\x01\x02")
    if isinstance(to, tuple):
        assert (packed[7], packed[129 : 129 + len(to)]) == (len(to), bytes(to))


def test_a_node_of_that_kind_has_no_table() -> None:
    node = Node("h", 1, False, 1)
    assert node.answer(Request(MadClass.SUBNET_DIRECT, Attribute.SWITCH_INFO, 0, ()), 1) is None


def test_more_in_vain_than_are_borne_end_the_asking_and_the_next_begins_anew() -> None:
    asker = Asker(Port(two_leaves()["h0"]))
    asker.bear(4)
    with pytest.raises(FellSilentError, match="8 requests in vain"):
        asker.ask([ask_node((1, 9))] * 8 + [ask_name(())])
    asker.bear()
    assert asker.ask([ask_node((1, 9))] * 8 + [ask_name(())])[8] is not None
