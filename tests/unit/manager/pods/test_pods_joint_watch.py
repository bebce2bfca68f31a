"""What the root counts over what it has found, whatever is lost or counted anew on the way."""

from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, cable
from manager.faults.told import Counts
from manager.pods.joint_watch import JointWatch

KEY = "a/1/1"


class Root:
    """A joint watch that follows one finding."""

    def __init__(self, loss: float = 1.0) -> None:
        self.closed: list[Finding] = []
        self.silent: list[Finding] = []
        self.watch = JointWatch(lambda _: self.finding, self.closed.append, self._fall_silent)
        self.finding = Finding(
            number=1,
            kind="silent" if loss == 1.0 else "lossy",
            subject=cable(DirectedLink("s1", "c1")),
            confidence=1.0,
            evidence=[],
            start_s=0.0,
            loss=loss,
        )
        self.watch.follow(self.finding)

    def _fall_silent(self, finding: Finding) -> Finding:
        self.silent.append(finding)
        finding.kind = "silent"
        return finding

    def counts(self, windows: int, sent: int, lost: int, *, pod: str = "b", epoch: int = 1) -> None:
        counted = {KEY: Counts(windows=windows, sent=sent, lost=lost)}
        self.watch.count({pod: (epoch, counted)}, lambda _: KEY)


def test_a_finding_is_over_once_probes_come_through_for_some_windows() -> None:
    root = Root()
    root.counts(10, 100, 100)
    root.counts(13, 130, 130)
    assert not root.closed
    root.counts(15, 150, 130)
    assert not root.closed, "so few windows may be chance"
    root.counts(19, 190, 130)
    assert root.closed == [root.finding]
    assert root.watch.findings == []


def test_what_a_pod_has_counted_before_it_is_heard_is_not_held_against_a_finding() -> None:
    root = Root()
    root.counts(1000, 9000, 0)
    assert not root.closed
    root.counts(1001, 9001, 1)
    root.counts(0, 0, 0, epoch=2)
    root.counts(500, 4000, 4000, epoch=2)
    assert not root.closed


def test_who_has_no_probes_over_it_says_nothing() -> None:
    root = Root()
    for windows in range(0, 100, 5):
        root.counts(windows, 0, 0)
    root.watch.count({"b": (1, {})}, lambda _: KEY)
    assert not root.closed


def test_what_lost_some_and_loses_all_now_is_silent() -> None:
    root = Root(loss=0.6)
    root.counts(0, 0, 0)
    root.counts(10, 100, 60)
    assert not root.silent
    root.counts(20, 200, 160)
    assert root.silent == [root.finding]
    assert root.watch.findings == [root.finding]


def test_a_finding_that_somebody_else_has_ended_is_followed_no_more() -> None:
    root = Root()
    root.finding.end_s = 1.0
    assert root.watch.findings == []
