"""Two jobs whose queue pairs the verbs shim spreads as they are connected: they share the links evenly from the start."""

from typing import Any

import pytest

from tools.rdma.guest import SHIM_JOBS
from tools.rdma.scenarios.shim_jobs import BEST_BPS

Report = dict[str, Any]

NEAR = 0.9


@pytest.fixture
def jobs(report: Report) -> Report:
    found: Report = report[SHIM_JOBS]
    assert "error" not in found, found["error"]
    assert all(found["shim"]["running"])
    return found


def test_they_get_most_of_the_best(jobs: Report) -> None:
    assert sum(jobs["shim"]["bps"]) >= NEAR * BEST_BPS


def test_none_gets_more_than_the_other(jobs: Report) -> None:
    assert min(jobs["shim"]["bps"]) >= NEAR * BEST_BPS / 2


def test_all_links_carry_as_much(jobs: Report) -> None:
    packets = jobs["shim"]["spines"].values()
    assert min(packets) >= NEAR * sum(packets) / len(packets)
