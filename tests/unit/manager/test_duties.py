"""Processor time is counted by duty, also where a duty fails."""

import time

import msgspec
import pytest
from bus_fakes import authority

from cwdp.shared.bus.messages import Event, encode
from cwdp.shared.bus.packing import packed
from cwdp.shared.bus.sealing import NotTheirsError
from cwdp.shared.bus.subjects import up
from manager.duties import UNPACK, CountedSeal, Duties

EVENT = Event(host="a", boot_id="b", local_ns=1, kind="link_up", nic="nic0", detail="")


def _fails() -> int:
    _work()
    raise KeyError


def _work() -> int:
    end_s = time.thread_time() + 0.01
    while time.thread_time() < end_s:
        pass
    return 7


def test_work_counts_as_a_duty_and_so_does_what_fails() -> None:
    duties = Duties()
    assert duties.timed("plan", _work) == 7
    with pytest.raises(KeyError):
        duties.timed("join", _fails)
    assert duties.seconds["plan"] >= 0.01
    assert duties.seconds["join"] >= 0.01


@pytest.mark.parametrize(("waits_s", "room"), [(0.0, 0.2), (0.5, 0.2), (1.0, 0.1), (2.0, 0.05), (60.0, 0.05)])
def test_loops_take_less_where_what_arrives_waits_but_never_nothing(waits_s: float, room: float) -> None:
    duties = Duties()
    duties.waits_s = lambda: waits_s
    assert duties.room(0.2) == pytest.approx(room)


@pytest.mark.parametrize(
    ("subject", "data", "error"),
    [
        (up("main", "a", "event"), packed(encode(EVENT)), None),
        (up("main", "b", "event"), packed(encode(EVENT)), NotTheirsError),
        (up("main", "a", "event"), b"what", msgspec.DecodeError),
    ],
)
def test_messages_are_made_out_as_by_every_leader_and_that_is_counted(
    subject: str, data: bytes, error: type[Exception] | None
) -> None:
    duties = Duties()
    seal = CountedSeal(authority().control_key, duties)
    if error is None:
        assert seal.decode(subject, Event, data) == EVENT
    else:
        with pytest.raises(error):
            seal.decode(subject, Event, data)
    assert duties.seconds[UNPACK] > 0.0
