"""What the Fleet page says: of fleets of several sizes, of what is wrong, of who is touched and what to do."""

import shlex
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from moments import moment_of

from cwdp.cli import main as command_line
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Subject
from manager.moment.moment import Moment
from manager.overview import advice, details, fleet, job_views
from manager.overview.find import find
from manager.overview.leaf import leaf
from manager.overview.qp_rows import QpRows
from manager.overview.standing import Service, of_now
from manager.overview.tiers import ONE_BY_ONE, tier_map
from manager.planner.planner import Standing
from manager.state import FleetState
from tools.sim.fleet.known import KnownFleet, break_link, known_state

SIZES = [
    KnownFleet(),
    KnownFleet(leaves=3, spines=2, hosts_per_leaf=2, job_hosts=3, peers=2),
    KnownFleet(leaves=30, spines=26, hosts_per_leaf=2, seed=7),
]
PODS = KnownFleet(pods=4, leaves=8, spines=7, cores=5, hosts_per_leaf=2, peers=12, seed=3)
SERVICE = Service(name="m", leader="m", bus_connected=True, keeps_history=True, history_stopped=False)


@pytest.fixture(params=SIZES, ids=lambda size: f"{size.leaves}x{size.spines}x{size.hosts_per_leaf}")
def size(request: pytest.FixtureRequest) -> KnownFleet:
    found: KnownFleet = request.param
    return found


def _rows(state: FleetState, moment: Moment) -> QpRows:
    return QpRows(moment, state, time.monotonic())


def _told(state: FleetState) -> Any:
    moment = moment_of(state)
    standing = of_now(state, SERVICE, time.monotonic())
    return fleet.fleet(moment, standing, _rows(state, moment))


def _used_link(state: FleetState) -> tuple[str, str]:
    """A link between switches that queue pairs cross."""
    talkers = moment_of(state).talkers
    for i in range(len(talkers.names)):
        for a, b in talkers.path(i):
            if a.startswith("l") and b.startswith("s"):
                return a, b
    raise AssertionError("no queue pair leaves its leaf")


def test_a_healthy_fleet_is_well(size: KnownFleet) -> None:
    told = _told(known_state(size))
    assert told["nics"]["probed"] == size.hosts
    assert told["findings"] == []
    assert told["queue_pairs"] == size.hosts * size.queue_pairs
    assert len(told["worst_links"]) == 20
    assert {notice["state"] for notice in told["notices"]} == {"clocks_unsynced"}
    assert told["verdict"]["severity"] == "unknown"


def test_a_silent_link_is_told_with_who_is_touched_and_a_way_off_it(size: KnownFleet) -> None:
    state = known_state(size)
    a, b = _used_link(state)
    break_link(state, a, b)
    told = _told(state)
    assert told["verdict"]["severity"] == "critical"
    (found,) = told["findings"]
    assert (found["severity"], set(found["where"].values())) == ("critical", {"link", a, b})
    assert a in found["title"]
    assert found["touches"]["queue_pairs"] > 0
    assert found["touches"]["jobs"]
    assert told["worst_links"][0]["state"] == "silent"
    commands = [step["command"] for step in found["act"] if step["command"]]
    assert all(words[:3] == ["cwdp", "steer", "set"] for words in map(shlex.split, commands))
    moment = moment_of(state)
    for words in map(shlex.split, commands):
        host, port = words[words.index("--host") + 1], int(words[words.index("--sport") + 1])
        address = words[words.index("--dst") + 1]
        path = state.fabric.routes.ports(f"{host}/nic0", address)[port]
        assert not {(a, b), (b, a)} & {tuple(moment.links.names[number]) for number in path}


@pytest.mark.parametrize("is_live", [True, False])
def test_what_the_planner_went_round_is_told_with_where_to_see_it(is_live: bool) -> None:
    state = known_state(SIZES[0])
    a, b = _used_link(state)
    state.planner.standing = Standing(dead=(DirectedLink(a, b), DirectedLink(b, a)))
    break_link(state, a, b)
    (found,) = advice.findings(replace(moment_of(state), is_live=is_live))
    commands = [shlex.split(step["command"] or "") for step in found["act"]]
    (words,) = [each for each in commands if "qp_rerouted" in each]
    assert ("--until" in words) != is_live
    assert CliRunner().invoke(command_line, [*words[1:], "--help"]).exit_code == 0


def test_the_commands_to_act_are_commands() -> None:
    state = known_state(SIZES[0])
    break_link(state, *_used_link(state))
    finding = Finding(
        number=0,
        kind="slow_sender",
        subject=Subject("host", "h3"),
        confidence=1.0,
        evidence=[],
        start_s=time.time(),
    )
    state.faults.open(finding)
    steps = [step["command"] for each in _told(state)["findings"] for step in each["act"] if step["command"]]
    assert len(steps) == 2
    for step in steps:
        words = shlex.split(step)[1:]
        command: Any = command_line
        with command.make_context("cwdp", [*words, "--help"], resilient_parsing=True):
            pass


@pytest.mark.parametrize("kind", ["dead", "silent", "lossy", "slow", "flapping"])
def test_every_kind_about_links_has_a_title_and_a_step(kind: Any) -> None:
    state = known_state(SIZES[1])
    break_link(state, "l1", "s1", kind, loss=0.02)
    (found,) = _told(state)["findings"]
    assert "l1 - s1" in found["title"]
    assert found["act"]


def test_a_full_link_that_two_jobs_share_is_told() -> None:
    state = known_state(KnownFleet(leaves=4, spines=1, hosts_per_leaf=2, job_hosts=3, peers=3))
    for link in (("l2", "s1"), ("l1", "s1")):
        state.links.stands[moment_of(state).links.number[link]] = True
    told = [each for each in _told(state)["findings"] if each["kind"] == "contention"]
    assert [each["where"] for each in told] == [{"page": "link", "a": "l2", "b": "s1"}]
    assert told[0]["touches"]["jobs"] == ["h1", "h4"]
    assert told[0]["severity"] == "warning"


def test_jobs_are_told_with_their_members_and_rates(size: KnownFleet) -> None:
    state = known_state(size)
    moment = moment_of(state)
    rows = _rows(state, moment)
    listed = job_views.jobs(moment, rows)
    assert sum(each["hosts"] for each in listed) == size.hosts
    for each in listed[:3]:
        one = job_views.job(moment, each["name"], rows)
        assert one is not None
        assert len(one["members"]) == each["hosts"]
        assert sum(member["egress_bps"] for member in one["members"]) == pytest.approx(each["bps"], rel=1e-3)
    assert job_views.job(moment, "nobody", rows) is None


def test_a_link_tells_who_crosses_it_both_ways_and_what_happened(size: KnownFleet) -> None:
    state = known_state(size)
    a, b = _used_link(state)
    break_link(state, b, a, "lossy", 0.02)
    moment = moment_of(state)
    events = [
        {
            "time_s": 1.0,
            "host": "fleet",
            "kind": "link_lossy",
            "nic": None,
            "detail": f"{a} - {b}: 2 %",
            "path": None,
        },
        {
            "time_s": 2.0,
            "host": "fleet",
            "kind": "link_lossy",
            "nic": None,
            "detail": f"{a}1 - {b}: 2 %",
            "path": None,
        },
    ]
    seen = details.link_view(moment, a, b, events, _rows(state, moment))
    assert seen is not None
    assert (seen["there"]["a"], seen["back"]["a"]) == (a, b)
    assert seen["queue_pair_count"] == len(seen["queue_pairs"]) > 0
    assert [each["time_s"] for each in seen["events"]] == [1.0]
    assert {row["job"] for row in seen["queue_pairs"]} == {job["name"] for job in seen["jobs"]}
    assert details.link_view(moment, a, "nowhere", events, _rows(state, moment)) is None


def test_a_queue_pair_is_followed_hop_by_hop(size: KnownFleet) -> None:
    state = known_state(size)
    moment = moment_of(state)
    for i in (0, len(moment.talkers.names) - 1):
        name = moment.talkers.names[i]
        seen = details.qp_view(
            moment, name, _rows(state, moment), details.QpRecord(bound_of=lambda _host: 20.0)
        )
        assert seen is not None
        assert [(hop["a"], hop["b"]) for hop in seen["path"]["hops"]] == moment.talkers.path(i)
        assert seen["path"]["hops"][0]["a"] == name.src
        assert seen["clock_bound_ns"] == 40
        assert seen["ways"] >= 1
    gone = name._replace(qpn=77)
    assert details.qp_view(moment, gone, _rows(state, moment), details.QpRecord()) is None


def test_a_queue_pair_that_stands_still_is_shown_too() -> None:
    state = known_state(SIZES[1])
    name = moment_of(state).talkers.names[0]
    table = state.traffic.queue_pairs.tables[name.host, name.nic]
    table.latest_s += 60.0
    moment = moment_of(state)
    assert name not in moment.talkers.number
    seen = details.qp_view(moment, name, _rows(state, moment), details.QpRecord())
    assert seen is not None
    assert seen["path"]["hops"][0]["a"] == name.src


def test_a_leaf_shows_its_nics_and_what_is_between_them_and_all_leaves(size: KnownFleet) -> None:
    state = known_state(size)
    moment = moment_of(state)
    seen = leaf(moment, "l2", None, _rows(state, moment))
    assert seen is not None
    assert [each["nic"] for each in seen["nics"]] == [
        size.nic(i) for i in range(size.hosts) if size.leaf(i) == "l2"
    ]
    assert len(seen["uplinks"]) == len(moment.parts.above["l2"])
    assert seen["matrix"]["columns"] == moment.parts.leaves
    pair = leaf(moment, "l2", "l1", _rows(state, moment))
    assert pair is not None
    assert pair["matrix"]["columns"] == moment.parts.nics_at["l1"]
    assert leaf(moment, "l99", None, _rows(state, moment)) is None


def test_a_spine_shows_its_links_down_and_what_crosses_it(size: KnownFleet) -> None:
    state = known_state(size)
    moment = moment_of(state)
    _, spine = _used_link(state)
    seen = leaf(moment, spine, None, _rows(state, moment))
    assert seen is not None
    assert [each["down"]["b"] for each in seen["downlinks"]] == moment.parts.below[spine]
    assert seen["queue_pair_count"] > 0


def test_the_map_has_every_switch_and_cable_once_whatever_is_open(size: KnownFleet) -> None:
    moment = moment_of(known_state(size))
    shown = tier_map(moment)
    groups = [group for tier in shown["tiers"] for group in tier["groups"]]
    assert sum(group["members"] for group in groups) == size.switches
    assert sum(link["count"] for link in shown["links"]) == len(moment.parts.cables)
    assert sum(group["nics"] for group in groups) == size.hosts
    assert all(len(tier["groups"]) <= ONE_BY_ONE for tier in shown["tiers"])
    closed = [group["id"] for group in groups if group["members"] > 1]
    opened = tier_map(moment, closed)
    assert sum(len(tier["groups"]) for tier in opened["tiers"]) == size.switches
    assert sum(link["count"] for link in opened["links"]) == len(moment.parts.cables)


def test_pods_are_groups_at_every_tier() -> None:
    moment = moment_of(known_state(PODS))
    shown = tier_map(moment)
    assert sum(link["count"] for link in shown["links"]) == len(moment.parts.cables)
    labels = [[group["label"] for group in tier["groups"]] for tier in shown["tiers"]]
    assert labels == [
        [f"p{pod}l1 .. p{pod}l8" for pod in range(1, 5)],
        [f"p{pod}s1 .. p{pod}s7" for pod in range(1, 5)],
        [f"c{core}" for core in range(1, 6)],
    ]


def test_a_broken_link_colours_the_map() -> None:
    state = known_state(SIZES[2])
    break_link(state, "l17", "s20")
    shown = tier_map(moment_of(state))
    bad = [link for link in shown["links"] if link["state"] == "silent"]
    assert len(bad) == 1
    assert set(bad[0]["worst"].values()) == {"l17", "s20"}


@pytest.mark.parametrize(
    ("text", "label"), [("h1", "h1"), ("H2", "h2"), ("l1", "l1"), ("l2 > s1", "l2 > s1"), ("h3/n", "h3/nic0")]
)
def test_names_are_found_by_their_beginnings(text: str, label: str) -> None:
    state = known_state(SIZES[1])
    found = find(moment_of(state), text, iter(state.members.hosts))
    assert label in [each["label"] for each in found]
    assert found[0]["label"].casefold().startswith(text.casefold())


def test_nothing_is_found_by_nothing() -> None:
    assert find(moment_of(known_state(SIZES[1])), "  ", iter(["h1"])) == []


def test_what_is_wrong_with_cwdp_itself_is_told() -> None:
    state = known_state(SIZES[1])
    state.stand_by()
    service = Service(name="b", leader="a", bus_connected=False, keeps_history=True, history_stopped=True)
    told = of_now(state, service, time.monotonic())
    states = {notice["state"] for notice in told["notices"]}
    assert {"bus_away", "standby", "history_stopped"} <= states
    verdict = fleet.verdict([], told["notices"], told["nics"])
    assert verdict["severity"] == "critical"


def test_touched_are_those_at_a_host_too() -> None:
    state = known_state(SIZES[0])
    moment = moment_of(state)
    finding = {"subject": {"kind": "host", "name": "h3", "links": []}, "also": []}
    places = advice.touched(finding, moment)
    names = [moment.talkers.names[i] for i in places]
    assert {name.host for name in names} | {moment.talkers.dst[i].partition("/")[0] for i in places} >= {"h3"}
    assert len(places) == 2 * SIZES[0].queue_pairs
    assert np.all(np.diff(moment.talkers.rate_bps[places]) <= 0)
