"""What the manager makes of TCP connections that agents tell of: rates, both ends of one, and what is refused."""

from ipaddress import ip_address
from typing import Any

import msgspec
import numpy as np
import pytest
from fakes import hello, nic
from msgspec.structs import replace

from cwdp.shared.addresses import address_bytes
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.connections import CLOSED, TCP_ROW, NicConnections, TcpReport
from cwdp.shared.verbs import Program
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.state import FleetState
from manager.tcp import connections
from manager.tcp.connections import FORGET_AFTER_S, ConnectionStore
from manager.view import tcp_views

A, B, OUTSIDE = "10.0.0.1", "10.0.0.2", "192.0.2.1"
SPEED = {"eth0": 1e9}
SECOND_NS = 10**9


def row(
    local: str = A, remote: str = B, local_port: int = 5201, remote_port: int = 40_000, **values: Any
) -> Any:
    made = np.zeros(1, TCP_ROW)
    for end, address in (("local", local), ("remote", remote)):
        made[f"{end}_addr"] = np.frombuffer(address_bytes(ip_address(address)), np.uint8)
    made["local_port"], made["remote_port"], made["state"] = local_port, remote_port, 1
    for name, value in values.items():
        made[name] = value
    return made


def report(*rows: Any, host: str = "a", at_s: float = 1.0, nic: str = "eth0", **others: Any) -> TcpReport:
    told = NicConnections(nic=nic, rows=row_bytes(np.concatenate([np.zeros(0, TCP_ROW), *rows])))
    given = {"services": ["x", "y"], "programs": [Program(pid=40, name="iperf3", cgroup="/pod1")]} | others
    return TcpReport(host=host, at_ns=round(at_s * SECOND_NS), nics=[told], **given)


def hear(store: ConnectionStore, told: TcpReport, now_s: float = 100.0) -> None:
    store.hear(told, SPEED, now_s)


def there(store: ConnectionStore, host: str = "a") -> list[int]:
    table = store.tables.get((host, "eth0"))
    return [] if table is None else sorted(table.rows["local_port"].tolist())


def test_rates_are_of_what_has_moved_between_two_reports() -> None:
    store = ConnectionStore()
    hear(store, report(row(bytes_acked=1_000)))
    table = store.tables["a", "eth0"]
    assert np.isnan(table.rates).all()
    hear(store, report(row(bytes_acked=3_000, bytes_received=500), at_s=1.25))
    assert table.rates.tolist() == [[8_000.0, 2_000.0]]
    assert store.totals["bytes_acked"] == 2_000
    hear(store, report(at_s=1.5))
    assert table.rates.tolist() == [[0.0, 0.0]]
    hear(store, report(row(bytes_acked=9_000), at_s=60.0))
    assert np.isnan(table.rates).all()


def test_what_an_agent_does_not_list_for_want_of_room_keeps_its_rate() -> None:
    store = ConnectionStore()
    hear(store, report(row(bytes_acked=1_000)))
    full = report(row(bytes_acked=2_000), at_s=2.0)
    hear(store, replace(full, nics=[replace(full.nics[0], unlisted=3)]))
    hear(store, report(row(local_port=9), at_s=3.0))
    assert np.nanmax(store.tables["a", "eth0"].rates[:, 0]) == 1_000.0


def test_connections_go_when_closed_or_missing_from_a_report_in_full_or_untold_for_long() -> None:
    store = ConnectionStore()
    hear(store, report(row(), row(local_port=2), row(local_port=3)))
    hear(store, report(row(local_port=2, state=CLOSED), at_s=2.0))
    assert there(store) == [3, 5201]
    assert store.closed == 1
    hear(store, report(row(local_port=3), at_s=3.0, in_full=True))
    assert there(store) == [3]
    store.expire(100.0 + FORGET_AFTER_S - 1, {"a"})
    assert there(store) == [3]
    store.expire(100.0 + FORGET_AFTER_S, {"a"})
    assert store.tables == {}
    hear(store, report(row()))
    store.expire(101.0, {"b"})
    assert store.tables == {}


def test_both_ends_of_a_connection_are_found() -> None:
    store = ConnectionStore()
    hear(store, report(row(), row(local_port=6), row(remote=OUTSIDE, local_port=7)))
    hear(store, report(row(B, A, 40_000, 5201), row(B, A, 6, 40_000), host="b"))
    table = store.tables["a", "eth0"]
    both = dict(zip(table.rows["local_port"].tolist(), store.both_ends(table).tolist(), strict=True))
    assert both == {5201: True, 6: False, 7: False}
    assert store.count() == {"both": 2, "one": 3}
    hear(store, report(row(B, A, 40_000, 5201, state=CLOSED), host="b", at_s=2.0))
    assert store.count() == {"both": 0, "one": 4}


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (report(row(), nic="eth7"), "unknown_nic"),
        (report(row(state=2)), "not_sane"),
        (report(row(service=2)), "not_sane"),
        (replace(report(), nics=[NicConnections(nic="eth0", rows=b"x")]), "not_sane"),
    ],
    ids=["nic", "state", "service", "bytes"],
)
def test_what_is_not_sane_is_refused_and_counted(told: TcpReport, reason: str) -> None:
    store = ConnectionStore()
    hear(store, told)
    assert store.tables == {}
    assert store.reports[reason] == 1


def test_more_than_a_link_carries_counts_for_nothing() -> None:
    store = ConnectionStore()
    hear(store, report(row()))
    hear(store, report(row(bytes_acked=10**9), at_s=2.0))
    assert np.isnan(store.tables["a", "eth0"].rates).all()
    assert (store.reports["implausible"], store.totals["bytes_acked"]) == (1, 0)


def test_a_nic_has_so_many_connections_at_most_and_those_told_last_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MOST_ROWS", 3)
    store = ConnectionStore()
    hear(store, report(row(local_port=9), row(local_port=8)), now_s=100.0)
    hear(store, report(row(local_port=1), row(local_port=2), at_s=2.0), now_s=101.0)
    assert len(there(store)) == 3
    assert {1, 2} <= set(there(store))
    assert store.reports["overflowed"] == 1


def test_a_connection_told_twice_in_a_message_counts_as_last_told() -> None:
    store = ConnectionStore()
    hear(store, report(row(rtt_us=1), row(rtt_us=2)))
    assert store.tables["a", "eth0"].rows["rtt_us"].tolist() == [2]


@pytest.fixture
def state() -> FleetState:
    made = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    for host, address in (("a", A), ("b", B)):
        port = nic("eth0", ipv4=address, ipv6=None)
        made.members.hear(replace(hello(host), nics=[msgspec.structs.replace(port, speed_bps=10**9)]), 10.0)
    return made


def test_the_answer_tells_whose_a_connection_is_and_who_is_at_its_other_end(state: FleetState) -> None:
    state.traffic.hear_tcp(
        report(row(pid=40, rtt_us=300, cwnd=10), row(remote=OUTSIDE, local_port=7, service=1)), 20.0
    )
    state.traffic.hear_tcp(report(row(B, A, 40_000, 5201), host="b"), 20.0)
    state.traffic.hear_tcp(report(row(pid=40, rtt_us=310, cwnd=10, bytes_acked=125), at_s=2.0), 21.0)
    answer = tcp_views.connections(state, 21.5, host="a")
    first, second = answer["connections"]
    assert (answer["connection_count"], answer["unlisted"]) == (2, 0)
    assert (
        first
        | {
            "host": "a",
            "nic": "eth0",
            "service": "x",
            "local_addr": A,
            "local_port": 5201,
            "remote_addr": B,
            "remote_port": 40_000,
            "peer": "b/eth0",
            "both_ends": True,
            "steered": None,
            "state": "established",
            "process": {"pid": 40, "name": "iperf3", "cgroup": "/pod1"},
            "bps": 1_000.0,
            "received_bps": 0.0,
            "rtt_us": 310,
            "age_s": 0.5,
        }
        == first
    )
    assert (second["service"], second["peer"], second["both_ends"], second["process"]) == (
        "y",
        None,
        False,
        None,
    )
    assert [
        each["local_port"] for each in tcp_views.connections(state, 21.5, service="y")["connections"]
    ] == [7]
    assert tcp_views.connections(state, 21.5, sort="rtt", limit=1)["connections"][0]["rtt_us"] == 310
    assert tcp_views.connections(state, 60.0, host="a/eth0")["connections"][0]["bps"] == 0.0
    assert tcp_views.connections(state, 21.5, host="c")["connections"] == []


def test_a_host_that_names_fewer_services_than_before_does_no_harm(state: FleetState) -> None:
    state.traffic.hear_tcp(report(row(service=1)), 20.0)
    state.traffic.hear_tcp(TcpReport(host="a", at_ns=2 * SECOND_NS, nics=[], services=[]), 20.5)
    assert tcp_views.connections(state, 21.0)["connections"][0]["service"] == ""
    state.traffic.expire(21.0)
    assert state.traffic.tcp.count() == {"both": 0, "one": 1}


def test_a_host_that_is_not_known_is_not_heard(state: FleetState) -> None:
    state.traffic.hear_tcp(report(row(), host="z"), 20.0)
    assert state.traffic.tcp.reports["unknown_nic"] == 1
