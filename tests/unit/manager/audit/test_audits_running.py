"""Who was asked in an audit, and who has told: pieces, repetition, silence, what is not asked for."""

import msgspec
import pytest
from msgspec.structs import replace

from cwdp.shared.audit.facts import HostFacts, Subject, Walk
from cwdp.shared.bus.audits import MOST_PIECES, PIECE_BYTES, AuditReport, audit_reports
from manager.audit.service.running import (
    AGAIN_S,
    HOSTS_A_SECOND,
    LONGEST_SPREAD_S,
    READING_S,
    WALKING_S,
    Running,
)


def _facts(host: str, size_bytes: int = 0, taken_s: float = 1.0) -> HostFacts:
    return HostFacts(
        host=host, taken_s=taken_s, subjects=[Subject(kind="host", facts={"product": "x" * size_bytes})]
    )


def _tell(running: Running, host: str, size_bytes: int = 0, number: int = 7) -> list[str]:
    return [running.hear(report) for report in audit_reports(number, _facts(host, size_bytes))]


def test_it_is_over_when_all_have_told() -> None:
    running = Running(7, ["h1", "h2"], 0.0)
    assert running.waits_for() == ["h1", "h2"]
    assert _tell(running, "h1") == ["ok"]
    assert not running.is_over(1.0)
    assert _tell(running, "h2") == ["ok"]
    assert running.is_over(1.0)
    assert running.facts == {host: _facts(host) for host in ("h1", "h2")}


def test_it_is_over_when_the_silent_will_tell_no_more() -> None:
    running = Running(7, ["h1", "h2"], 0.0)
    _tell(running, "h1")
    assert not running.is_over(READING_S)
    assert running.is_over(READING_S + running.within_s)
    assert running.waits_for() == ["h2"]


def test_pieces_come_in_any_order_and_twice() -> None:
    running = Running(7, ["h1"], 0.0)
    reports = audit_reports(7, _facts("h1", 3 * PIECE_BYTES))
    assert len(reports) == 4
    for report in (*reversed(reports[1:]), reports[2]):
        assert running.hear(report) == "ok"
        assert not running.facts
    assert running.hear(reports[0]) == "ok"
    assert running.facts["h1"] == _facts("h1", 3 * PIECE_BYTES)


def test_pieces_of_two_readings_are_not_joined() -> None:
    """An order that was repeated makes a host read again; it may have more to say then."""
    running = Running(7, ["h1"], 0.0)
    for report in audit_reports(7, _facts("h1", 3 * PIECE_BYTES))[1:]:
        running.hear(report)
    for report in audit_reports(7, _facts("h1", PIECE_BYTES, taken_s=2.0)):
        assert not running.facts
        assert running.hear(report) == "ok"
    assert running.facts["h1"] == _facts("h1", PIECE_BYTES, taken_s=2.0)


def test_what_is_not_asked_for_is_not_taken() -> None:
    running = Running(7, ["h1"], 0.0)
    assert _tell(running, "h9") == ["not_asked"]
    assert _tell(running, "h1", number=6) == ["not_asked"]
    assert _tell(running, "h1") == ["ok"]
    assert _tell(running, "h1", size_bytes=1) == ["not_asked"]
    assert running.facts == {"h1": _facts("h1")}


@pytest.mark.parametrize("said", [b"", b"\xff" * 9, msgspec.msgpack.encode(_facts("h2"))])
def test_what_is_no_facts_of_that_host_is_refused_and_may_be_told_again(said: bytes) -> None:
    running = Running(7, ["h1", "h2"], 0.0)
    assert running.hear(AuditReport(host="h1", number=7, taken_s=1.0, facts=said)) == "not_facts"
    assert not running.facts
    assert _tell(running, "h1") == ["ok"]


def test_a_host_that_goes_on_and_on_is_not_kept() -> None:
    with pytest.raises(ValueError, match="are told at most"):
        audit_reports(7, _facts("h1", MOST_PIECES * PIECE_BYTES))
    report = audit_reports(7, _facts("h1"))[0]
    wrong = msgspec.msgpack.encode(replace(report, parts=MOST_PIECES + 1))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(wrong, type=AuditReport)


def test_orders_are_repeated_to_the_silent_only() -> None:
    running = Running(7, ["h1", "h2"], 0.0)
    assert [order.host for order in running.due(0.0)] == ["h1", "h2"]
    assert running.due(AGAIN_S / 2) == []
    _tell(running, "h1")
    assert [order.host for order in running.due(AGAIN_S)] == ["h2"]
    assert running.due(1.5 * AGAIN_S) == []


def test_hosts_are_told_their_own_walks_and_have_longer_for_them() -> None:
    walk = Walk(nic="eth1", dst_addr="10.0.0.2", sport=50_000, size_bytes=9_000, tos=106, hops=4)
    running = Running(7, ["h1", "h2"], 0.0, {"h1": [walk]})
    assert [order.walks for order in running.due(0.0)] == [[walk], []]
    assert not running.is_over(READING_S + running.within_s)
    assert running.is_over(READING_S + running.within_s + WALKING_S)


@pytest.mark.parametrize("hosts", [1, 1_000, 100_000])
def test_many_hosts_do_not_speak_at_once(hosts: int) -> None:
    running = Running(7, (f"h{i}" for i in range(hosts)), 0.0)
    assert running.within_s == min(hosts / HOSTS_A_SECOND, LONGEST_SPREAD_S)
