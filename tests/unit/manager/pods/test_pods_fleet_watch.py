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


def warm(seed: int, *, related: bool = False) -> tuple[PodWatches, list[PodWatch]]:
    fleet = PodWatches(SHAPE, seed, related=related)
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


@pytest.mark.parametrize("later", range(3))
def test_a_link_that_dies_while_evidence_is_on_its_way_is_silent_and_not_lossy_first(later: int) -> None:
    fleet, _ = warm(30)
    fleet.run(later)
    died = fleet.cable("p1s0", "c0")
    fleet.run(1, Trouble(loss=dict.fromkeys(died, 0.5)))
    fleet.run(SOON, Trouble(loss=died))
    assert [event.partition(" ")[0] for event in told(fleet)["a"]] == ["link_silent"]


@pytest.mark.parametrize("seed", range(3))
def test_a_silent_link_inside_a_pod_is_named_by_that_pod_alone(seed: int) -> None:
    fleet, pods = warm(10 + seed)
    fleet.run(50, Trouble(loss=fleet.cable("l2", "p1s0")))
    assert list(told(fleet)) == ["b"]
    (event,) = told(fleet)["b"]
    assert event.startswith("link_silent")
    (finding,) = pods[1].findings
    assert {"l2", "p1s0"} in [set(link) for each in (finding.subject, *finding.also) for link in each.links]
    assert set(finding.subject.links) <= pods[0].watch.faults.dead_elsewhere
    fleet.run(50)
    assert [len(pod.events) for pod in pods] == [0, 2, 0]


def test_two_faults_one_inside_a_pod_and_one_between_are_two_findings() -> None:
    fleet, pods = warm(21)
    first = fleet.cable("p0s1", "c1")
    fleet.run(SOON, Trouble(loss=first))
    fleet.run(SOON, Trouble(loss=first | fleet.cable("h4/nic0", "l2")))
    assert {name: len(events) for name, events in told(fleet).items()} == {"a": 1, "b": 1}
    assert "h4/nic0" in told(fleet)["b"][0]
    assert {"p0s1", "c1"} == set(pods[0].findings[0].subject.links[0])


def test_a_lossy_link_between_a_spine_and_a_core_is_named_once() -> None:
    fleet, pods = warm(22, related=True)
    lossy = dict.fromkeys(fleet.cable("p2s1", "c0"), 0.05)
    fleet.run(60, Trouble(loss=lossy))
    assert {name: len(events) for name, events in told(fleet).items()} == {"a": 1}
    assert pods[0].findings[0].kind == "lossy"
    assert {"p2s1", "c0"} == set(pods[0].findings[0].subject.links[0])
    assert not pods[1].watch.faults.dead_elsewhere


def test_losses_everywhere_and_full_queues_between_pods_blame_nobody() -> None:
    fleet, _ = warm(23, related=True)
    full = set(list(fleet.cable("p0s0", "c0"))[:1])
    fleet.run(100, Trouble(everywhere=0.02, saturated=full))
    assert told(fleet) == {}


def test_another_root_goes_on_with_what_the_first_has_found() -> None:
    fleet, pods = warm(24)
    trouble = Trouble(loss=fleet.cable("p1s0", "c0"))
    fleet.run(SOON, trouble)
    pods[0].is_up = False
    fleet.run(round(LAPSE_S / WINDOW_S) + 40, trouble)
    assert {name: len(events) for name, events in told(fleet).items()} == {"a": 1, "b": 1}
    pods[0].is_up = True
    fleet.run(30, trouble)
    assert [len(pod.findings) for pod in pods] == [1, 0, 0]
    fleet.run(50)
    assert [len(pod.findings) for pod in pods] == [0, 0, 0]


def test_while_the_root_tells_nothing_each_pod_decides_alone_and_then_the_root_goes_on() -> None:
    fleet, pods = warm(25)
    fleet.loses = lambda subject, pod: subject.endswith("a.findings") and pod != "a"
    fleet.run(round(LAPSE_S / WINDOW_S) + 5)
    trouble = Trouble(loss=fleet.cable("p1s0", "c0"))
    fleet.run(SOON, trouble)
    assert pods[1].findings
    fleet.loses = lambda _subject, _pod: False
    fleet.run(30, trouble)
    assert [len(pod.findings) for pod in pods] == [1, 0, 0]
    fleet.run(50)
    assert [len(pod.findings) for pod in pods] == [0, 0, 0]


def test_a_pod_that_is_left_alone_goes_on_by_its_own_probes() -> None:
    fleet, pods = warm(26)
    trouble = Trouble(loss=fleet.cable("p1s0", "c0"))
    fleet.run(SOON, trouble)
    pods[0].is_up = pods[2].is_up = False
    fleet.run(30, trouble)
    assert len(pods[1].findings) == 1
    assert not pods[1].watch.faults.dead_elsewhere
    fleet.run(60)
    assert not pods[1].findings


def test_a_link_inside_a_pod_that_is_not_heard_is_named_by_the_root() -> None:
    fleet, pods = warm(27)
    pods[1].is_up = False
    fleet.run(round(LAPSE_S / WINDOW_S) + 5)
    fleet.run(60, Trouble(loss=fleet.cable("l2", "p1s0")))
    assert list(told(fleet)) == ["a"]


def test_nothing_is_told_nor_summed_up_where_there_are_no_other_pods() -> None:
    fleet = PodWatches(Shape(leaves=2, spines=2, hosts_per_leaf=2), 28)
    fleet.run(WARM)
    fleet.run(SOON, Trouble(loss=fleet.cable("h0/nic0", "l0")))
    (pod,) = fleet.pods
    assert len(pod.findings) == 1
    assert not pod.said
    assert not pod.duties.seconds


def test_evidence_is_told_often_only_while_something_is_lost() -> None:
    fleet, pods = warm(29)

    def messages(windows: int, trouble: Trouble) -> int:
        before = len(pods[1].said)
        fleet.run(windows, trouble)
        return sum("evidence" in subject for subject in pods[1].said[before:])

    assert messages(40, Trouble()) in (3, 4, 5)
    silent = Trouble(loss=fleet.cable("p1s0", "c0"))
    fleet.run(10, silent)
    assert messages(30, silent) >= 7
    assert not any("evidence" in subject for subject in pods[0].said)
