"""A round of flows: what hosts are ordered, what they tell, who is in the way."""

import numpy as np
import pytest

from cwdp.shared.bus.audits import LATE, FlowReport, FlowTold
from manager.audit.service.flow_round import LASTS_S, NOT_TOLD, TELLING_S, FlowRound, Limits
from manager.audit.throughput.ways import Ways
from manager.fabric.routes import DirectedLink, PathName

LINKS = (
    DirectedLink("h1/a", "l1"),
    DirectedLink("l1", "h2/b"),
    DirectedLink("h2/b", "l1"),
    DirectedLink("l1", "h1/a"),
)
WAYS = Ways(
    names=[PathName("h1/a", "10.0.0.2", 50_001), PathName("h2/b", "10.0.0.1", 50_002)],
    nics=("h1/a", "h2/b"),
    src=np.array([0, 1]),
    dst=np.array([1, 0]),
    crossed=np.array([[0, 1], [2, 3]], np.int32),
    middle=np.array([-1, -1]),
    links=LINKS,
)
ADDRESSES = {"h1/a": "10.0.0.1", "h2/b": "10.0.0.2"}


@pytest.fixture
def now() -> FlowRound:
    return FlowRound(9, WAYS, (0, 1), ADDRESSES, Limits(force=True, cap_bps=10**9), began_s=100.0)


def tell(now: FlowRound, host: str, *flows: FlowTold, number: int = 9) -> str:
    return now.hear(FlowReport(host=host, number=number, flows=list(flows)))


def test_both_ends_are_told_of_a_flow(now: FlowRound) -> None:
    h1, h2 = sorted(now.orders(), key=lambda order: order.host)
    assert (h1.host, h1.number, h1.force, h1.cap_bps, h1.lasts_s) == ("h1", 9, True, 10**9, LASTS_S)
    assert [(one.id, one.nic, one.peer_addr, one.sends, one.sport) for one in h1.flows] == [
        (1, "a", "10.0.0.2", True, 50_001),
        (2, "a", "10.0.0.2", False, 50_002),
    ]
    assert [(one.id, one.nic, one.peer_addr, one.sends) for one in h2.flows] == [
        (1, "b", "10.0.0.1", False),
        (2, "b", "10.0.0.1", True),
    ]


def test_it_is_over_when_all_have_told(now: FlowRound) -> None:
    assert tell(now, "h1", FlowTold(id=1, carried_bytes=1000, took_s=2.0)) == "ok"
    assert not now.is_over(101.0)
    assert tell(now, "h2", FlowTold(id=2, carried_bytes=500, took_s=2.0)) == "ok"
    assert now.is_over(101.0)
    assert now.bps() == {0: 4000.0, 1: 2000.0}
    assert now.troubles() == {}


def test_what_was_not_asked_for_is_not_heard(now: FlowRound) -> None:
    assert tell(now, "h3") == "not_asked"
    assert tell(now, "h1", number=8) == "not_asked"
    assert tell(now, "h1") == "ok"
    assert tell(now, "h1", FlowTold(id=1, carried_bytes=1, took_s=1.0)) == "not_asked"
    assert now.bps() == {}


def test_the_silent_are_waited_for_no_longer_than_that(now: FlowRound) -> None:
    tell(now, "h1", FlowTold(id=1, carried_bytes=1000, took_s=2.0))
    longest_s = Limits().begin_s + LASTS_S + TELLING_S
    assert not now.is_over(100.0 + longest_s - 0.1)
    assert now.is_over(100.0 + longest_s)
    assert now.troubles() == {1: ("h2/b", NOT_TOLD)}


def test_who_cannot_receive_is_in_the_way_and_not_who_sends_to_it(now: FlowRound) -> None:
    tell(
        now,
        "h1",
        FlowTold(id=1, trouble="no server answers"),
        FlowTold(id=2, trouble="queue pairs send on a"),
    )
    tell(now, "h2", FlowTold(id=1, trouble="no program"), FlowTold(id=2, carried_bytes=0, took_s=0.0))
    assert now.troubles() == {0: ("h2/b", "no program"), 1: ("h1/a", "queue pairs send on a")}


def test_who_was_late_is_in_nobodys_way(now: FlowRound) -> None:
    tell(now, "h1", FlowTold(id=1, carried_bytes=1000, took_s=2.0), FlowTold(id=2, trouble=LATE))
    tell(now, "h2", FlowTold(id=2, trouble="nothing that was sent was acknowledged"))
    assert now.was_late
    assert now.troubles() == {}
    assert now.bps() == {0: 4000.0}


def test_flows_of_which_nobody_was_told(now: FlowRound) -> None:
    tell(now, "h1", FlowTold(id=7, carried_bytes=1000, took_s=2.0))
    tell(now, "h2")
    assert now.troubles() == {0: ("h1/a", NOT_TOLD), 1: ("h2/b", NOT_TOLD)}
