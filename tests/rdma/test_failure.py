"""Three runs of a transfer: what a silent cut does to a queue pair without cwdp, and with it.

And what it does to a queue pair that had nothing left to send: whatever its timer, once it is told to go back.
"""

import json
from statistics import median
from typing import Any

import pytest

Report = dict[str, Any]

LATER = "goes back, receiver later"
TOLD = [("19", "goes back"), ("21", "goes back"), ("21", LATER)]


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


@pytest.mark.parametrize(("timer", "arm"), [("19", "waits"), ("21", "waits"), *TOLD])
def test_after_every_cut_all_arrives(report: Report, timer: str, arm: str) -> None:
    found = run(report, f"tail loss, timer {timer}")[arm]
    received = found["received"]
    assert found["client_status"] == 0, found["client_output"]
    assert (received["intact"], received["in_order"]) == (received["messages"], True)
    assert len(found["cuts"]) > 0
    assert all(cut["stall_ns"] > 0 for cut in found["cuts"])


@pytest.mark.parametrize(("timer", "arm"), TOLD)
def test_who_is_told_goes_back(report: Report, timer: str, arm: str) -> None:
    """Once or twice for each cut, but where the far end has told it; that one acknowledges again. Nobody else is told."""
    found = run(report, f"tail loss, timer {timer}")
    here, there = found[arm]["dataplane"]
    told, cuts = found[arm]["told"], found[arm]["cuts"]
    stalls_ns = [cut["stall_ns"] for cut in cuts]
    given = here.get("go_back_given", 0)
    assert given <= 2 * len(cuts), (told, stalls_ns)
    assert given + told["go_backs_retrying"] >= len(cuts), (told, stalls_ns)
    assert there["go_back_given"] > 0
    assert not any("go_back_given" in counted for counted in found["waits"]["dataplane"])


@pytest.mark.parametrize("arm", ["goes back", LATER])
def test_a_long_timer_does_not_matter_to_who_is_told(report: Report, arm: str) -> None:
    """Who waits for a timer of 8.6 s stands still for longer than any other thing takes here."""
    found = run(report, "tail loss, timer 21")
    waits, told = (median(cut["stall_ns"] for cut in found[name]["cuts"]) for name in ("waits", arm))
    assert told < waits
