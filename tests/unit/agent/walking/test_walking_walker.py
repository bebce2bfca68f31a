"""Walks with sockets that only take notes; with real packets: tests/lab/network/test_walks.py."""

import asyncio
import errno
import os
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.packet import Raw

from cwdp.agent.links import Link, LinkTable
from cwdp.agent.walking import walker
from cwdp.agent.walking.walker import NO_TIME, Limits, Walks
from cwdp.shared.audit.facts import HostFacts, Walk, Walked, WalkHop
from cwdp.shared.bus.audits import MOST_WALKS, PIECE_BYTES, audit_reports, facts_of

LIMITS = Limits(packets_per_s=2_000.0, wait_s=0.05, all_s=3.0)
MTU = 4_200


class Links(LinkTable):
    """One interface with an IPv4 address."""

    def __init__(self) -> None:
        self.known = {"nic0": Link(2, "nic0", "", True, ["10.1.0.1"])}

    def get(self, ifname: str) -> Link | None:
        return self.known.get(ifname)


@dataclass
class Wire:
    """Sends to nowhere, and answers for switches.

    Attributes:
        answers: what comes back, by hop limit.
        errors: numbers of the errors to give instead of sending, one a packet; 0 for none.
        sent: packets, each with its hop limit.
    """

    answers: dict[int, str] = field(default_factory=dict)
    errors: list[int] = field(default_factory=list)
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    def __enter__(self) -> Self:
        self.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def sendto(self, packet: bytes, _to: object) -> None:
        error = self.errors.pop(0) if self.errors else 0
        if error:
            raise OSError(error, os.strerror(error))
        self.sent.append((packet[8], packet))
        kind = self.answers.get(packet[8])
        if kind:
            self.heard.append(answer(packet, kind))

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[str, int]]:
        if not self.heard:
            raise BlockingIOError
        return self.heard.pop(0), ("", 0)


def answer(packet: bytes, kind: str, sender: str = "10.254.0.1") -> bytes:
    icmp = ICMP(type=3, code=4, nexthopmtu=1_500) if kind == "too_big" else ICMP(type=11)
    return bytes(IP(src=sender) / icmp / Raw(packet[:548]))


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    monkeypatch.setattr(walker, "icmp_socket", lambda *_: made)
    monkeypatch.setattr(walker, "_probing_socket", lambda *_: made)
    monkeypatch.setattr(walker, "mtu_bytes", lambda *_: MTU)
    return made


def order(**changes: Any) -> Walk:
    values = {
        "nic": "nic0",
        "dst_addr": "10.2.0.1",
        "sport": 50_000,
        "size_bytes": MTU,
        "tos": 106,
        "hops": 3,
    }
    return Walk(**values | changes)


def made(walks: list[Walk], limits: Limits = LIMITS) -> tuple[list[Walked], Walks]:
    agent = Walks(["nic0"], Links(), 4791, limits)
    return asyncio.run(agent.make(walks)), agent


def answers(walked: Walked) -> list[str]:
    return [hop.answer for hop in walked.hops]


def test_no_walks_open_nothing(wire: Wire) -> None:
    walked, agent = made([])
    assert walked == []
    assert not wire.opened
    assert not any(agent.counters.values())


def test_all_that_is_opened_is_closed(wire: Wire) -> None:
    wire.answers = {1: "expired", 2: "expired", 3: "too_big"}
    walked, agent = made([order(sport=50_000 + number) for number in range(10)])
    assert all(answers(one) == ["expired", "expired", "too_big"] for one in walked)
    assert wire.opened == wire.closed == 2
    assert agent.counters == {"walks_made": 10, "walks_failed": 0, "walk_packets_sent": 30}
    assert all(len(packet) == MTU for _, packet in wire.sent)


def test_they_are_closed_when_it_is_cancelled(wire: Wire) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(Walks(["nic0"], Links(), 4791, LIMITS).make([order()]))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert wire.opened == wire.closed == 2


def test_what_the_kernel_has_no_room_for_is_sent_again(wire: Wire) -> None:
    wire.answers = dict.fromkeys((1, 2, 3), "expired")
    wire.errors = [errno.ENOBUFS, errno.EAGAIN, errno.ENOBUFS]
    [walked], agent = made([order()])
    assert answers(walked) == ["expired"] * 3
    assert agent.counters["walk_packets_sent"] == 3


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENETUNREACH, errno.ENODEV, errno.EMSGSIZE])
def test_what_cannot_be_sent_says_why_and_the_others_go_on(wire: Wire, error: int) -> None:
    wire.answers = dict.fromkeys((1, 2, 3), "expired")
    wire.errors = [error]
    walked, agent = made([order(), order(sport=50_001)])
    assert [one.trouble for one in walked] == [f"cannot be sent: {os.strerror(error)}", ""]
    assert answers(walked[1]) == ["expired"] * 3
    assert (agent.counters["walks_made"], agent.counters["walks_failed"]) == (1, 1)


def test_without_the_right_to_raw_sockets_each_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(walker, "icmp_socket", refuse)
    walked, _ = made([order(), order(sport=50_001)])
    assert [one.trouble for one in walked] == ["no raw socket on nic0: Operation not permitted"] * 2


def test_who_guesses_is_not_believed(wire: Wire) -> None:
    """Answers that quote the packet but for a byte of its nonce, and such that quote none of ours."""

    class Forger(Wire):
        def sendto(self, packet: bytes, to: object) -> None:
            super().sendto(packet, to)
            forged = bytearray(packet)
            forged[5] ^= 1
            wire.heard += [answer(bytes(forged), "too_big", "10.66.6.6"), b"", bytes(100), b"\x45" * 60]

    forger = Forger()
    wire.sendto = forger.sendto  # type: ignore[method-assign]
    [walked], _ = made([order(hops=2)])
    assert answers(walked) == ["none"] * 2
    assert len(forger.sent) == 6


def test_a_flood_of_icmp_keeps_nobody_from_the_end(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "recvfrom", lambda _size: (bytes(60), ("", 0)))
    [walked], _ = made([order(hops=1)])
    assert answers(walked) == ["none"]


def test_time_ends_and_what_is_kept_of_packets_ends_with_their_walk(wire: Wire) -> None:
    walks = [order(sport=number + 1) for number in range(200)]
    walked, agent = made(walks, Limits(packets_per_s=1_000.0, wait_s=0.02, all_s=0.5))
    assert [one.walk for one in walked] == walks
    late = [one for one in walked if one.trouble == NO_TIME]
    assert 0 < len(late) < 200
    assert agent.counters["walk_packets_sent"] <= 520
    sockets = walker._Sockets()
    walking = walker._Walking(LIMITS, sockets, 4791)
    path = walker.FlowPath("nic0", "10.1.0.1", "10.2.0.1", 1)
    sockets.open(path)
    walking.waiting.append((0, walker.Course(order(), path, 0.0)))
    asyncio.run(walking.run())
    assert walking._probes == {}


def test_as_many_walks_as_an_order_has_can_be_told(wire: Wire) -> None:
    hop = WalkHop(
        answer="too_big", responder="fd0c:ffff:ffff:ffff:ffff:ffff:ffff:ffff", tos=255, mtu_bytes=65_535
    )
    walk = order(nic="n" * 15, dst_addr=hop.responder, hops=16)
    walked = [Walked(walk=walk, hops=[hop] * 16)] * MOST_WALKS
    reports = audit_reports(1, HostFacts(host="h1", taken_s=1.0, subjects=[], walks=walked))
    assert all(len(report.facts) <= PIECE_BYTES for report in reports)
    assert facts_of([report.facts for report in reports]).walks == walked
