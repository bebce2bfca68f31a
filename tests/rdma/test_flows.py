"""Flows of an audit by perftest: each on the path that was asked for, measured, and steered no longer than it lasts."""

from typing import Any

import pytest

from tools.rdma.guest import FLOWS
from tools.rdma.scenarios.audits.flows import CAP_BPS, LASTS_S, LIMITS

MOSTLY = 0.9
"""Of the packets: the first ones leave before it is known what is to be steered."""


@pytest.fixture(scope="module")
def rounds(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report[FLOWS]["rounds"]
    return found


def test_a_flow_takes_the_path_of_its_port(rounds: list[dict[str, Any]]) -> None:
    assert len({one["spine"] for one in rounds}) == 2
    for one in rounds:
        packets = one["packets_by_spine"]
        assert packets[one["spine"]] >= MOSTLY * sum(packets.values())


def test_what_it_carried_is_told_by_the_sender(rounds: list[dict[str, Any]]) -> None:
    for one in rounds:
        sent, received = one["told"]
        assert (sent["trouble"], received["trouble"]) == ("", "")
        assert sent["took_s"] == LASTS_S - 2 * LIMITS.margin_s
        assert sent["carried_bytes"] > 0


def test_nothing_is_steered_afterwards_and_no_packet_was_refused(rounds: list[dict[str, Any]]) -> None:
    for one in rounds:
        assert (one["left_steered"], one["left_enforcer"]) == (0, 0)
        assert one["counts"]["icrc_wrong"] == 0


def test_a_cap_is_held(rounds: list[dict[str, Any]]) -> None:
    capped, *others = [8 * one["told"][0]["carried_bytes"] / one["told"][0]["took_s"] for one in rounds]
    assert 0 < capped < 1.05 * CAP_BPS
    assert max(others) > capped
