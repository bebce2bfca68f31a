"""What operators want of TCP connections: by which names, what is refused, and what both ends are told."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tcp_fleet import PORTS, TcpFleet, steered

from cwdp.errors import ConfigError
from cwdp.shared.bus.messages import Leader, SteerReport
from cwdp.shared.tcp import SteerTcp
from manager.api.tcp_asked import TcpAsked, mirrored, withdrawn
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.overrides.tcp import TcpOverride, TcpTable
from manager.tcp.named import read_name
from manager.view import steer_views, tcp_views

NAME = "h1/nic0:40001 - h3/nic0:5201"
BACK = "h3/nic0:5201 - h1/nic0:40001"
WANTED = {"sport": 50_001, "backup_sport": 50_002, "back_sport": 50_003, "back_backup_sport": 50_004}


def ask(fleet: TcpFleet, connection: str = NAME, **changes: Any) -> TcpOverride:
    """What is kept of a question."""
    state = fleet.state
    asked = TcpAsked(state.members, state.traffic.tcp, state.planner.steered_tcp)
    return asked.read(
        json.dumps({"connection": connection, **(changes or WANTED)}).encode(), state.fabric.routes
    )


def planned(fleet: TcpFleet) -> dict[str, list[SteerTcp]]:
    return {host: document.tcp for host, document in fleet.documents.items()}


def ports(steers: list[SteerTcp]) -> list[tuple[int, int | None]]:
    return [(steer.sport, steer.backup_sport) for steer in steers]


@pytest.fixture(scope="module")
def fleet() -> TcpFleet:
    fleet = TcpFleet()
    fleet.run(12.0)
    return fleet


@pytest.mark.parametrize(
    "text",
    ["", "h1/nic0:1", "h1/nic0:1 - h2/nic0", "h1/nic0:0 - h2/nic0:1", "h1/nic0:1 - h2/nic0:70000", "a b"],
)
def test_what_names_no_connection_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no TCP connection") as refused:
        read_name(text)
    assert "h1/nic0:41556 - h3/nic0:5201" in (refused.value.hint or "")


def test_a_name_is_read_as_it_is_shown() -> None:
    for text in (NAME, "h1/nic0:41106 - fd00::2:5201", "h1/nic0.7:9 - 10.0.0.1:65535"):
        assert str(read_name(f" {text.replace(' - ', '  - ')} ")) == text


def test_a_connection_is_found_by_either_end_and_by_address(fleet: TcpFleet) -> None:
    (there, back) = (fleet.clos.hosts[host][0].address for host in ("h3", "h1"))
    wanted = ask(fleet)
    assert wanted.name == NAME
    assert (wanted.near.addr, wanted.far.addr) == (back, there)
    assert ask(fleet, f"h1/nic0:40001 - {there}:5201") == wanted
    turned = ask(fleet, BACK)
    assert (turned.name, turned.key) == (BACK, wanted.key)
    assert (turned.near.sport, turned.far.sport) == (50_001, 50_003)


@pytest.mark.parametrize(
    ("connection", "message", "hint"),
    [
        ("h9/nic0:1 - h3/nic0:5201", "knows no host 'h9'", "cwdp host"),
        ("h1/nic9:1 - h3/nic0:5201", "h1 has no interface 'nic9'", "cwdp host"),
        ("h1/nic0:40001 - 192.0.2.9:5201", "has no agent", "run an agent there too"),
        ("h1/nic0:40001 - h3/nic0:5202", "no agent tells of the TCP connection", "`cwdp tcp` lists"),
        ("h2/nic0:40001 - h3/nic0:5201", "no agent tells of the TCP connection", "docs/tcp.md"),
    ],
)
def test_a_connection_that_is_not_known_is_refused(
    fleet: TcpFleet, connection: str, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        ask(fleet, connection)
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sport": 80}, "sport"),
        ({**WANTED, "nonsense": 1}, "nonsense"),
        ({**WANTED, "backup_sport": 50_001}, "own backup"),
        ({**WANTED, "back_backup_sport": 50_003}, "own backup"),
    ],
)
def test_an_impossible_path_is_refused(fleet: TcpFleet, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(fleet, **changes)


def test_a_far_end_that_tells_nothing_is_refused() -> None:
    for host in ("h1", "h3"):
        fleet = TcpFleet()
        fleet.names.discard(host)
        fleet.run(1.0)
        with pytest.raises(ConfigError, match=f"agent of {host} does not tell of") as refused:
            ask(fleet)
        assert f"configuration of {host}'s agent" in (refused.value.hint or "")
        fleet.names.add(host)
        fleet.tells.discard(host)
        fleet.run(1.0)
        with pytest.raises(ConfigError, match=f"agent of {host} has not told which"):
            ask(fleet)
        fleet.tells.add(host)
        fleet.observers.add(host)
        fleet.run(1.0)
        with pytest.raises(ConfigError, match=f"{host} only observes"):
            ask(fleet)


def test_the_way_back_goes_over_the_same_links_unless_told_otherwise(fleet: TcpFleet) -> None:
    state, routes = fleet.state, fleet.state.fabric.routes
    here, there = (
        ("h1/nic0", f"tcp:{fleet.clos.hosts['h3'][0].address}"),
        (
            "h3/nic0",
            f"tcp:{fleet.clos.hosts['h1'][0].address}",
        ),
    )
    known = routes.ports(*here)
    first, other = min(known), next(port for port in sorted(known) if known[port] != known[min(known)])
    wanted = ask(fleet, sport=first, backup_sport=other)
    for end, sport in ((wanted.far.sport, first), (wanted.far.backup_sport, other)):
        assert end is not None
        back = [routes.links[n] for n in routes.ports(*there)[end]]
        assert [DirectedLink(b, a) for a, b in reversed(back)] == [routes.links[n] for n in known[sport]]
    assert ask(fleet, sport=first).far.backup_sport is None
    unknown = next(port for port in range(65_535, 0, -1) if port not in known)
    for changes, option in (
        ({"sport": unknown}, "--back-sport"),
        ({"sport": first, "backup_sport": unknown}, "--back-backup"),
    ):
        with pytest.raises(ConfigError, match=f"source port {unknown} leads") as refused:
            ask(fleet, **changes)
        assert f"give one with {option}; `cwdp path {NAME}`" in (refused.value.hint or "")
    assert state.overrides.tcp.all() == []


def test_a_path_that_is_mirrored_crosses_the_same_links() -> None:
    links = tuple(
        DirectedLink(*pair) for pair in (("a", "s1"), ("s1", "b"), ("b", "s1"), ("s1", "a"), ("b", "s2"))
    )
    routes = Routes(
        1,
        links,
        {PathName("a", "y", 1): (0, 1), PathName("b", "x", 9): (2, 3), PathName("b", "x", 8): (4, 3)},
    )
    assert mirrored(routes, ("a", "y"), 1, ("b", "x")) == 9
    assert mirrored(routes, ("a", "y"), 2, ("b", "x")) is None
    assert mirrored(routes, ("a", "y"), 1, ("c", "x")) is None


def test_the_file_keeps_what_was_wanted_of_both_ends(fleet: TcpFleet, tmp_path: Path) -> None:
    table, wanted = TcpTable(tmp_path / "tcp.json"), ask(fleet)
    assert table.set(wanted) is None
    assert table.set(ask(fleet, BACK)) == wanted
    again = TcpTable(tmp_path / "tcp.json")
    assert [one.name for one in again.all()] == [BACK]
    assert [len(again.all(host)) for host in ("h1", "h2", "h3")] == [1, 0, 1]
    there = fleet.clos.hosts["h3"][0].address
    for name in (NAME, BACK, f"h1/nic0:40001 - {there}:5201"):
        assert withdrawn(again, name).name == BACK
    with pytest.raises(ConfigError, match="no operator steers"):
        withdrawn(again, "h1/nic0:40001 - h3/nic0:5202")
    assert again.unset(wanted.key) is not None
    assert TcpTable(tmp_path / "tcp.json").all() == []


@pytest.mark.parametrize("version", [4, 6])
def test_both_ends_are_told_and_the_planner_keeps_off_until_it_is_released(version: int) -> None:
    fleet = TcpFleet(version=version)
    fleet.run(12.0)
    state, before = fleet.state, planned(fleet)
    sports = {spine: _port_over(fleet, spine) for spine in (1, 2)}
    wanted = ask(fleet, sport=sports[1], backup_sport=sports[2])
    state.overrides.tcp.set(wanted)
    fleet.run(8.0)
    after = planned(fleet)
    for end in wanted.ends:
        assert ports(after[end.host]) == [(end.sport, end.backup_sport)]
        assert [(one.override, one.ports, one.flow_label) for one in after[end.host]] == [
            (True, True, version == 6)
        ]
        assert end.host not in state.planner.planned_tcp
        (order,) = fleet.documents[end.host].tcp_traces
        assert {end.sport, end.backup_sport} <= set(order.sports)
    assert fleet.spine("h1") == fleet.clos.switch("spine", 1)
    assert fleet.spine("h2") == fleet.clos.switch("spine", 2)
    (shown,) = tcp_views.connections(state, fleet.now_s, host="h1")["connections"]
    assert shown["override"] == {"sport": sports[1], "backup_sport": sports[2]}
    assert (shown["steered"]["set_by"], shown["steered"]["standing"]) == ("operator", "primary")
    (listed,) = steer_views.steered(state, "h3")["connections"]
    assert (listed["connection"], listed["set_by"], listed["standing"]) == (BACK, "operator", "primary")
    state.overrides.tcp.unset(wanted.key)
    fleet.run(8.0)
    for host in before:
        assert [one.override for one in planned(fleet)[host]] == [False]
    assert len({fleet.spine(host) for host in PORTS}) == 2
    (listed,) = steer_views.steered(state, "h3")["connections"]
    assert listed["set_by"] == "planner"


def _port_over(fleet: TcpFleet, spine: int) -> int:
    """A port by which the connection from h1 crosses a spine."""
    routes, switch = fleet.state.fabric.routes, fleet.clos.switch("spine", spine)
    known = routes.ports("h1/nic0", f"tcp:{fleet.clos.hosts['h3'][0].address}")
    return min(port for port, way in known.items() if any(routes.links[n].b == switch for n in way))


def test_what_a_host_does_not_do_yet_is_listed_so(fleet: TcpFleet) -> None:
    state, wanted = fleet.state, ask(fleet)
    state.overrides.tcp.set(wanted)
    try:
        (listed,) = steer_views.steered(state, "h1")["connections"]
        assert (listed["sport"], listed["set_by"], listed["standing"]) == (50_001, "operator", None)
        ((_, message), _) = wanted.messages()
        told = [steered(message, confirmed=False)]
        state.hear_steering(SteerReport(host="h1", managed=[], by_hand=[], tcp=told), fleet.now_s)
        (listed,) = steer_views.steered(state, "h1")["connections"]
        assert listed["standing"] == "unconfirmed"
    finally:
        state.overrides.tcp.unset(wanted.key)


def test_who_takes_over_goes_on_with_it() -> None:
    before = TcpFleet()
    before.run(12.0)
    before.state.overrides.tcp.set(ask(before))
    before.run(2.0)
    told = planned(before)
    after = TcpFleet()
    state = after.state
    state.stand_by()
    state.overrides.tcp.load(before.state.overrides.tcp.dump())
    state.lead(after.now_s, Leader(2), timeline="t", others_led=True)
    for host, document in before.documents.items():
        state.take_up(host, document, after.now_s)
        after.documents[host] = document
    members = state.probeable(after.now_s)
    for document in state.schedule(members, state.build_graph(members)):
        after.documents[document.host] = replace(document)
    after.run(2.0)
    assert planned(after) == told
    assert [one.override for host in ("h1", "h3") for one in told[host]] == [True, True]
