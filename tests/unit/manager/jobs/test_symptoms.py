"""What the last iterations of a job show, on jobs in arithmetic."""

import numpy as np
import pytest
from burst_fakes import flow_bursts

from manager.jobs.bounds import Iterations
from manager.jobs.flows import Flow
from manager.jobs.inference import Job, infer
from manager.jobs.kinds import Communicator
from manager.jobs.pauses import Pauses
from manager.jobs.steps import finish
from manager.jobs.symptoms import Symptoms, symptoms
from manager.jobs.windows import SHORT
from tools.sim.jobs.world import EPOCH_NS, World, ends_of, job, play

ENDS = ends_of([(f"h{i}", "nic0") for i in range(1, 7)])
SECONDS = 32


def played(collective: str, **settings: object) -> World:
    plan = job(ENDS, collective, list(ENDS), 300, jitter=0.01, buffer_bytes=10**8, **settings)
    return play([plan], ENDS, SECONDS)


def only(world: World, until_s: float = SECONDS - 1) -> Job:
    now_ns = EPOCH_NS + round(until_s * 1e9)
    (one,) = finish(infer(world.rings, world.owners, {}, now_ns)).jobs
    return one


def test_only_the_last_iterations_count() -> None:
    one = only(played("ring"))
    assert SHORT.length_ns > 3 * one.lately.lasted_ns.sum() > SHORT.length_ns // 2
    np.testing.assert_array_equal(one.lately.lasted_ns, np.diff(one.starts_ns)[-len(one.lately.lasted_ns) :])


@pytest.mark.parametrize("collective", ["ring", "all-to-all"])
def test_a_straggler_shows_lately(collective: str) -> None:
    late = only(played(collective, stragglers={"h3/nic0": 0.2})).lately.late
    assert [one.nic for one in late if one.is_straggler] == ["h3/nic0"]
    assert late[0].late_ns == pytest.approx(60e6, rel=0.2)


def test_packets_sent_again_are_counted_of_each_flow_by_whichever_end_tells_of_more() -> None:
    world = played("ring")
    for nic in (("h1", "nic0"), ("h2", "nic0")):
        rows = world.rings[nic]
        rows["resent"][rows["direction"] == (0 if nic[0] == "h1" else 1)] = 3
    lately = only(world).lately
    again = {flow: count for flow, count in lately.resent.items() if count}
    assert {flow.src for flow in again} | {flow.dst for flow in again} >= {"h1/nic0", "h2/nic0"}
    assert set(lately.sent) == set(lately.resent)
    assert all(count > 0 for count in lately.sent.values())


def test_a_flow_that_loses_one_in_a_hundred_loses_and_one_that_loses_hardly_any_does_not() -> None:
    flow = ("a", "b", 1)
    assert Symptoms(sent={flow: 1000}, resent={flow: 10}).loses  # type: ignore[dict-item]
    assert not Symptoms(sent={flow: 1000}, resent={flow: 1}).loses  # type: ignore[dict-item]
    assert not Symptoms().loses


@pytest.mark.parametrize("seed", range(5))
def test_nobody_pauses_in_a_job_that_is_well(seed: int) -> None:
    for collective in ("ring", "all-to-all"):
        plan = job(ENDS, collective, list(ENDS), 300, jitter=0.05, buffer_bytes=10**8, seed=seed)
        assert only(play([plan], ENDS, SECONDS, seed=seed)).lately.pauses is None


def paused(first: str, slow: tuple[int, ...], behind_ms: int = 40) -> Pauses | None:
    """Of two that send each other 200 ms long every 500 ms; in some iterations both pause for 80 ms, `first` before."""
    nics, starts_ms = ("a/nic0", "b/nic0"), [0]
    spans: dict[str, list[tuple[int, int]]] = {nic: [] for nic in nics}
    for i in range(30):
        at = starts_ms[-1]
        for nic in nics:
            pause = 100 + (0 if nic == first else behind_ms)
            both = [(at, at + pause), (at + pause + 80, at + 280)]
            spans[nic] += both if i in slow else [(at, at + 200)]
        starts_ms.append(at + (580 if i in slow else 500))
    flows = flow_bursts({Flow(nic, far, 7): spans[nic] for nic, far in (nics, nics[::-1])})
    starts_ns = np.array(starts_ms, np.int64) * 10**6
    now_ns = int(starts_ns[-1])
    iterations = Iterations(flows, starts_ns)
    return symptoms(iterations, [Communicator(nics, "pair")], latest_ns=now_ns, now_ns=now_ns).pauses


@pytest.mark.parametrize("nic", ["a/nic0", "b/nic0"])
def test_who_is_silent_first_when_iterations_take_longer_now_and_then(nic: str) -> None:
    found = paused(nic, (5, 11, 17))
    assert found == Pauses(nic, 80_000_000, 3, 30)


def test_nobody_is_named_where_all_fall_silent_at_once_or_it_happened_once() -> None:
    assert paused("a/nic0", (5, 11, 17), behind_ms=2) is None
    assert paused("a/nic0", (5,)) is None
    assert paused("a/nic0", tuple(range(5, 29))) is None
    assert paused("a/nic0", ()) is None
