"""The InfiniBand lab: it stays between commands, its links break as told, it goes also after trouble."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import need
import pytest
from click.testing import CliRunner, Result
from conftest import free_port, lab_name

from cwdp.cli.client import ManagerClient
from tools.ib.lab import programs, state
from tools.ib.lab.faults import KEEPER
from tools.ib.simulated import LIBRARY
from tools.ib.topology import port_of
from tools.lab_cli import lab as lab_group
from tools.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

NOTICED_S = 30.0


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    """A lab of two leaves with two links to each of two spines."""
    for what in (*programs.NEEDED, LIBRARY):
        need.installed(what)
    name = lab_name("ib")
    try:
        told("up", "--leaves", "2", "--spines", "2", "--hosts", "2", "--parallel", "2", name=name)
        yield name
    finally:
        told("down", name=name)
    assert not programs.running(name)
    assert not state.run_dir(name).exists()


@pytest.fixture(autouse=True)
def healed(name: str) -> Iterator[None]:
    yield
    for link in status(name)["links"]:
        if link["faults"] or link["growing"]:
            told("heal", "-".join(port_of(link[end])[0] for end in "ab"), name=name)


def invoke(*arguments: str, name: str) -> Result:
    words = 2 if arguments[0] == "fleet" else 1
    return CliRunner().invoke(lab_group, ["ib", *arguments[:words], "--name", name, *arguments[words:]])


def told(*arguments: str, name: str) -> str:
    done = invoke(*arguments, name=name)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def status(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told("status", "--json", name=name))
    return found


def link(name: str, end: str) -> dict[str, Any]:
    return next(one for one in status(name)["links"] if end in (one["a"], one["b"]))


def read(name: str, *arguments: str) -> Any:
    """What `cwdp ib` tells at h1."""
    lab = [sys.executable, "-m", "tools.lab", "ib", "exec", "--name", name, "h1", "--"]
    done = subprocess.run(
        [*lab, sys.executable, "-m", "cwdp", "ib", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def ways(name: str) -> list[list[str]]:
    return [one["ports"] for one in read(name, "path", "h1", "h3")["ways"]]


def test_it_is_there_once(name: str) -> None:
    again = ("up", "--leaves", "2", "--spines", "2", "--hosts", "2", "--parallel", "2")
    assert "already up and complete" in told(*again, name=name)
    assert "another InfiniBand lab" in str(invoke(*again, "--lmc", "1", name=name).exception)
    found = status(name)
    assert found["lacking"] == []
    assert {node["lmc"] for node in found["nodes"] if node["name"].startswith("h")} == {2}
    assert all((one["state"], one["rate_bps"]) == ("Active", 96_000_000_000) for one in found["links"])


def test_routes_leave_a_link_that_is_cut_and_come_back(name: str) -> None:
    by = {way[1] for way in ways(name)}
    assert by == {"l1:3", "l1:4", "l1:5", "l1:6"}
    told("cut", "l1-s1", name=name)
    assert link(name, "l1:3")["faults"] == link(name, "l1:4")["faults"] == ["cut"]
    assert wait_for(lambda: {way[1] for way in ways(name)} == {"l1:5", "l1:6"}, NOTICED_S)
    told("heal", "s1-l1", name=name)
    assert wait_for(lambda: {way[1] for way in ways(name)} == by, NOTICED_S)


def test_one_of_parallel_links_is_cut(name: str) -> None:
    told("cut", "l1-s2", "--port", "6", name=name)
    told("cut", "l1-s2", "--port", "6", name=name)
    assert [link(name, f"l1:{port}")["state"] for port in (3, 4, 5, 6)] == ["Active"] * 3 + ["Down"]


@pytest.mark.parametrize(
    ("option", "rate_bps"),
    [(("--width", "4"), 32e9), (("--speed", "5gbit"), 48e9), (("--width", "1", "--speed", "2.5gbit"), 2e9)],
)
def test_a_link_gets_slower_and_stays_so_when_it_was_away(
    name: str, option: tuple[str, ...], rate_bps: float
) -> None:
    told("degrade", "l2-s1", "--port", "4", *option, name=name)
    assert link(name, "l2:4")["rate_bps"] == rate_bps
    told("cut", "l2-s2", name=name)
    told("heal", "l2-s2", name=name)
    slow = [one for one in read(name, "fabric")["links"] if one["rate_bps"] == rate_bps]
    assert [{one["a"], one["b"]} for one in slow] == [{"l2:4", "s1:4"}]
    told("heal", "l2-s1", name=name)
    assert link(name, "l2:4")["rate_bps"] == 96e9


def test_a_slow_link_can_be_cut_and_healed(name: str) -> None:
    told("degrade", "l2-s1", "--width", "1", name=name)
    told("cut", "l2-s1", name=name)
    assert "is cut" in str(invoke("degrade", "l2-s1", "--width", "4", name=name).exception)
    told("heal", "l2-s1", name=name)
    assert wait_for(lambda: link(name, "l2:3")["state"] == "Active", NOTICED_S)
    assert link(name, "l2:3")["rate_bps"] == 96e9


@pytest.mark.parametrize(("verb", "counter"), [("errors", "symbol_errors"), ("congest", "send_wait")])
def test_counters_grow_at_the_end_that_is_named_until_told(name: str, verb: str, counter: str) -> None:
    told(verb, "h2-l1", "--rate", "200", name=name)
    (grown,) = read(name, "counters", "--seconds", "2")["ports"]
    assert grown["port"] == "h2/1"
    assert grown["per_s"][counter] == pytest.approx(200, rel=0.4)
    told(verb, "h2-l1", "--rate", "0", name=name)
    assert status(name)["links"][1]["growing"] == {}
    assert wait_for(lambda: read(name, "counters")["ports"] == [], NOTICED_S)


def test_what_has_counters_grow_is_started_anew_where_it_was_killed(name: str) -> None:
    told("errors", "h2-l1", "--rate", "50", name=name)
    for pid, title in programs.running(name).items():
        if title == KEEPER:
            os.kill(pid, signal.SIGKILL)
    assert wait_for(lambda: KEEPER not in programs.running(name).values(), NOTICED_S)
    told("errors", "h2-l1", "--rate", "60", name=name)
    assert wait_for(lambda: KEEPER in programs.running(name).values(), NOTICED_S)


def test_a_fleet_shows_the_subnet_and_goes_alone(name: str) -> None:
    page = f"127.0.0.1:{free_port()}"
    told("fleet", "up", "--at", "h1", "--at", "h4", "--page", page, name=name)
    try:
        fleet = status(name)["fleet"]
        assert fleet["readers"] == ["h1", "h4"]
        client = ManagerClient(fleet["manager"])
        (subnet,) = client.get("/v1/fabric")["infiniband"]
        assert (subnet["switch_count"], subnet["nic_count"], subnet["cable_count"]) == (4, 4, 12)
        again = invoke("fleet", "up", name=name).exception
        assert "is up in" in str(again)
        for pid in programs.running(name, "h4"):
            os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: status(name)["lacking"] == ["the fleet's agent at h4"], NOTICED_S)
    finally:
        told("fleet", "down", name=name)
    assert not programs.running(name, "manager", "h1", "h4")
    assert status(name)["lacking"] == []
    assert "nothing to do" in told("fleet", "down", name=name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fleet", "up", "--at", "l1"), "l1 is no host"),
        (("fleet", "up", "--at", "h9"), "no node 'h9'"),
        (("fleet", "up", "--page", "0.0.0.0:9465"), "can be reached from other machines"),
        (("cut", "l1-l2"), "no link between l1 and l2"),
        (("cut", "l1-s9"), "no node 's9'"),
        (("heal", "l1"), "is no link"),
        (("cut", "l1-s1", "--port", "6"), "port 6 of l1 does not lead to s1"),
        (("exec", "h9", "true"), "no node 'h9'"),
        (("exec", "h1", "no-such-program"), "cannot run"),
    ],
)
def test_what_cannot_be_done_is_said(name: str, arguments: tuple[str, ...], said: str) -> None:
    assert said in str(invoke(*arguments, name=name).exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "ftree"), "no routes where LMC is not 0"),
        (("--engine", "nonsense"), "opensm knows no engine"),
        (("--hosts", "100000"), "--hosts is 100000"),
        (("--hosts", "200", "--spines", "30", "--parallel", "2"), "more than 254 ports"),
    ],
)
def test_a_lab_that_cannot_be_is_not_left_half_built(name: str, options: tuple[str, ...], said: str) -> None:
    other = f"{name}-x"
    assert said in str(invoke("up", *options, name=other).exception)
    assert "nothing to do" in told("down", name=other)


@pytest.mark.parametrize("killed", ["ibsim", "opensm"])
def test_two_labs_do_not_touch_and_what_was_killed_is_told_and_cleared(name: str, killed: str) -> None:
    other = f"{name}-b"
    small = ("up", "--leaves", "1", "--spines", "1", "--hosts", "1")
    try:
        told(*small, name=other)
        told("cut", "h1-l1", name=other)
        assert link(name, "h1/1")["state"] == "Active"
        (pid,) = [pid for pid, title in programs.running(other).items() if title == killed]
        os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: killed not in programs.running(other).values(), NOTICED_S)
        assert re.search(rf"lacks .*{killed}", str(invoke(*small, name=other).exception))
    finally:
        told("down", name=other)
    assert not programs.running(other)
    assert status(name)["lacking"] == []
