"""What leaders tell each other is at fault: what is taken in, for how long, and what it says of the links."""

from typing import Any

import msgspec
import pytest

from cwdp.shared.bus.messages import decode, encode
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Kind, Subject, cable
from manager.pods.findings_messages import (
    KEPT_S,
    LAPSE_S,
    MOST_PODS,
    Board,
    PodFindings,
    ToldFinding,
    dead_links,
    name_of,
    told,
)

ONE, OTHER = cable(DirectedLink("l1", "s1")), cable(DirectedLink("s1", "l2"))


def finding(kind: Kind = "silent", subject: Subject = ONE, **more: Any) -> Finding:
    return Finding(number=3, kind=kind, subject=subject, confidence=1.0, evidence=["e"], start_s=9.0, **more)


def tells(finding: Finding, key: str = "a/1/3", *, explains: bool = True) -> ToldFinding:
    found = told(finding, key, explains=explains, is_joint=False, is_inside=True)
    assert found is not None
    return found


def message(pod: str = "a", epoch: int = 1, seq: int = 1, *findings: ToldFinding) -> PodFindings:
    said = PodFindings(pod=pod, epoch=epoch, seq=seq, is_root=False, findings=list(findings))
    return decode(PodFindings, encode(said))


class Now:
    s = 100.0

    def __call__(self) -> float:
        return self.s


def test_findings_of_links_are_told_with_what_cannot_be_told_from_them() -> None:
    each = tells(finding(also=(OTHER,)))
    (arrived,) = message("a", 1, 1, each).findings
    assert arrived == each
    assert arrived.links == {*ONE.links, *OTHER.links}
    assert set(arrived.whole.links) == arrived.links
    for none in (finding("clock"), finding("slow"), finding("dead", Subject("nic", "h1/eth0"))):
        assert told(none, "k", explains=True, is_joint=False, is_inside=True) is None


def test_nothing_is_sent_over_what_others_found_dead() -> None:
    few, most = (tells(finding("lossy", OTHER, loss=loss)) for loss in (0.1, 0.6))
    assert dead_links([tells(finding()), few]) == set(ONE.links)
    assert dead_links([most]) == set(OTHER.links)


def test_what_explains_the_same_has_one_name_in_any_order() -> None:
    one, other = tells(finding()), tells(finding(subject=OTHER), "b/1/1")
    assert name_of([one, other]) == name_of([other, one]) != name_of([one])
    assert name_of([one]) == name_of([one, tells(finding(subject=OTHER), "x", explains=False)])


def test_a_later_message_replaces_one_before_until_its_leader_is_silent() -> None:
    now = Now()
    board = Board(now)
    for epoch, seq in ((2, 1), (2, 3), (2, 3), (2, 2), (1, 9)):
        board.hear(message("a", epoch, seq))
    assert board.reports == {"ok": 2, "not_newer": 3, "not_sane": 0, "too_many_pods": 0}
    assert board.fresh()["a"].seq == 3
    now.s += LAPSE_S
    assert not board.fresh()
    assert len(board.all()) == 1
    board.hear(message("a", 1, 1))
    assert board.fresh()["a"].epoch == 1, "a bus that began anew"
    now.s += KEPT_S
    assert not board.all()


def test_there_are_only_so_many_pods() -> None:
    board = Board()
    for pod in range(MOST_PODS + 1):
        board.hear(message(f"p{pod}"))
    assert board.reports["too_many_pods"] == 1


@pytest.mark.parametrize(("name", "value"), [("loss", 1.5), ("confidence", -0.1), ("kind", "clock")])
def test_what_cannot_be_is_not_read(name: str, value: object) -> None:
    absurd = msgspec.structs.replace(tells(finding()), **{name: value})
    with pytest.raises(msgspec.ValidationError):
        message("a", 1, 1, absurd)
