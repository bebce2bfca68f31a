"""Queue pairs that no dataplane moves, by the verbs shim: nothing of what they send meanwhile gets lost."""

from typing import Any

import pytest

from tools.rdma.scenarios.drained import DRAINED

Report = dict[str, Any]

LEAST_MOVES = 3


@pytest.fixture(params=DRAINED)
def moved(request: pytest.FixtureRequest, report: Report) -> Report:
    found: Report = report[f"shim: moves of {request.param}"]
    assert "error" not in found, found["error"]
    return found


def test_moves_under_traffic_lose_nothing(moved: Report) -> None:
    """Timers of rdma_rxe run out now and then on an emulated machine, so that something may be sent twice.

    It also drops what arrives while `ibv_modify_qp` replaces an address vector, or for a queue pair that is gone.
    """
    assert (moved["server_status"], moved["client_status"]) == (0, 0), moved["client_output"]
    assert moved["moves"] >= LEAST_MOVES, moved["errors"]
    devices, dropped = moved["counts"]["devices"], moved["counts"]["rxe_dropped"]
    assert devices["rcvd_pkts"] + dropped == devices["sent_pkts"]
    assert dropped <= devices["sent_pkts"] // 100
    assert moved["counts"]["icrc_wrong"] == 0
    assert max(devices["out_of_seq_request"], devices["rcvd_seq_err"]) <= dropped
    assert devices["retry_exceeded_err"] == 0


def test_what_is_moved_takes_other_spines(moved: Report) -> None:
    spines = moved["counts"]["spines"]
    assert sum(packets > moved["counts"]["devices"]["sent_pkts"] // 20 for packets in spines.values()) > 2
