"""From connections that agents tell of to what their documents want, and back from what is steered; in arithmetic."""

import pytest
from msgspec.structs import replace
from tcp_fleet import PEER, PORTS, TcpFleet, steered

from cwdp.shared.bus.messages import SteerQp, SteerReport
from cwdp.shared.tcp import SteerTcp
from manager.tcp.names import Connection
from manager.tcp.steered import SteeredConnections
from manager.view import tcp_views


def _steer(sport: int = 50_001, port: int = 40_001) -> SteerTcp:
    return SteerTcp(
        nic="nic0",
        local_addr="10.0.0.1",
        remote_addr="10.0.0.2",
        local_port=port,
        remote_port=5_201,
        sport=sport,
        backup_sport=60_000,
    )


@pytest.mark.parametrize("version", [4, 6])
def test_connections_are_traced_placed_apart_and_both_ends_are_told(version: int) -> None:
    fleet = TcpFleet(version=version)
    fleet.run(12.0)
    assert {fleet.spine(host) for host in PORTS} == {fleet.clos.switch("spine", n) for n in (1, 2)}
    for host, document in fleet.documents.items():
        (steer,) = document.tcp
        here, there = (fleet.clos.hosts[each][0].address for each in (host, PEER[host]))
        assert (steer.local_addr, steer.remote_addr) == (here, there)
        assert (steer.local_port, steer.remote_port) == (PORTS.get(host, 5_201), PORTS.get(PEER[host], 5_201))
        assert (steer.ports, steer.flow_label) == (True, version == 6)
        assert steer.backup_sport is not None
        assert document.steer == []
        (order,) = document.tcp_traces
        assert order.dst_addr == there
        assert {steer.sport, steer.backup_sport} <= set(order.sports)
        assert all(not order.dst_addr.startswith("tcp") for order in document.traces)
    assert fleet.state.planner.counters["refused"] == 0
    texts = [event.detail for event in fleet.state.events if event.kind == "qp_rerouted"]
    assert texts
    assert all("TCP connection" in text and "queue pair" not in text for text in texts)


def test_people_are_told_which_way_a_connection_goes() -> None:
    fleet = TcpFleet()
    fleet.run(12.0)
    (shown,) = tcp_views.connections(fleet.state, fleet.now_s, host="h1")["connections"]
    (steer,) = fleet.documents["h1"].tcp
    assert shown["steered"] | {"moves": 0} == {
        "standing": "primary",
        "sport": steer.sport,
        "backup_sport": steer.backup_sport,
        "used_sport": steer.sport,
        "failed_over": False,
        "nodes": [fleet.clos.switch("leaf", 1), fleet.spine("h1"), fleet.clos.switch("leaf", 2)],
        "set_by": "planner",
        "moves": 0,
        "bytes": 0,
    }


def test_agents_of_before_are_told_of_no_connections() -> None:
    fleet = TcpFleet(tells=False)
    fleet.run(6.0)
    assert all(not document.tcp and not document.tcp_traces for document in fleet.documents.values())
    assert fleet.state.planner.counters["refused"] == 0


def test_a_manager_that_begins_goes_on_with_what_documents_say() -> None:
    fleet = TcpFleet()
    fleet.run(12.0)
    before = {host: document.tcp for host, document in fleet.documents.items()}
    after = TcpFleet()
    for host, document in fleet.documents.items():
        after.state.planner.take_up(host, document.steer, after.now_s, document.tcp)
        after.state.discovery.take_up(document)
        after.documents[host] = replace(after.documents[host], tcp=document.tcp)
    after.run(2.0)
    assert {host: document.tcp for host, document in after.documents.items()} == before


def test_what_hosts_say_is_steered_is_known_by_connection() -> None:
    fleet = TcpFleet()
    hello = fleet.hello("h1")
    known = SteeredConnections()
    rows = [
        steered(_steer()),
        steered(_steer(port=40_002), failed_over=True),
        replace(steered(_steer(port=40_003), confirmed=False), managed=False),
        steered(replace(_steer(port=40_004), nic="nic9")),
        steered(_steer(sport=80, port=40_005)),
    ]
    known.hear(SteerReport(host="h1", managed=[], by_hand=[], tcp=rows), hello)
    names = [Connection("h1", "nic0", port, "10.0.0.2", 5_201).name for port in range(40_001, 40_006)]
    assert [known.of(name) for name in names] == [*rows[:3], None, None]
    assert known.count() == {"primary": 1, "backup": 1, "unconfirmed": 1}
    assert known.ports() == {names[0]: 50_001, names[1]: 60_000}
    assert [steer.local_port for steer in known.managed("h1")] == [40_001, 40_002]
    assert list(known.by_hand("h1")) == [names[2]]
    known.hear(SteerReport(host="h1", managed=[], by_hand=[], tcp=[steered(_steer(50_009))]), hello)
    assert known.moves == {names[0]: 1}
    known.keep_only([])
    assert known.count().total() == 0
    assert known.moves == {}
    assert known.nics == set()


def test_queue_pairs_and_connections_of_a_host_are_adopted_together() -> None:
    fleet = TcpFleet()
    qp = SteerQp(nic="nic0", dst_addr=fleet.clos.hosts["h3"][0].address, qpn=17, sport=50_000)
    fleet.state.planner.take_up("h1", [qp], fleet.now_s, [_steer()])
    assert fleet.state.planner.planned == {"h1": [qp]}
    assert fleet.state.planner.planned_tcp == {"h1": [_steer()]}
