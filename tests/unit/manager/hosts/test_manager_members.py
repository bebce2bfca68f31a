"""Membership and when to rebuild the graph over it; time is an argument."""

import math
from typing import Any

import msgspec
import pytest
from fakes import fleet, hello, nic, ud_nic

from cwdp.shared.bus.messages import Desired, Leader, ProbeEdge
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.hosts.members import FORGET_AFTER_S, GRACE_S, MISSED_HELLOS, Members
from manager.probing.graph_timer import FIRST_AFTER_S, LATEST_S, QUIET_S, TAKE_UP_AFTER_S, GraphTimer
from manager.state import FleetState


def _reasons(members: Members, now_s: float) -> list[str]:
    return [members.reason(host, n, now_s) for host in members.hosts.values() for n in host.hello.nics]


def test_a_host_is_lost_after_missed_hellos_and_comes_back() -> None:
    members = Members()
    assert members.hear(hello("a"), 0.0)
    assert not members.hear(hello("a"), 1.0)
    assert members.expire(1.0 + MISSED_HELLOS) == []
    assert members.expire(1.1 + MISSED_HELLOS) == ["a"]
    assert members.expire(9.0) == []
    assert _reasons(members, 9.0) == ["host_lost"]
    assert members.hear(hello("a"), 10.0)
    assert _reasons(members, 10.0) == ["ok"]


def test_a_lost_host_keeps_its_place_in_the_probe_graph_for_a_while() -> None:
    members, lost_s = Members(), float(MISSED_HELLOS)
    members.hear(hello("a"), 0.0)
    members.hear(hello("b"), lost_s + GRACE_S)
    assert members.expire(lost_s + 0.1) == ["a"]
    assert [host for host, _ in members.probeable(lost_s + GRACE_S)] == ["a", "b"]
    assert _reasons(members, lost_s + GRACE_S)[0] == "host_lost"
    assert [host for host, _ in members.probeable(lost_s + GRACE_S + 0.1)] == ["b"]


def test_a_lost_host_is_forgotten_in_the_end() -> None:
    members = Members()
    members.hear(hello("a"), 0.0)
    members.expire(100.0)
    members.expire(FORGET_AFTER_S + 1)
    assert members.hosts == {}


def test_silence_of_the_bus_is_nobodys_fault() -> None:
    members = Members()
    members.hear(hello("a"), 0.0)
    members.excuse(100.0)
    assert members.expire(101.0) == []


def test_a_nic_keeps_its_place_for_a_while_without_carrier() -> None:
    members = Members()
    down = msgspec.structs.replace(hello("a"), nics=[msgspec.structs.replace(nic(), carrier=False)])
    members.hear(down, 0.0)
    members.hear(down, GRACE_S)
    assert _reasons(members, GRACE_S) == ["ok"]
    assert _reasons(members, GRACE_S + 1) == ["no_carrier"]
    members.hear(hello("a"), GRACE_S + 2)
    members.hear(down, GRACE_S + 3)
    assert _reasons(members, GRACE_S + 4) == ["ok"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ipv4": None, "ipv6": None}, "no_address"),
        ({"mode": "absent"}, "no_dataplane"),
        ({"mode": "absent", "transport": "ud"}, "no_rdma"),
        ({"ipv4": None, "ipv6": None, "transport": "ud"}, "no_rdma"),
    ],
)
def test_why_a_nic_is_not_probed(changes: dict[str, Any], reason: str) -> None:
    members = Members()
    members.hear(msgspec.structs.replace(hello("a"), nics=[msgspec.structs.replace(nic(), **changes)]), 0.0)
    assert _reasons(members, 0.0) == [reason]
    assert list(members.probeable(0.0)) == []


@pytest.mark.parametrize(
    ("has", "in_use", "reason"),
    [
        ([1], {1}, "ok"),
        ([1], {1, 2}, "ok"),
        ([1, 2], {2}, "ok"),
        ([1], {2}, "no_key"),
        ([255], {0, 1}, "no_key"),
        ([1], set(), "ok"),
        ([], {2}, "ok"),
    ],
)
def test_a_host_with_none_of_the_keys_in_use_is_not_probed(
    has: list[int], in_use: set[int], reason: str
) -> None:
    members = Members()
    members.keys_in_use = lambda: in_use
    members.hear(msgspec.structs.replace(hello("a"), key_ids=has), 0.0)
    assert _reasons(members, 0.0) == [reason]


def test_whose_keys_the_others_do_not_have_is_told_also_where_nobody_says_which_are_in_use() -> None:
    members = Members()
    for name, has in (("a", [1, 2]), ("b", [2]), ("c", [1]), ("d", []), ("e", [2])):
        members.hear(msgspec.structs.replace(hello(name), key_ids=has), 0.0)
    assert members.without_keys() == ["c"]
    members.keys_in_use = lambda: {1}
    assert members.without_keys() == ["b", "e"]


def test_a_nic_with_ud_queue_pairs_needs_no_dataplane() -> None:
    members = Members()
    members.hear(msgspec.structs.replace(hello("a"), nics=[ud_nic()]), 0.0)
    assert _reasons(members, 0.0) == ["ok"]


def test_a_new_queue_pair_is_a_reason_to_tell_its_peers() -> None:
    timer = GraphTimer()

    def due(qpn: int, now_s: float) -> bool:
        return timer.due([("a", ud_nic(qpn=qpn)), ("b", ud_nic(gid="fd00::2"))], now_s, taken_up=False)

    assert [due(17, 0.0), due(17, FIRST_AFTER_S), due(17, 5.0)] == [False, True, False]
    assert [due(18, 6.0), due(18, 6.0 + QUIET_S), due(18, 7.0)] == [False, True, False]


def test_restarts_are_counted() -> None:
    members = Members()
    for boot in ("x", "x", "y"):
        members.hear(hello("a", boot_id=boot), 0.0)
    assert members.hosts["a"].restarts == 1


def _times_due(
    timer: GraphTimer,
    arrivals: list[float],
    *,
    taken_up: bool = False,
    expected: int | None = None,
    until_s: float = 12.0,
) -> list[float]:
    """When the timer fires, as member h_i arrives at arrivals[i]; all are there once so many are, where that is known."""
    due = []
    for tick in range(round(until_s * 10)):
        now_s = tick / 10
        members = [(f"h{i}", nic()) for i, at in enumerate(arrivals) if at <= now_s]
        complete = len(members) == expected
        if timer.due(members, now_s, taken_up=taken_up and not complete, complete=complete):
            due.append(now_s)
    return due


def test_the_first_graph_waits_for_all_to_say_hello() -> None:
    assert _times_due(GraphTimer(), [0, 0.3, 0.9]) == [pytest.approx(0.9 + QUIET_S, abs=0.11)]
    assert _times_due(GraphTimer(), [0]) == [pytest.approx(FIRST_AFTER_S, abs=0.11)]


def test_a_fleet_that_was_directed_before_is_given_time_to_come_back() -> None:
    assert _times_due(GraphTimer(), [0, 4], taken_up=True) == [pytest.approx(TAKE_UP_AFTER_S, abs=0.11)]


def test_once_all_that_were_probed_before_are_back_nobody_else_is_waited_for() -> None:
    for arrivals, first_s in (([0, 0.3, 1.0], FIRST_AFTER_S), ([0, 0.3, 1.8], 1.8)):
        due = _times_due(GraphTimer(), arrivals, taken_up=True, expected=3)
        assert due == [pytest.approx(first_s, abs=0.05)]


def test_a_graph_that_changes_later_waits_for_quiet_also_where_all_are_back() -> None:
    due = _times_due(GraphTimer(), [0, 0.3, 5], taken_up=False, expected=3)
    assert due[1:] == [pytest.approx(5 + QUIET_S, abs=0.11)]


def _probe(src: str, dst: str) -> ProbeEdge:
    return ProbeEdge(
        src=f"{src}/eth0",
        dst=f"{dst}/eth0",
        src_addr="10.0.0.1",
        dst_addr="10.0.0.2",
        sports=[50_000],
        reply_sports=[50_001],
        pairs_per_s=10.0,
    )


@pytest.mark.parametrize("count", [3, 7])
@pytest.mark.parametrize("silent", [0, 1])
def test_a_manager_that_takes_over_waits_for_hosts_only_while_some_that_are_probed_are_silent(
    count: int, silent: int
) -> None:
    hosts = fleet(count, "nats://127.0.0.1:1")
    for host in hosts:
        probes = [_probe(host.name, peer.name) for peer in hosts if peer is not host]
        host.desired = Desired(host=host.name, version=5, probes=probes)
    state = FleetState(Identity(timeline="t", starts=2), ProbeSettings(), continued=False)
    timer = GraphTimer()
    for tick in range(100):
        now_s = tick / 10
        for host in hosts[silent:]:
            state.hear_hello(host.hello(), now_s)
            state.hear_report(host.report(), now_s)
        edges = state.clock.begin(now_s)
        solved = None if edges is None else state.clock.solve_edges(edges)
        if edges is not None and solved is not None:
            state.clock.finish(edges, solved, now_s)
        if timer.due(state.probeable(now_s), now_s, taken_up=state.awaits_hosts()):
            break
    assert now_s == pytest.approx(TAKE_UP_AFTER_S if silent else FIRST_AFTER_S, abs=0.11)


def test_endless_arrivals_do_not_put_the_graph_off_for_ever() -> None:
    first, *_ = _times_due(GraphTimer(), [i * 0.2 for i in range(60)])
    assert first == pytest.approx(LATEST_S, abs=0.11)


def test_hosts_without_nics_that_are_to_be_told_something_have_a_graph_once() -> None:
    timer = GraphTimer()
    assert not any(timer.due([], now_s, taken_up=False) for now_s in (0.0, 5.0))
    due = [now_s for now_s in range(6, 20) if timer.due([], now_s, taken_up=False, without_nics=True)]
    assert due == [6 + math.ceil(FIRST_AFTER_S)]


def test_a_flapping_carrier_does_not_rebuild_the_graph() -> None:
    timer = GraphTimer()
    assert timer.due([("a", nic()), ("b", nic())], 0.0, taken_up=False) is False
    assert timer.due([("a", nic()), ("b", nic())], 2.0, taken_up=False) is True
    down = msgspec.structs.replace(nic(), carrier=False)
    assert not any(timer.due([("a", down), ("b", nic())], 3.0 + i, taken_up=False) for i in range(5))


@pytest.mark.parametrize("silent", [0, 1])
@pytest.mark.parametrize("without", [0, 1])
def test_hosts_that_were_probed_are_back_once_all_that_documents_name_are_there(
    silent: int, without: int
) -> None:
    hosts = fleet(4, "nats://127.0.0.1:1")
    documents = {
        host.name: Desired(
            host=host.name,
            version=5,
            probes=[_probe(host.name, peer.name) for peer in hosts if peer is not host],
        )
        for host in hosts
    }
    state = FleetState(Identity(timeline="t", starts=2), ProbeSettings(), continued=False)
    state.lead(0.0, Leader(epoch=2, since_s=1.0), timeline="t", others_led=False)
    for host in hosts:
        host.desired = documents[host.name]
    for host in hosts[silent:]:
        state.hear_hello(host.hello(), 0.1)
    assert state.awaits_hosts()
    for number, name in enumerate(list(state.members.hosts)):
        assert state.awaits_hosts()
        state.take_up(name, documents[name] if number >= without else None, 0.2)
    assert state.awaits_hosts() == bool(silent or without)
