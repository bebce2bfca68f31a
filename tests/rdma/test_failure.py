"""The story of a failure in three runs: what a silent cut does to a queue pair without cwdp, and with it."""

import json
from typing import Any

Report = dict[str, Any]


def run(report: Report, name: str) -> Report:
    found: Report = report[f"failure: {name}"]
    assert "error" not in found, found["error"]
    return found


def test_without_a_failure_the_transfer_completes(report: Report) -> None:
    received = json.loads(run(report, "none")["server_output"])
    assert received["intact"] == received["messages"]


def test_without_cwdp_the_queue_pair_dies(report: Report) -> None:
    dead = run(report, "silent, without cwdp")
    assert dead["client_status"] == 1
    assert "retry exceeded" in json.loads(dead["client_output"])["failed"]
    assert dead["counts"]["devices"]["retry_exceeded_err"] == 1


def test_with_cwdp_the_transfer_goes_on(report: Report) -> None:
    alive = run(report, "silent, with cwdp")
    assert (alive["server_status"], alive["client_status"]) == (0, 0), alive["client_output"]
    received = json.loads(alive["server_output"])
    assert received["intact"] == received["messages"]
    assert alive["counts"]["devices"]["retry_exceeded_err"] == 0


def test_it_went_on_by_its_backup(report: Report) -> None:
    alive = run(report, "silent, with cwdp")
    assert alive["dataplane"]["r1"]["path_went_down"] >= 1
    assert alive["cut"] == f"l1-{alive['primary']['there']}"
