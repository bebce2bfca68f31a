"""What is inferred of whole jobs: iterations, kinds, stragglers, whose they are."""

from collections import Counter

import numpy as np
import pytest

from manager.jobs.flows import Flow
from manager.jobs.inference import infer
from manager.jobs.membership import Owner, Owners
from manager.jobs.names import named
from manager.jobs.steps import finish
from manager.jobs.windows import LONG
from tools.sim.jobs.judging import (
    KINDS,
    NOW_NS,
    SLOW,
    inferred,
    judge,
    many_jobs,
    members_right,
    one_job,
    period_error,
)
from tools.sim.jobs.world import EPOCH_NS, ends_of, job, micro_batches, play


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_iterations_are_found_within_a_hundredth(seed: int, kind: str) -> None:
    world = one_job(seed, kind, is_late=False).world
    (found,) = inferred(world)
    assert period_error(world, found) < 0.01
    assert [each.kind for each in found.communicators] == [kind]
    assert not found.stragglers
    assert not found.changes


@pytest.mark.parametrize(("kind", "least"), [("ring", 16), ("all-to-all", 16), ("tree", 9), ("pipeline", 15)])
def test_who_computes_longer_is_found_and_nobody_else(kind: str, least: int) -> None:
    """But for whom nobody waits: who is late by less than the others take to send is hidden, as some are in trees."""
    verdicts = Counter(judge(seed, kind, is_late=True).straggler for seed in range(16))
    assert verdicts["wrong"] == 0
    assert verdicts["right"] >= least
    assert verdicts["missed"] <= 1


def test_a_change_of_the_period_is_found() -> None:
    ends = ends_of([(f"h{i}", "nic0") for i in range(1, 5)])
    names = list(ends)
    before = play([job(ends, "ring", names, 300, jitter=0.03, seed=1)], ends, 16)
    after = play([job(ends, "ring", names, 400, jitter=0.03, seed=1)], ends, 15)
    later_ns = 16 * 10**9
    rings = {}
    for nic, rows in before.rings.items():
        moved = after.rings[nic].copy()
        moved["start_ns"] += later_ns
        moved["end_ns"] += later_ns
        rings[nic] = np.concatenate([rows, moved])
    (found,) = finish(infer(rings, before.owners, {}, NOW_NS)).jobs
    (change,) = found.changes
    assert change.at_ns == pytest.approx(EPOCH_NS + later_ns, abs=1.5e9)
    assert change.after_ns - change.before_ns == pytest.approx(1e8, rel=0.2)


def test_processes_tell_jobs_apart_that_traffic_does_not() -> None:
    """Two that send at the same times over the same NICs."""
    ends = ends_of([(f"h{i}", "nic0") for i in range(1, 5)])
    plans = [job(ends, "ring", list(ends), 200, jitter=0.0, seed=seed) for seed in (1, 2)]
    world = play(plans, ends, 32)
    assert len(inferred(world)) == 1
    owners: dict[Flow, Owners] = {}
    for number, flows in enumerate(world.jobs):
        for src, dst, qpn in flows:
            sender, receiver = (
                Owner(nic.partition("/")[0], 100 + number, "slurm 7" if number else "") for nic in (src, dst)
            )
            owners[Flow(src, dst, qpn)] = sender, receiver
    found = finish(infer(world.rings, world.owners, owners, NOW_NS)).jobs
    assert sorted(sorted(map(tuple, one.flows)) for one in found) == sorted(map(sorted, world.jobs))
    assert {one.confidence for one in found} == {1.0}
    assert sorted(named(found)) == ["h1", "slurm 7"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_long_iterations_are_found_within_a_hundredth(seed: int, kind: str) -> None:
    """As large models have them: 4 to 42 s."""
    world = one_job(seed, kind, is_late=False, pace=SLOW).world
    (found,) = inferred(world, SLOW)
    assert found.window == LONG
    assert period_error(world, found) < 0.01
    assert not found.stragglers


@pytest.mark.parametrize("kind", ["ring", "all-to-all"])
def test_who_computes_longer_in_long_iterations_is_found(kind: str) -> None:
    verdicts = Counter(judge(seed, kind, is_late=True, pace=SLOW).straggler for seed in range(4))
    assert verdicts == {"right": 4}


def test_members_of_jobs_of_long_iterations_beside_what_sends_often() -> None:
    """More bursts in 300 s than are kept of a NIC: those of the jobs are not pushed out."""
    counts = [members_right(many_jobs(seed, "shared", "both", SLOW), SLOW) for seed in range(1, 4)]
    assert all(good == total for good, total in counts)


@pytest.mark.parametrize(
    ("batches", "compute_ms", "last_ms"), [(8, 500, 1500), (16, 300, 3000), (4, 1500, 2000)]
)
def test_micro_batches_are_no_iterations(batches: int, compute_ms: int, last_ms: int) -> None:
    """Stages send after each of them, data-parallel ranks after the last: the short ones are what the last 30 s show."""
    world = micro_batches(batches, compute_ms, last_ms, LONG.length_ns // 10**9 + 2)
    found = inferred(world, SLOW)
    assert sum(len(one.flows) for one in found) == len(world.jobs[0])
    for one in found:
        assert period_error(world, one) < 0.01


def test_a_job_of_long_iterations_that_has_ended_is_none() -> None:
    world = one_job(2, "ring", is_late=False, pace=SLOW).world
    (found,) = inferred(world, SLOW)
    assert found.period_ns is not None
    last_ns = max(int(rows["end_ns"].max()) for rows in world.rings.values())
    for periods, jobs in ((1.5, 1), (8.0, 0)):
        now_ns = last_ns + round(periods * found.period_ns)
        assert (
            len([one for one in finish(infer(world.rings, world.owners, {}, now_ns)).jobs if one.period_ns])
            == jobs
        )


def test_what_sends_seldom_is_no_job() -> None:
    ends = ends_of([("h1", "nic0"), ("h2", "nic0")])
    world = play([job(ends, "ring", list(ends), 6000)], ends, 20)
    assert inferred(world) == []
    assert finish(infer({}, {}, {}, NOW_NS)).jobs == []


def test_a_host_that_lies_joins_no_job() -> None:
    """It tells of bursts in step with others', from and to them, which they do not tell of."""
    ends = ends_of([(f"h{i}", "nic0") for i in range(1, 6)])
    names = list(ends)
    world = play([job(ends, "ring", names[:4], 300, jitter=0.03)], ends, 32)
    told = world.rings["h1", "nic0"].copy()
    (found,) = finish(infer(world.rings | {("h5", "nic0"): told}, world.owners, {}, NOW_NS)).jobs
    assert found.members == set(names[:4])
    only_sender = {nic: rows for nic, rows in world.rings.items() if nic != ("h2", "nic0")}
    (found,) = finish(infer(only_sender, world.owners, {}, NOW_NS)).jobs
    assert found.members == set(names[:4])
