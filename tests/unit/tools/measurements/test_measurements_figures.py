"""Figures are found in a command's JSON, judged by their target and written for people."""

import math

import pytest

from cwdp.errors import CwdpError
from tools.measurements.catalogue import Row
from tools.measurements.figures import is_missed, measured, pick, target, values

EXPERIMENT = {
    "arms": [
        {"arm": "ecmp", "load": 0.6, "p99_ns": 40e6, "died": 3},
        {"arm": "cwdp", "load": 0.3, "p99_ns": 11e6, "died": 0},
        {"arm": "cwdp", "load": 0.6, "p99_ns": 12.34e6, "died": 0},
    ],
    "with": {"share": 0.9731, "rates_bps": [4.8e6, 4.9e6], "none": None, "word": "no", "flag": True},
}
BENCH = [
    {"name": "placement, equal rates: full plan", "value": 1.5},
    {"name": "placement, mixed rates: full plan", "value": 0.5},
    {"name": "fabric.8192_nics.routes", "value": 7, "reference": {"of": 14}},
]


@pytest.mark.parametrize(
    ("found", "path", "numbers"),
    [
        (EXPERIMENT, "with.share", [0.9731]),
        (EXPERIMENT, "with.rates_bps", [4.8e6, 4.9e6]),
        (EXPERIMENT, "with.none", [None]),
        (EXPERIMENT, "arms[arm=cwdp].p99_ns", [11e6, 12.34e6]),
        (EXPERIMENT, "arms[arm=cwdp&load=0.6].p99_ns", [12.34e6]),
        (EXPERIMENT, "arms[load=*].died", [3, 0, 0]),
        (EXPERIMENT, "arms[*].died", [3, 0, 0]),
        (BENCH, "[name=placement, *: full plan].value", [1.5, 0.5]),
        (BENCH, "[name=fabric.*.routes].reference.of", [14]),
        ({"steered: a": {"wrong": 0}, "steered: b": {"wrong": 2}}, "steered: *.wrong", [0, 2]),
    ],
)
def test_a_path_leads_to_numbers(found: object, path: str, numbers: list[float]) -> None:
    assert pick(found, path) == numbers


@pytest.mark.parametrize(
    "path",
    [
        "with.shared",
        "arms[arm=plb].p99_ns",
        "arms[arms=cwdp].p99_ns",
        "arms.p99_ns",
        "with[share=1]",
        "with.word",
        "with.flag",
        "with",
    ],
)
def test_a_path_that_leads_to_no_number_is_an_error(path: str) -> None:
    with pytest.raises(CwdpError, match="no figure"):
        pick(EXPERIMENT, path)


def test_what_one_of_several_lacks_is_an_error_too() -> None:
    with pytest.raises(CwdpError, match="no figure"):
        pick({"steered: a": {"wrong": 0}, "steered: b": {"error": "gone"}}, "steered: *.wrong")


def test_a_figure_may_be_a_share_of_another() -> None:
    row = Row("", "arms[arm=cwdp].p99_ns", over="arms[arm=ecmp].p99_ns", times=100)
    assert values(row, EXPERIMENT) == pytest.approx([27.5, 30.85])
    each = Row("", "arms[arm=cwdp].p99_ns", over="arms[arm=cwdp].p99_ns")
    assert values(each, EXPERIMENT) == [1, 1]
    for path in ("with.none", "arms[arm=ecmp].none", "arms[load=*].p99_ns", "arms[arm=cwdp].died"):
        with pytest.raises(CwdpError):
            values(Row("", "arms[arm=cwdp].p99_ns", over=path), EXPERIMENT)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Row("", "with.share", unit="%", times=100, digits=1), "97.3 %"),
        (Row("", "with.share", unit="%", times=100, digits=1, at_least=97), "97.3 %"),
        (Row("", "with.share", unit="%", times=100, digits=0, at_least=97.5), "**97 %**"),
        (Row("", "arms[arm=cwdp].p99_ns", unit="ms", times=1e-6, digits=1, at_most=15), "11.0 to 12.3 ms"),
        (Row("", "arms[arm=cwdp].p99_ns", unit="ms", times=1e-6, at_most=12.3), "**11 to 12 ms**"),
        (Row("", "arms[arm=cwdp].died", at_most=0), "0"),
        (Row("", "arms[load=*].died", at_most=0), "**0 to 3**"),
        (Row("", "with.rates_bps"), "4,800,000 to 4,900,000"),
        (Row("", "with.none", at_most=1), "-"),
    ],
)
def test_what_was_measured_is_bold_where_its_target_is_missed(row: Row, text: str) -> None:
    assert measured(row, EXPERIMENT) == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Row("", ""), ""),
        (Row("", "", unit="ms", at_most=15), "at most 15 ms"),
        (Row("", "", at_least=0.95), "at least 0.95"),
        (Row("", "", unit="ns", at_most=0), "0 ns"),
        (Row("", "", unit="W", at_least=2, at_most=20_000), "at most 20,000 W, at least 2 W"),
    ],
)
def test_a_target_says_which_way_is_better(row: Row, text: str) -> None:
    assert target(row) == text


def test_a_target_is_met_where_it_is_reached_exactly() -> None:
    row = Row("", "", at_least=1, at_most=2)
    assert not is_missed(row, [1, 2])
    assert is_missed(row, [1, math.nextafter(2, 3)])
    assert is_missed(row, [math.nextafter(1, 0), 2])
    assert is_missed(row, [math.inf])
