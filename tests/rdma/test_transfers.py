"""Verbs programs across the fabric: untouched, with ports rewritten wrongly, and steered from path to path."""

import json
from typing import Any

import pytest

from tools.rdma.scenarios.transfers import PLAIN, STEERED

Report = dict[str, Any]

MOVES_BOTH_WAYS = 200
SPINES = 4


@pytest.fixture(params=PLAIN)
def plain(request: pytest.FixtureRequest, report: Report) -> Report:
    return scenario(report, f"plain: {request.param}")


@pytest.fixture(params=STEERED)
def steered(request: pytest.FixtureRequest, report: Report) -> Report:
    return scenario(report, f"steered: {request.param}")


def scenario(report: Report, name: str) -> Report:
    found: Report = report[name]
    assert "error" not in found, found["error"]
    return found


def assert_completed(run: Report) -> None:
    said = run["server_output"] + run["client_output"]
    assert (run["server_status"], run["client_status"]) == (0, 0), said


def assert_nothing_altered(run: Report) -> None:
    counts = run["counts"]
    assert counts["icrc_wrong"] == 0
    assert counts["icrc_right"] == counts["devices"]["rcvd_pkts"] > 0


def skip_for_its_timer(request: pytest.FixtureRequest) -> None:
    """ibv_rc_pingpong sends again after 67 ms, whatever it is told; the last of that may find its peer gone."""
    if "pingpong" in request.node.name:
        pytest.skip("ibv_rc_pingpong's timer, built in, runs out by itself on an emulated machine")


def test_a_program_completes(plain: Report) -> None:
    assert_completed(plain)
    assert_nothing_altered(plain)


def test_an_untouched_queue_pair_keeps_to_one_path_each_way(plain: Report) -> None:
    spines = sorted(plain["counts"]["spines"].values())
    assert sum(spines[-2:]) >= plain["counts"]["devices"]["sent_pkts"]
    assert max(spines[:-2]) < plain["counts"]["devices"]["sent_pkts"] // 20


def test_the_counter_of_wrong_icrcs_counts(report: Report) -> None:
    """A port rewritten without its ICRC makes every packet wrong, and none arrives."""
    control = scenario(report, "control: ports rewritten without the ICRC")["counts"]
    assert control["icrc_right"] == 0
    assert control["icrc_wrong"] == control["devices"]["sent_pkts"] > 0
    assert control["devices"]["rcvd_pkts"] == 0


def test_the_dataplane_is_attached_in_the_driver(report: Report) -> None:
    assert set(scenario(report, "dataplane").values()) == {"native"}


def test_a_steered_program_completes(steered: Report) -> None:
    assert_completed(steered)
    assert 2 * steered["moves"] >= MOVES_BOTH_WAYS


def test_steering_leaves_every_icrc_right(steered: Report) -> None:
    assert_nothing_altered(steered)


def test_steering_loses_nothing(steered: Report, request: pytest.FixtureRequest) -> None:
    skip_for_its_timer(request)
    devices = steered["counts"]["devices"]
    assert devices["rcvd_pkts"] == devices["sent_pkts"]


def test_steering_causes_no_nak(steered: Report) -> None:
    devices = steered["counts"]["devices"]
    assert devices["out_of_seq_request"] == devices["rcvd_seq_err"] == 0


def test_steering_causes_no_retransmission(steered: Report, request: pytest.FixtureRequest) -> None:
    skip_for_its_timer(request)
    devices = steered["counts"]["devices"]
    assert devices["completer_retry_err"] == devices["duplicate_request"] == 0


def test_steered_packets_really_take_every_path(steered: Report) -> None:
    spines = steered["counts"]["spines"]
    assert len(spines) == SPINES
    assert min(spines.values()) >= steered["counts"]["devices"]["sent_pkts"] // 20


@pytest.mark.parametrize("name", ["plain: pyverbs", "steered: pyverbs", "steered: pyverbs over IPv6"])
def test_every_byte_arrives_as_it_was_sent(name: str, report: Report) -> None:
    received = json.loads(scenario(report, name)["server_output"])
    assert received["intact"] == received["messages"] > 0
    assert received["in_order"]
