"""`cwdp why`: what it asks and what it shows."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from cwdp.cli import main
from cwdp.cli.jobs import why
from tests.unit.cli.answering import Answering, answering

JOB = {"name": "slurm [bold]7", "iteration_ns": 574_000_000, "usual_ns": 428_000_000}
CAUSE: dict[str, Any] = {
    "number": 3,
    "kind": "nic",
    "subject": "h3/nic0",
    "rank": "h3/nic0",
    "jobs": ["slurm [bold]7"],
    "costs_ns": 146_000_000,
    "confidence": 0.654,
    "evidence": ["packets wait there for up to 27.7 ms", "an iteration takes 146.0 ms longer than it did"],
    "avoided": [],
    "acted": [],
    "start_s": 1_795_700_000.0,
    "end_s": None,
}
OVER = CAUSE | {
    "number": 2,
    "jobs": ["h1"],
    "kind": "link",
    "subject": "10.254.1.1 - 10.254.2.1",
    "end_s": 1_795_700_010.4,
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Answering]:
    return answering(monkeypatch, why)


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["why", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_cause_with_what_it_costs_and_what_speaks_for_it(client: type[Answering]) -> None:
    client.answer = {"jobs": [JOB], "causes": [CAUSE, OVER]}
    text = shown("slurm [bold]7")
    assert client.asked == [("/v1/causes", {"job": "slurm [bold]7"})]
    assert "slurm [bold]7: an iteration takes 574.0 ms, 428.0 ms at its best of late" in text
    first, over = text.split("over:")
    for each in ("nic", "h3/nic0", "146.0 ms", "65%", "3: packets wait there for up to 27.7 ms"):
        assert each in first
    assert "nothing is known" not in text
    assert "10.254.1.1 -" in over
    assert "10.4 s" in over
    assert max(len(line) for line in text.splitlines()) <= 80


def test_what_the_planner_does_about_it(client: type[Answering]) -> None:
    acted = {"job": "h1", "moved": 3, "before_ns": 612_000_000, "after_ns": None}
    client.answer = {"jobs": [], "causes": [CAUSE | {"avoided": ["l1 > s1"], "acted": [acted]}]}
    text = " ".join(shown().split())
    assert "3: the planner sends nothing over l1 > s1 where there are others" in text
    assert "3: the planner moved 3 queue pairs of h1: an iteration took 612.0 ms, and - since" in text


def test_jobs_that_are_well_or_new_and_none_at_all(client: type[Answering]) -> None:
    well = {"name": "a", "iteration_ns": 430_000_000, "usual_ns": 429_000_000}
    new = {"name": "b", "iteration_ns": None, "usual_ns": None}
    client.answer = {"jobs": [well, new], "causes": []}
    text = " ".join(shown().split())
    assert "a: an iteration takes 430.0 ms; nothing is known that makes it slower" in text
    assert "b: too few iterations yet to say" in text
    client.answer = {"jobs": [], "causes": []}
    assert "no job sends in bursts" in shown()


def test_json_is_what_the_manager_says(client: type[Answering]) -> None:
    client.answer = {"jobs": [JOB], "causes": [CAUSE]}
    assert json.loads(shown("--json")) == client.answer
