"""What the agent makes of orders, events and statistics; with sockets that only take notes."""

import asyncio
import socket
from dataclasses import dataclass, field
from typing import Any

import pytest

from cwdp.agent.links import LinkTable
from cwdp.agent.tracing import tracer as trace
from cwdp.agent.tracing.tracer import MOST_PATHS, Tracing
from cwdp.shared.bus.edges import PathStat
from cwdp.shared.bus.messages import Event, PathChange, ProbeEdge, TraceOrder

ORDER = TraceOrder(nic="nic0", dst_addr="10.2.0.1", sports=[50_000, 50_001])


@dataclass
class FakeLink:
    addresses: dict[int, str] = field(default_factory=lambda: {4: "10.1.0.1", 6: "fd00:1::1"})

    def address(self, family: socket.AddressFamily) -> str | None:
        return self.addresses.get(4 if family == socket.AF_INET else 6)


class FakeLinks(LinkTable):
    """Interfaces with addresses that tests set."""

    def __init__(self) -> None:
        self.known: dict[str, FakeLink] = {"nic0": FakeLink()}

    def get(self, ifname: str) -> Any:
        return self.known.get(ifname)


class NoteSocket:
    """Keeps what is sent; gives what there is to hear."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, str]] = []
        self.error: OSError | None = None
        self.closed = False
        self.family = socket.AF_INET
        self.heard: list[tuple[bytes, tuple[str, int]]] = []

    def sendto(self, data: bytes, to: tuple[str, int]) -> None:
        if self.error:
            raise self.error
        self.sent.append((data, to[0]))

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[str, int]]:
        if not self.heard:
            raise BlockingIOError
        return self.heard.pop(0)

    def close(self) -> None:
        self.closed = True


class Setup:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.links = FakeLinks()
        self.tracing = Tracing("h1", ["nic0"], self.links, 4791, lambda: 7)
        self.out: list[NoteSocket] = []
        monkeypatch.setattr(trace, "sending_socket", self._open)

    def _open(self, *_: object) -> NoteSocket:
        self.out.append(NoteSocket())
        return self.out[-1]

    def step(self, now_s: float) -> list[Any]:
        probes = self.tracing._table.step(now_s)
        for probe in probes:
            self.tracing._send(probe)
        return probes


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(monkeypatch)


def test_an_order_is_sent_from_the_nics_address(setup: Setup) -> None:
    setup.tracing.order([ORDER, TraceOrder(nic="nic0", dst_addr="FD00:2::0001", sports=[1])])
    setup.step(0.0)
    setup.step(1.0)
    sent = {(probe.path.source, probe.path.destination) for probe in setup.step(2.0)}
    sent |= {(to, "") for out in setup.out for _, to in out.sent}
    assert {"10.2.0.1", "fd00:2::1"} <= {part for pair in sent for part in pair}
    assert all(out.sent for out in setup.out)


def test_orders_for_strangers_are_refused_and_counted(setup: Setup) -> None:
    wrong = [
        TraceOrder(nic="eth9", dst_addr="10.2.0.1", sports=[1]),
        TraceOrder(nic="nic0", dst_addr="nowhere", sports=[1]),
    ]
    setup.tracing.order(wrong)
    assert setup.tracing.counters["trace_orders_refused"] == 2
    assert setup.step(0.0) == []


def test_more_paths_than_fit_are_left_out_and_counted(setup: Setup) -> None:
    many = [
        TraceOrder(nic="nic0", dst_addr=f"10.2.0.{i}", sports=list(range(1, 10_001)))
        for i in range(1, MOST_PATHS // 10_000 + 2)
    ]
    setup.tracing.order(many)
    assert len(setup.tracing._table) == MOST_PATHS
    assert setup.tracing.counters["trace_orders_refused"] == len(many) * 10_000 - MOST_PATHS


def test_a_nic_without_address_is_traced_from_once_it_has_one(setup: Setup) -> None:
    link = setup.links.known.pop("nic0")
    setup.tracing.order([ORDER])
    assert setup.step(0.0) == []
    setup.links.known["nic0"] = link
    setup.tracing.readdress()
    assert setup.step(1.0)


def test_a_socket_whose_interface_is_gone_is_opened_anew(setup: Setup) -> None:
    setup.tracing.order([ORDER])
    assert setup.step(0.0)
    setup.out[0].error = OSError(19, "No such device")
    setup.step(1.0)
    assert setup.tracing.counters["trace_unsent"] > 0
    assert setup.out[0].closed
    assert len(setup.out) >= 2


def test_an_event_of_a_path_has_its_pair_traced_at_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspected: list[set[tuple[str, str]]] = []
    monkeypatch.setattr(setup.tracing._table, "suspect", lambda pairs, _now_s: suspected.append(pairs))
    change = PathChange(
        time_ns=None,
        bound_ns=None,
        dst_addr="10.2.0.1",
        sport=1,
        lasted_ns=1,
        unanswered=1,
        hold_down_ns=1,
        queue_pairs=1,
    )
    plain = Event(host="h1", local_ns=0, kind="agent_started", nic=None, detail="")
    setup.tracing.hear_events([plain])
    assert suspected == []
    setup.tracing.hear_events(
        [plain, Event(host="h1", local_ns=0, kind="path_down", nic="nic0", detail="", path=change)]
    )
    assert suspected == [{("nic0", "10.2.0.1")}]


def test_probes_that_are_all_lost_or_answered_again_have_their_pair_traced(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspected: list[set[tuple[str, str]]] = []
    monkeypatch.setattr(setup.tracing._table, "suspect", lambda pairs, _now_s: suspected.append(pairs))
    edge = ProbeEdge(
        src="h1/nic0",
        dst="h5/nic0",
        src_addr="10.1.0.1",
        dst_addr="10.2.0.1",
        sports=[1],
        reply_sports=[2],
        pairs_per_s=1.0,
    )
    none = dict.fromkeys(f"{way}_{what}_ns" for way in ("fwd", "rev") for what in ("min", "p50", "p99")) | {
        "rtt_min_ns": None,
        "bound_ns": None,
    }

    def stat(lost: int, sent: int = 10) -> PathStat:
        return PathStat(
            src="h1/nic0", dst="h5/nic0", sport=1, reply_sport=2, sent=sent, lost=lost, queued=0, **none
        )

    for lost in (0, 5, 10, 10, 0, 0):
        setup.tracing.hear_stats([stat(lost)], [edge])
    setup.tracing.hear_stats([stat(2, sent=2)], [edge])
    setup.tracing.hear_stats([stat(10)], [])
    assert suspected == [{("nic0", "10.2.0.1")}] * 2


def test_a_flood_of_icmp_is_taken_in_turns(setup: Setup) -> None:
    ears = NoteSocket()
    ears.heard = [(bytes(60), ("10.9.9.9", 0))] * (trace.MOST_PER_WAKE + 10)
    setup.tracing._hear(ears)  # type: ignore[arg-type]
    assert len(ears.heard) == 10
    assert setup.tracing.counters["trace_answers_stray"] == trace.MOST_PER_WAKE


def test_without_the_sockets_the_agent_goes_on(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_family: socket.AddressFamily, _kinds: tuple[int, ...]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(trace, "icmp_socket", refuse)

    async def run_for_a_moment() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(setup.tracing.run(), 0.1)

    asyncio.run(run_for_a_moment())
    assert setup.tracing.counters["trace_socket_failed"] == 2


def test_reports_have_the_hops_and_the_hosts_time(setup: Setup) -> None:
    setup.tracing.order([ORDER])
    for now in range(100):
        setup.step(now / 10)
    [report] = setup.tracing.reports()
    assert report.host == "h1"
    assert {(t.nic, t.dst_addr, t.sport, tuple(t.hops), t.reached, t.local_ns) for t in report.traces} == {
        ("nic0", "10.2.0.1", port, (), False, 7) for port in ORDER.sports
    }
    assert list(setup.tracing.reports()) == []
    setup.tracing.tell_all()
    assert len(list(setup.tracing.reports())) == 1
