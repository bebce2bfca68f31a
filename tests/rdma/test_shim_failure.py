"""A queue pair that no dataplane moves fails with its path; what is connected anew by the verbs shim takes paths that live."""

from typing import Any

import pytest

from tools.rdma.guest import SHIM_FAILURE

Report = dict[str, Any]


@pytest.fixture
def failed(report: Report) -> Report:
    found: Report = report[SHIM_FAILURE]
    assert "error" not in found, found["error"]
    return found


def test_nothing_moves_it_and_it_fails(failed: Report) -> None:
    assert failed["failed"]["client_status"] == 1
    assert "retry exceeded" in failed["failed"]["client_output"]


def test_queue_pairs_that_are_made_anew_take_no_dead_path(failed: Report) -> None:
    assert (failed["server_status"], failed["client_status"]) == (0, 0), failed["client_output"]
    spines = failed["counts"]["spines"]
    assert spines[failed["dead"]] <= failed["counts"]["devices"]["sent_pkts"] // 20
