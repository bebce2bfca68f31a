"""Findings against faults: what was named, too late, wrongly, or for too long."""

import pytest

from tools.soak.judge import CONTROL_S, GRACE_S, LASTING, STALE_S, Fault, Seen, judge

UPLINK = frozenset({("10.254.1.1", "10.254.2.2"), ("10.254.2.2", "10.254.1.1")})
OTHER = frozenset({("10.254.1.1", "10.254.2.1"), ("10.254.2.1", "10.254.1.1")})
HOSTS = frozenset({("h3/nic0", "10.254.1.2"), ("10.254.1.2", "h3/nic0")})
ONE_WAY = frozenset({("10.254.1.1", "10.254.2.2")})


def fault(
    kind: str = "silent", *, links: frozenset = UPLINK, host: str = "", troubled: bool = False
) -> Fault:
    return Fault(kind, kind, links, host, 100.0, 115.0, troubled)


def seen(first_s: float, last_s: float, *links: frozenset, kind: str = "silent", host: str = "") -> Seen:
    return Seen(kind, kind, links, host, first_s - 0.5, first_s, last_s)


def test_what_is_named_in_time_and_ends_is_all_right() -> None:
    found = judge([fault()], [seen(101.5, 118.0, UPLINK)])
    assert found.named_s == (("silent", 1.5),)
    assert found.missed == found.false == found.stale == ()


@pytest.mark.parametrize("links", [(ONE_WAY,), (OTHER, UPLINK)])
def test_one_direction_and_one_of_several_as_likely_are_right(links: tuple[frozenset, ...]) -> None:
    assert judge([fault()], [seen(101.5, 118.0, *links)]).false == ()


@pytest.mark.parametrize("links", [OTHER, UPLINK | OTHER, HOSTS])
def test_another_link_or_more_than_the_link_is_a_false_alarm(links: frozenset) -> None:
    found = judge([fault()], [seen(101.5, 118.0, links)])
    assert len(found.false) == 1
    assert found.missed == ("silent",)


@pytest.mark.parametrize(
    ("first_s", "is_false"), [(99.0, True), (115.0 + GRACE_S - 1, False), (115.0 + GRACE_S + 1, True)]
)
def test_a_finding_must_fall_into_the_fault_or_just_after(first_s: float, is_false: bool) -> None:
    found = judge([fault()], [seen(first_s, first_s + 0.5, UPLINK)])
    assert bool(found.false) == is_false


def test_one_that_was_found_in_time_may_be_seen_first_by_who_takes_over() -> None:
    late = Seen("flapping", "flapping", (UPLINK,), "", 112.0, 160.0, 400.0)
    found = judge([fault("flap")], [late])
    assert found.false == found.stale == ()


def test_a_place_without_a_name_at_an_end_of_the_link_is_right() -> None:
    beyond = frozenset({("10.254.1.1", "?h1/nic0>10.3.0.1:50007")})
    elsewhere = frozenset({("10.254.1.2", "?h3/nic0>10.3.0.1:50007")})
    assert judge([fault()], [seen(102.0, 118.0, beyond)]).false == ()
    assert len(judge([fault()], [seen(102.0, 118.0, elsewhere)]).false) == 1


def test_late_is_missed_unless_the_control_plane_was_in_trouble() -> None:
    late = [seen(108.0, 116.0, UPLINK)]
    assert judge([fault()], late).missed == ("silent: after 8.0 s",)
    assert judge([fault(troubled=True)], late).missed == ()
    later = [seen(100.0 + 5.0 + CONTROL_S + 1, 130.0, UPLINK)]
    assert judge([fault(troubled=True)], later).missed


def test_a_host_is_named_for_its_own_link_only() -> None:
    by_host = [seen(103.0, 118.0, HOSTS, kind="slow_sender", host="h3")]
    assert judge([fault("slow_sender", links=HOSTS, host="h3")], by_host).false == ()
    assert len(judge([fault("slow_sender", links=UPLINK)], by_host).false) == 1


def test_what_nobody_has_to_name_is_not_missed() -> None:
    for kind in ("slow_link", "slow_sender", "slow_receiver"):
        assert judge([fault(kind)], []).missed == ()


def test_a_finding_that_holds_on_is_stale_unless_its_kind_does_by_design() -> None:
    assert judge([fault()], [seen(101.0, 115.0 + STALE_S + 5, UPLINK)]).stale
    assert not judge([fault("slow_link")], [seen(101.0, 115.0 + STALE_S + 5, UPLINK, kind="slow")]).stale
    assert judge([fault("slow_link")], [seen(101.0, 115.0 + LASTING["slow"] + 5, UPLINK, kind="slow")]).stale


def test_a_finding_that_holds_from_before_names_the_next_fault_of_the_link_too() -> None:
    before = Fault("loss", "loss", UPLINK, "", 80.0, 95.0)
    found = judge([before, fault()], [seen(82.0, 118.0, UPLINK)])
    assert found.missed == ()
    assert found.stale == ()
    assert sorted(found.named_s) == [("loss", 2.0), ("silent", 0.0)]
