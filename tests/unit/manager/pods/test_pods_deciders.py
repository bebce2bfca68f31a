"""Who is to name a cause, by where it lies and by who is heard."""

import pytest
from fakes import hello
from msgspec.structs import replace

from manager.fabric.routes import DirectedLink
from manager.faults.causes import Class
from manager.faults.finding import Subject, cable, direction
from manager.hosts.elsewhere import PodHost
from manager.hosts.members import Members
from manager.pods.deciders import Deciders
from manager.pods.findings_messages import PodFindings, ToldFinding
from manager.pods.owners import Owners

WAYS = (
    ("h1/eth0", "l1"),
    ("h2/eth0", "l1"),
    ("h3/eth0", "l2"),
    ("h1/eth1", "l3"),
    ("h3/eth1", "l3"),
    ("l1", "s1"),
    ("l2", "s2"),
    ("l3", "s1"),
    ("l3", "s2"),
    ("s1", "c1"),
    ("s2", "c1"),
)
LINKS = tuple(link for a, b in WAYS for link in (DirectedLink(a, b), DirectedLink(b, a)))
POD_OF = {"h1": "a", "h2": "a", "h3": "b"}


def link(a: str, b: str) -> Subject:
    return cable(DirectedLink(a, b))


def test_a_link_is_of_the_pod_whose_nics_sit_below_its_leaf() -> None:
    owners = Owners(LINKS, POD_OF.get)
    assert owners.of(link("h1/eth0", "l1").links) == "a"
    assert owners.of(link("h3/eth1", "l3").links) == "b"
    assert owners.of(link("l1", "s1").links) == "a"
    assert owners.of(link("l2", "s2").links) == "b"
    assert owners.of(link("l3", "s1").links) is None, "a leaf of two pods"
    assert owners.of(link("s1", "c1").links) is None
    assert owners.of((*link("l1", "s1").links, *link("l2", "s2").links)) is None
    assert owners.of(()) is None


def test_a_nic_that_is_gone_is_of_the_pod_of_its_leaf() -> None:
    owners = Owners(LINKS, {"h1": "a"}.get)
    assert owners.of(link("h2/eth0", "l1").links) == "a"
    assert owners.of(link("h3/eth0", "l2").links) is None


def test_a_link_above_a_spine_that_has_leaves_of_one_pod_is_nearest_to_that() -> None:
    owners = Owners([each for each in LINKS if "l3" not in each], POD_OF.get)
    assert owners.nearest(link("s1", "c1").links) == "a"
    assert owners.nearest(link("s2", "c1").links) == "b"
    assert owners.nearest((*link("s1", "c1").links, *link("s2", "c1").links)) is None
    assert Owners(LINKS, POD_OF.get).nearest(link("s1", "c1").links) is None, "its leaves are of both"


def deciders(pod: str = "a") -> Deciders:
    members = Members()
    for host, of in POD_OF.items():
        told = hello(host)
        told.nics[0] = replace(told.nics[0], ipv4=f"10.0.0.{host[1:]}", ipv6=None)
        if of == pod:
            members.hear(told, 100.0)
        else:
            other = [PodHost(host=host, nics=told.nics)]
            members.elsewhere.take(of, other, epoch=1, number=1, timeline="t", now_s=100.0)
    return Deciders(pod, members)


def told(*subjects: Subject, is_joint: bool = False) -> list[ToldFinding]:
    return [
        ToldFinding(
            key=f"k{i}",
            kind="silent",
            subject=subject,
            also=(),
            confidence=1.0,
            loss=1.0,
            evidence=[],
            start_s=0.0,
            explains=True,
            is_joint=is_joint,
            is_inside=not is_joint,
        )
        for i, subject in enumerate(subjects)
    ]


def says(pod: str, *, is_root: bool, findings: list[ToldFinding] | None = None) -> dict[str, PodFindings]:
    return {pod: PodFindings(pod=pod, epoch=1, seq=1, is_root=is_root, findings=findings or [])}


INSIDE, OTHERS, SHARED = (Class(each, ()) for each in (link("l1", "s1"), link("l2", "s2"), link("s1", "c1")))


def test_while_nobody_is_heard_a_manager_decides_all() -> None:
    alone = deciders()
    assert all(alone.decides(LINKS, each) for each in (INSIDE, OTHERS, SHARED))
    assert alone.keeps(LINKS, SHARED.subject)


def test_each_pod_decides_inside_and_the_root_between() -> None:
    heard = deciders()
    heard.hear(says("b", is_root=True), is_root=False)
    assert [heard.decides(LINKS, each) for each in (INSIDE, OTHERS, SHARED)] == [True, False, False]
    assert not heard.decides(LINKS, Class(INSIDE.subject, (SHARED.subject,))), "it may be either"
    assert not heard.keeps(LINKS, SHARED.subject)
    heard.hear(says("b", is_root=False), is_root=True)
    assert [heard.decides(LINKS, each) for each in (INSIDE, OTHERS, SHARED)] == [True, False, False]
    assert heard.keeps(LINKS, SHARED.subject)
    heard.hear(says("b", is_root=False), is_root=False)
    assert [heard.decides(LINKS, each) for each in (INSIDE, OTHERS, SHARED)] == [True, False, True]


@pytest.mark.parametrize(("address", "decides"), [("10.0.0.1", True), ("10.0.0.3", False)])
def test_what_one_path_alone_crosses_is_named_inside_a_pod_and_between_pods_by_nobody(
    address: str, decides: bool
) -> None:
    heard = deciders()
    named = Class(direction(DirectedLink("s1", f"?h2/eth0>{address}:50000")), ())
    assert heard.decides(LINKS, named)
    heard.hear(says("b", is_root=True), is_root=False)
    assert heard.decides(LINKS, named) is decides


def test_a_switch_that_does_not_answer_is_named_as_others_are() -> None:
    heard = deciders()
    heard.hear(says("b", is_root=True), is_root=False)
    assert not heard.decides(LINKS, Class(direction(DirectedLink("s1", "?s1>s2")), ()))


def test_a_finding_is_left_to_who_is_to_have_it_once_that_has_told_it() -> None:
    heard = deciders()

    def left(named: Class, *findings: ToldFinding, is_root: bool = True) -> bool:
        heard.hear(says("b", is_root=is_root, findings=list(findings)), is_root=False)
        return heard.is_told_by_others(LINKS, named)

    assert not left(SHARED)
    assert left(SHARED, *told(SHARED.subject, is_joint=True))
    assert not left(SHARED, *told(SHARED.subject))
    assert not left(SHARED, *told(SHARED.subject, is_joint=True), is_root=False)
    assert left(OTHERS, *told(OTHERS.subject))
    assert not left(INSIDE, *told(INSIDE.subject, is_joint=True)), "it is this pod's"


def test_of_two_roots_the_first_by_name_keeps_what_both_have_found() -> None:
    both = told(SHARED.subject, is_joint=True)
    for pod, other, yields in (("a", "b", False), ("b", "a", True)):
        root = deciders(pod)
        root.hear(says(other, is_root=True, findings=both), is_root=True)
        assert root.is_told_by_others(LINKS, SHARED) is yields
