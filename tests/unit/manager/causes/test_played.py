"""Causes of jobs in arithmetic, from when their trouble begins to when it is told."""

from dataclasses import replace

import pytest

from tools.sim.causes.drawn import Drawn, Kind
from tools.sim.causes.judging import WELL, judged
from tools.sim.causes.manager import LOOK_S, Manager, Told

SHOWN_TWICE_S = 27.0
"""Of what stands still for 50 ms every 2 s, half of which is while nothing is sent, and some within what is too short to tell."""


def told(drawn: Drawn, *, plugged: bool) -> list[Told]:
    return Manager(drawn, plugged=plugged).run(3.0 + drawn.seed * LOOK_S / 3)


@pytest.mark.parametrize("plugged", [False, True])
@pytest.mark.parametrize("kind", ["compute", "nic", "rival"])
def test_what_is_in_all_iterations_is_told_within_ten_seconds(kind: Kind, *, plugged: bool) -> None:
    for seed in range(3):
        drawn = Drawn(kind=kind, seed=seed, ends_s=47.0)
        assert judged(drawn, told(drawn, plugged=plugged))[0] == "right"


@pytest.mark.parametrize("plugged", [False, True])
def test_who_stands_still_is_told_once_iterations_have_shown_it_twice(*, plugged: bool) -> None:
    for seed in range(4):
        outcome, after_s = judged(drawn := Drawn(kind="stall", seed=seed), told(drawn, plugged=plugged))
        assert outcome in ("right", "late")
        assert after_s is not None
        assert after_s < SHOWN_TWICE_S


@pytest.mark.parametrize("plugged", [False, True])
@pytest.mark.parametrize("name", [name for name in WELL if "slow" not in name])
def test_no_cause_is_told_of_jobs_that_are_well(name: str, *, plugged: bool) -> None:
    """Also where several iterations may be taken for one for a while, as every few another one is longer."""
    assert told(replace(WELL[name], seed=1), plugged=plugged) == []
