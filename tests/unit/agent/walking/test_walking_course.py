"""Which hop limits a walk asks, and what it tells of them."""

from cwdp.agent.tracing.packets import FlowPath
from cwdp.agent.walking.course import ATTEMPTS, Course
from cwdp.agent.walking.packets import HopAnswer
from cwdp.shared.audit.facts import Walk, WalkHop

WAIT_S = 0.3
QUOTE = bytes([0x45, 104]) + bytes(26)
NONE = WalkHop(answer="none")


def course(hops: int = 4) -> Course:
    walk = Walk(nic="nic0", dst_addr="10.2.0.1", sport=50_000, size_bytes=4_096, tos=104, hops=hops)
    return Course(walk, FlowPath("nic0", "10.1.0.1", "10.2.0.1", 50_000), WAIT_S)


def expired(limit: int) -> HopAnswer:
    return HopAnswer(f"10.254.0.{limit}", "expired", QUOTE)


def asked(of: Course, now_s: float) -> list[int]:
    found = []
    while (limit := of.next_limit(now_s)) is not None:
        found.append(limit)
    return found


def test_all_hop_limits_are_asked_though_some_are_silent() -> None:
    one = course()
    assert asked(one, 0.0) == [1, 2, 3, 4]
    one.hear(1, expired(1))
    one.hear(3, expired(3))
    assert asked(one, WAIT_S - 0.01) == []
    assert asked(one, WAIT_S) == [2, 4]
    assert asked(one, 2 * WAIT_S) == [2, 4]
    assert not one.is_over(3 * WAIT_S - 0.01)
    assert one.is_over(3 * WAIT_S)
    assert asked(one, 3 * WAIT_S) == []
    told = WalkHop(answer="expired", responder="10.254.0.1", tos=104)
    assert one.hops() == [told, NONE, WalkHop(answer="expired", responder="10.254.0.3", tos=104), NONE]


def test_it_is_over_as_soon_as_all_have_answered() -> None:
    one = course(2)
    assert not one.is_over(0.0)
    asked(one, 0.0)
    one.hear(1, expired(1))
    assert not one.is_over(0.0)
    one.hear(2, HopAnswer("10.2.0.1", "unreachable", QUOTE))
    assert one.is_over(0.0)
    assert [hop.answer for hop in one.hops()] == ["expired", "unreachable"]


def test_what_does_not_fit_ends_it() -> None:
    one = course()
    asked(one, 0.0)
    one.hear(4, HopAnswer("10.254.0.2", "too_big", QUOTE, 1_500))
    one.hear(1, expired(1))
    assert asked(one, WAIT_S) == [2, 3]
    one.hear(3, HopAnswer("10.254.0.2", "too_big", QUOTE, 1_500))
    one.hear(2, expired(2))
    assert one.is_over(WAIT_S)
    assert [hop.answer for hop in one.hops()] == ["expired", "expired", "too_big"]
    assert (one.hops()[-1].responder, one.hops()[-1].mtu_bytes) == ("10.254.0.2", 1_500)


def test_the_first_answer_counts() -> None:
    one = course(1)
    asked(one, 0.0)
    one.hear(1, expired(1))
    one.hear(1, HopAnswer("10.254.0.9", "too_big", QUOTE, 600))
    assert one.hops() == [WalkHop(answer="expired", responder="10.254.0.1", tos=104)]


def test_no_hop_limit_is_asked_more_often_than_that() -> None:
    one = course(3)
    found = [limit for step in range(100) for limit in asked(one, step * 0.1)]
    assert sorted(found) == sorted([1, 2, 3] * ATTEMPTS)
