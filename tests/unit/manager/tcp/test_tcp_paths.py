"""The paths of one TCP connection as people are told, both ways, and those between two hosts."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tcp_fleet import PEER, TcpFleet, steered

from cwdp.errors import ConfigError
from cwdp.shared.tcp import PulseDelay, SteeredTcp, SteerTcp
from manager.view.fabric_views import path
from manager.view.tcp_paths import connection_paths

NAME = "h1/nic0:40001 - h3/nic0:5201"
DELAY = PulseDelay(pulses=500, min_ns=5_000, p50_ns=7_000, bound_ns=90)
BACKUP_DELAY = replace(DELAY, p50_ns=9_000)


def with_delays(steer: SteerTcp) -> SteeredTcp:
    return replace(steered(steer), delay=DELAY, backup_delay=BACKUP_DELAY)


@pytest.fixture(scope="module")
def fleet() -> TcpFleet:
    fleet = TcpFleet()
    fleet.as_steered = with_delays
    fleet.run(12.0)
    return fleet


def links_of(way: dict[str, Any]) -> list[str]:
    return [link["a"] for link in way["links"]] + [way["links"][-1]["b"]]


def test_both_directions_are_told_with_links_and_delays(fleet: TcpFleet) -> None:
    told = json.loads(json.dumps(connection_paths(fleet.state, NAME)))
    assert (told["connection"], told["service"]) == (NAME, "x")
    for way, host in zip(told["ways"], ("h1", "h3"), strict=True):
        (steer,) = fleet.documents[host].tcp
        assert (way["src"], way["dst"]) == (f"{host}/nic0", f"{PEER[host]}/nic0")
        assert (way["local_port"], way["remote_port"]) == (steer.local_port, steer.remote_port)
        assert (way["standing"], way["set_by"]) == ("primary", "planner")
        assert (way["path"]["sport"], way["backup"]["sport"]) == (steer.sport, steer.backup_sport)
        assert (way["path"]["owd"]["p50_ns"], way["backup"]["owd"]["p50_ns"]) == (7_000, 9_000)
        for each in (way["path"], way["backup"]):
            assert links_of(each) == [way["src"], *each["nodes"], way["dst"]]
        assert way["path"]["nodes"][1] == fleet.spine(host)
        assert way["backup"]["nodes"][1] != fleet.spine(host)
        known = {port["sport"]: port for port in way["known"]["ports"]}
        assert known[steer.sport]["nodes"] == way["path"]["nodes"]
        assert known[steer.sport]["in_use"]
        assert (way["known"]["protocol"], way["known"]["dst_addr"]) == ("tcp", steer.remote_addr)
    turned = connection_paths(fleet.state, " - ".join(reversed(NAME.split(" - "))))
    assert turned["ways"] == told["ways"][::-1]


def test_one_that_is_not_steered_has_no_path_that_is_known() -> None:
    fleet = TcpFleet()
    fleet.names.discard("h3")
    fleet.run(3.0)
    told = connection_paths(fleet.state, NAME)
    assert [(way["standing"], way["path"], way["backup"]) for way in told["ways"]] == [(None, None, None)] * 2


def test_the_end_of_a_stranger_has_no_paths() -> None:
    fleet = TcpFleet()
    there = fleet.clos.hosts["h3"][0].address
    fleet.run(1.0)
    fleet.state.put_out("h3", fleet.now_s)
    fleet.state.traffic.expire(fleet.now_s)
    told = connection_paths(fleet.state, f"h1/nic0:40001 - {there}:5201")
    assert [(way["src"], way["dst"], way["known"]) for way in told["ways"]] == [
        ("h1/nic0", there, None),
        (there, "h1/nic0", None),
    ]
    with pytest.raises(ConfigError, match="no agent tells of"):
        connection_paths(fleet.state, NAME)


def test_paths_of_tcp_and_of_rocev2_are_told_apart(fleet: TcpFleet) -> None:
    found = {tcp: path(fleet.state.discovery, "h1", "h3", tcp=tcp)["pairs"] for tcp in (False, True)}
    for tcp, pairs in found.items():
        assert [(pair["protocol"], pair["dst"]) for pair in pairs] == [
            ("tcp" if tcp else "rocev2", "h3/nic0")
        ]
    assert found[True][0]["dst_addr"] == found[False][0]["dst_addr"]
