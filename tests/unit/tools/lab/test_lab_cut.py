"""Which fault `cwdp lab cut` makes of its options; what it does to a lab: tests/lab/network/test_lab_faults.py."""

from typing import Any

import pytest
from click.testing import CliRunner, Result

from tools.lab import faults
from tools.lab.state import LinkFault, TosChange
from tools.lab.status import _direction_state
from tools.lab_cli import lab as lab_group

MADE = ("cut", "drop", "slow", "narrow", "remark")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The faults that were made, in place of making them."""
    found: list[tuple[Any, ...]] = []

    def note(kind: str) -> None:
        monkeypatch.setattr(faults, kind, lambda *what: found.append((kind, *what)))

    for kind in MADE:
        note(kind)
    return found


def cut(*options: str) -> Result:
    return CliRunner().invoke(lab_group, ["cut", "--name", "n", "l1-s2", *options])


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ([], ("cut", "n", "l1-s2", 0.05)),
        (["--silent"], ("drop", "n", "l1-s2", 1.0, "both")),
        (["--loss", "2%", "--direction", "l1>s2"], ("drop", "n", "l1-s2", 0.02, "l1>s2")),
        (["--loss", "0"], ("drop", "n", "l1-s2", 0.0, "both")),
        (["--rate", "3mbit"], ("slow", "n", "l1-s2", 3_000_000, "both")),
        (["--mtu", "1500"], ("narrow", "n", "l1-s2", 1500)),
        (["--dscp", "0"], ("remark", "n", "l1-s2", 0, None, "both")),
        (["--ecn", "0", "--direction", "s2>l1"], ("remark", "n", "l1-s2", None, 0, "s2>l1")),
        (["--dscp", "46", "--ecn", "1"], ("remark", "n", "l1-s2", 46, 1, "both")),
    ],
    ids=lambda value: " ".join(value) or "none" if isinstance(value, list) else value[0],
)
def test_each_option_makes_its_fault(
    made: list[tuple[Any, ...]], options: list[str], fault: tuple[Any, ...]
) -> None:
    result = cut(*options)
    assert result.exit_code == 0, result.output
    assert made == [fault]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--silent", "--mtu", "1500"], "exclude each other"),
        (["--loss", "1%", "--dscp", "0"], "exclude each other"),
        (["--rate", "1mbit", "--ecn", "0"], "exclude each other"),
        (["--direction", "l1>s2"], "lost both ways"),
        (["--mtu", "1500", "--direction", "l1>s2"], "lost both ways"),
        (["--dscp", "64"], "not in the range"),
        (["--ecn", "4"], "not in the range"),
        (["--mtu", "much"], "not a valid integer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused(made: list[tuple[Any, ...]], options: list[str], why: str) -> None:
    result = cut(*options)
    assert result.exit_code == 2
    assert why in result.output
    assert made == []


def test_a_direction_says_what_is_wrong_with_it() -> None:
    fault = LinkFault(mtu=1_500, loss={"l1>s2": 0.1}, tos={"l1>s2": TosChange(mask=0xFC)})
    assert _direction_state(fault, "l1>s2") == "loss+mtu+tos"
    assert _direction_state(fault, "s2>l1") == "mtu"
    assert _direction_state(LinkFault(), "l1>s2") == "up"
