"""A transfer of Soft-RoCE in slices that fq enforces: no faster than allowed, and none the wiser."""

from typing import Any

import pytest

from cwdp.shared.rates import parse_rate
from tools.rdma.scenarios.slices import RATES

WITHIN = 1.01
NOT_FOR_SLICES = ("out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err")


@pytest.fixture
def sliced(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = report["slices"]
    assert "error" not in found, found["error"]
    return found


def test_departure_times_are_in_use(sliced: dict[str, Any]) -> None:
    assert sliced["enforcer"] == "edt"


@pytest.mark.parametrize("rate", RATES)
def test_a_rate_is_not_exceeded(sliced: dict[str, Any], rate: str) -> None:
    """However slow the emulated machine is."""
    assert 0 < sliced["rates_bps"][rate] <= WITHIN * parse_rate(rate)


def test_what_the_idle_slice_leaves_is_lent(sliced: dict[str, Any]) -> None:
    assert sliced["rates_bps"][RATES[-1]] < sliced["lent_bps"] <= WITHIN * sliced["link_bps"]


def test_the_transfer_completes(sliced: dict[str, Any]) -> None:
    assert sliced["running"]
    said = sliced["server_output"] + sliced["client_output"]
    assert (sliced["server_status"], sliced["client_status"]) == (0, 0), said


def test_no_packet_was_lost_or_overtaken(sliced: dict[str, Any]) -> None:
    counts = sliced["counts"]
    assert counts["icrc_wrong"] == 0
    assert {name: counts["devices"][name] for name in NOT_FOR_SLICES} == dict.fromkeys(NOT_FOR_SLICES, 0)
