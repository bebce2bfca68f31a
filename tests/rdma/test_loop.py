"""Two jobs of real RDMA that collide, taken apart by the manager, which also takes them round a link that dies.

How near they come to the best depends on what else the emulated machine has to do: `python -m tools.rdma loop` prints it.
"""

from typing import Any

import pytest

from tools.rdma.scenarios.closed_loop import NEAR, QUEUE_PAIRS

Report = dict[str, Any]


@pytest.fixture(scope="module")
def loop(report: Report) -> Report:
    found: Report = report["loop"]
    if "error" in found:
        logs = [f"== {name}\n{text}" for name, text in found.get("logs", {}).items()]
        pytest.fail("\n".join([found["error"], *logs]))
    return found


def test_jobs_that_collide_are_taken_apart_and_none_pays_for_the_other(loop: Report) -> None:
    assert sum(loop["planned_bps"]) >= NEAR * sum(loop["ecmp_bps"])
    assert min(loop["planned_bps"]) >= NEAR * min(loop["ecmp_bps"])


def test_every_job_goes_on_while_a_link_is_dead(loop: Report) -> None:
    assert all(rate > 0 for rate in loop["cut_bps"])


def test_every_queue_pair_survives(loop: Report) -> None:
    assert all(loop["running"])
    for outcome in loop["outcomes"]:
        assert (outcome["server_status"], outcome["client_status"]) == (0, 0), outcome["client_output"]
    assert loop["counts"]["devices"]["retry_exceeded_err"] == 0
    assert loop["counts"]["icrc_wrong"] == 0


def test_the_manager_steers_every_queue_pair_and_has_a_way_round_ready(loop: Report) -> None:
    queue_pairs = QUEUE_PAIRS * len(loop["planned_bps"])
    assert loop["planner"]["steered"] >= queue_pairs
    assert loop["planner"]["backed_up"] >= queue_pairs


def test_the_dataplane_left_the_dead_link(loop: Report) -> None:
    assert "path_down" in {event["kind"] for event in loop["events"]}
