"""Managers of several pods name each fault once: what lies in one pod by its own manager, the rest by the root."""

import pytest
from pod_watches import PodWatch, PodWatches

from manager.pods.findings_messages import LAPSE_S
from tools.sim.faults.leafspine import Shape, Trouble
from tools.sim.fleet.window_clocks import WINDOW_S

SHAPE = Shape(leaves=2, spines=2, hosts_per_leaf=2, pods=3, cores=2, degree=6, pairs_per_s=300.0)
WARM, SOON = 45, 20


def started(events: list[str]) -> list[str]:
    return [event for event in events if "_over" not in event.partition(" ")[0]]


def told(fleet: PodWatches) -> dict[str, list[str]]:
    return {pod.name: started(pod.events) for pod in fleet.pods if pod.events}


def warm(seed: int) -> tuple[PodWatches, list[PodWatch]]:
    fleet = PodWatches(SHAPE, seed)
    fleet.run(WARM)
    assert told(fleet) == {}
    return fleet, fleet.pods


@pytest.mark.parametrize("seed", range(3))
def test_a_silent_link_between_a_spine_and_a_core_is_named_once_by_the_root_in_time(seed: int) -> None:
    fleet, pods = warm(seed)
    fleet.run(SOON, Trouble(loss=fleet.cable("p1s0", "c0")))
    assert told(fleet) == {"a": ["link_silent p1s0 - c0"]} or told(fleet) == {"a": ["link_silent c0 - p1s0"]}
    (finding,) = pods[0].findings
    for pod in pods[1:]:
        assert set(finding.subject.links) <= pod.watch.faults.dead_elsewhere
        assert not pod.findings
    fleet.run(50)
    assert not any(pod.findings for pod in pods)
    assert [len(pod.events) for pod in pods] == [2, 0, 0]
    assert not any(pod.watch.faults.dead_elsewhere for pod in pods)
