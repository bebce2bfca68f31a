"""Counters of ports: what they say, by how much they grow, those that began anew, and those that stand at their most."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.ib.counters import (
    LARGE,
    SMALL,
    SMALL_MOST,
    Reading,
    Told,
    ask_class,
    ask_counters,
    counts_wide,
    growth,
    reading,
)
from cwdp.ib.umad import DATA_AT, MadClass
from cwdp.shared.ib.counters import DATA, NAMES


def told(**values: int) -> tuple[bytes, bytes]:
    """Both answers of a port whose device counts data alone with 64 bits."""
    small, large = np.zeros(1, SMALL), np.zeros(1, LARGE)
    for name, value in values.items():
        (large if name in DATA else small)[name] = value
    return small.tobytes(), large.tobytes()


def read(
    answers: tuple[bytes | None, ...], at_s: float = 1.0, wide: NDArray[np.bool_] | None = None
) -> Reading:
    """Of two answers for each port."""
    all_ = Told(len(answers) // 2)
    for place, data in enumerate(answers):
        if data is not None:
            all_.take(np.array([place]), np.frombuffer(data, np.uint8), np.array([True]))
    return reading(all_, at_s, np.zeros(len(answers) // 2, bool) if wide is None else wide)


def grown(before: dict[str, int], after: dict[str, int], took_s: float = 2.0) -> dict[str, float]:
    found = growth(read(told(**before), 10.0), read(told(**after), 10.0 + took_s))
    return dict(zip(NAMES, found.per_s[0].tolist(), strict=True))


def test_both_attributes_of_a_port_are_asked_for_where_not_all_is_in_one() -> None:
    requests, places = ask_counters([(0, 17, 5, False), (3, 18, 6, True)])
    assert [(one.kind, one.attribute, one.to) for one in requests] == [
        (MadClass.PERFORMANCE, 0x1D, 17),
        (MadClass.PERFORMANCE, 0x12, 17),
        (MadClass.PERFORMANCE, 0x1D, 18),
    ]
    assert places.tolist() == [1, 0, 7]
    assert requests[0].packed()[DATA_AT : DATA_AT + 2] == b"\x00\x05"


def test_they_are_where_the_specification_has_them() -> None:
    data = bytearray(192)
    data[4:6], data[7], data[8:10], data[40:44] = b"\x01\x02", 9, b"\x00\x03", b"\x00\x00\x01\x00"
    large = bytearray(192)
    large[8:16] = (1 << 40).to_bytes(8)
    values = dict(zip(NAMES, read((bytes(data), bytes(large))).values[0].tolist(), strict=True))
    assert (values["symbol_errors"], values["link_downed"], values["receive_errors"]) == (0x102, 9, 3)
    assert (values["send_wait"], values["sent_words"]) == (256, 1 << 40)


def test_those_of_64_bits_are_where_the_specification_has_them() -> None:
    words = {1: 10, 9: 11, 10: 12, 11: 13, 12: 14, 13: 15, 14: 16, 15: 17, 20: 18, 21: 19}
    large = b"".join((words.get(at, 0)).to_bytes(8) for at in range(24))
    found = read((None, large), wide=np.array([True]))
    values = dict(zip(NAMES, found.values[0].tolist(), strict=True))
    assert found.known.all()
    assert {name: value for name, value in values.items() if value} == {
        "sent_words": 10, "symbol_errors": 11, "link_recoveries": 12, "link_downed": 13, "receive_errors": 14,
        "remote_physical_errors": 15, "relay_errors": 16, "send_discards": 17, "vl15_dropped": 18, "send_wait": 19,
    }  # fmt: skip


def test_growth_is_by_the_second() -> None:
    assert grown({"sent_words": 100}, {"sent_words": 1_100})["sent_words"] == 500.0


def test_one_that_is_smaller_has_begun_anew() -> None:
    assert grown({"symbol_errors": 900}, {"symbol_errors": 10})["symbol_errors"] == 5.0


@pytest.mark.parametrize("name", SMALL.names or ())
def test_one_that_stands_at_its_most_tells_nothing(name: str) -> None:
    most = int(SMALL_MOST[NAMES.index(name)])
    found = growth(read(told(**{name: most - 1}), 0.0), read(told(**{name: most}), 1.0))
    assert np.isnan(found.per_s[0, NAMES.index(name)])
    assert found.stuck[0].tolist() == [each == name for each in NAMES]


def test_one_that_stood_at_its_most_and_was_cleared_begins_anew() -> None:
    assert grown({"symbol_errors": 0xFFFF}, {"symbol_errors": 8})["symbol_errors"] == 4.0


def wide_told(wait: int, small_wait: int = 0xFFFFFFFF) -> tuple[bytes, bytes]:
    small, large = told(send_wait=small_wait, sent_words=7)
    return small, large[:168] + wait.to_bytes(8) + large[176:]


@pytest.mark.parametrize("wait", [1 << 32, (1 << 50) + 3])
def test_waiting_with_64_bits_goes_on_where_the_device_says_that_it_has_it(wait: int) -> None:
    place = NAMES.index("send_wait")
    two = [[*wide_told(wait), *wide_told(wait)], [*wide_told(wait + 100), *wide_told(wait + 100)]]
    before, after = (read(tuple(one), at_s, np.array([True, False])) for at_s, one in enumerate(two))
    found = growth(before, after)
    assert found.per_s[0, place] == 100.0
    assert np.isnan(found.per_s[1, place])
    assert found.stuck[:, place].tolist() == [False, True]


def test_errors_and_waiting_are_not_known_while_their_width_changes() -> None:
    before = read(wide_told(1 << 40, 5), 0.0, np.array([False]))
    after = read(wide_told(1 << 40, 6), 1.0, np.array([True]))
    assert np.isnan(growth(before, after).per_s[0, NAMES.index("send_wait")])
    assert np.isnan(growth(before, after).per_s[0, NAMES.index("symbol_errors")])
    assert growth(before, after).per_s[0, NAMES.index("sent_words")] == 0.0


@pytest.mark.parametrize(
    ("data", "is_wide"),
    [
        (bytes(4) + (1 << 6).to_bytes(4), True),
        (bytes(4) + (0xFFFFFFFF & ~(1 << 6)).to_bytes(4), False),
        (b"\xff" * 4 + (0x1F).to_bytes(4), False),
        (None, False),
    ],
)
def test_devices_say_whether_they_count_all_with_64_bits(data: bytes | None, is_wide: bool) -> None:
    assert counts_wide(data) == is_wide
    assert ask_class(17).attribute == 0x01


def test_what_is_not_told_is_not_known() -> None:
    before, after = read(told(link_downed=1), 0.0), read((None, told(sent_words=5)[1]), 1.0)
    found = growth(before, after)
    assert np.isnan(found.per_s[0, NAMES.index("link_downed")])
    assert found.per_s[0, NAMES.index("sent_words")] == 5.0
    assert not found.stuck.any()


def test_many_ports_and_none() -> None:
    found = read(tuple(one for i in range(5) for one in told(link_downed=i, sent_packets=i)))
    assert found.values[:, NAMES.index("link_downed")].tolist() == list(range(5))
    assert found.known.all()
    assert read(()).values.shape == (0, len(NAMES))
