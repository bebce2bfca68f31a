"""Which spine each port leads over, by what a leaf has sent to each spine."""

import pytest

from tools.lab.truth.spines import _told_apart

PORTS = (7, 8, 9)


def test_counters_that_come_out_even_tell_every_port_apart() -> None:
    assert _told_apart({"s1": 0b101, "s2": 0b010}, PORTS) == {7: "s1", 8: "s2", 9: "s1"}
    assert _told_apart({"s1": 0b111, "s2": 0}, PORTS) == dict.fromkeys(PORTS, "s1")


@pytest.mark.parametrize("units", [(5, 3), (6, 2), (4, 2), (0, 8), (13, 2), (7, 7)])
def test_what_others_sent_is_no_ports(units: tuple[int, int]) -> None:
    assert _told_apart(dict(zip(("s1", "s2"), units, strict=True)), PORTS) is None
