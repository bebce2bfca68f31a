"""What stands in a lab: it stays, is told of, is there once, and goes, also after trouble."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import free_port, lab_name
from waiting import until

from cwdp.cli.client import ManagerClient
from cwdp.errors import CwdpError
from tools.lab import Lab, LabSpec, lifecycle, process, state
from tools.lab.fleet.processes import FLEET, Fleet
from tools.lab_cli import lab as lab_group
from tools.roce.process import PROGRAM

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180), pytest.mark.needs(PROGRAM)]


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    """A small lab, in which nothing stands."""
    name = lab_name("parts")
    lifecycle.up(LabSpec(name=name, spines=2, hosts_per_leaf=1, rate_bps=20_000_000))
    try:
        yield name
    finally:
        lifecycle.down(name)


@pytest.fixture(autouse=True)
def emptied(name: str) -> Iterator[None]:
    """Nothing stands in the lab after a test either."""
    yield
    for part in status(name):
        words = part.partition("-")
        if words[0] == "job":
            invoke("job", "down", words[2], "--name", name)
        else:
            invoke("fleet", "down", "--name", name)
    assert not status(name)
    assert not alive(name)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(lab_group, arguments)


def command(*arguments: str) -> "subprocess.Popen[str]":
    """As from a terminal: who runs the tests in the background of a script has them ignore SIGINT."""
    return subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "tools.lab", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fleet_up(name: str, *arguments: str) -> tuple[Result, str]:
    page = f"127.0.0.1:{free_port()}"
    return invoke("fleet", "up", "--name", name, "--page", page, *arguments), f"http://{page}/"


def status(name: str) -> dict[str, dict[str, object]]:
    told = json.loads(invoke("status", "--name", name, "--json").output)
    return {part["name"]: part for part in told["standing"]}


def alive(name: str) -> set[int]:
    """Every process that the lab knows of and that lives."""
    known = state.require(name)
    processes = [*known.processes, *(part.keeper for part in known.parts.values())]
    return {one.pid for one in processes if process.is_alive(one)}


def test_a_fleet_stays_answers_and_goes(name: str) -> None:
    up, url = fleet_up(name, "--no-planner")
    assert up.exit_code == 0, up.output
    manager = f"unix://{Lab.open(name).run_dir / 'manager.sock'}"
    assert {f"manager: {manager}", f"page: {url}"} <= set(up.output.splitlines())
    told = ManagerClient(manager).get("/v1/manager")
    assert (told["hosts_up"], told["planner"]["enabled"]) == (2, False)
    with urllib.request.urlopen(f"{url}v1/fleet") as answer:
        assert json.load(answer)["hosts"] == {"up": 2, "lost": 0}
    part = status(name)[FLEET]
    assert (part["is_kept"], part["processes"]) == (True, 3)
    assert url in str(part["told"])
    assert invoke("status", "--name", name).output.count("planner off") == 1
    gone = invoke("fleet", "down", "--name", name)
    assert (gone.exit_code, "is gone" in gone.output) == (0, True)
    assert not alive(name)
    again = invoke("fleet", "down", "--name", name)
    assert (again.exit_code, "nothing to do" in again.output) == (0, True)


def test_one_fleet_a_lab_whoever_starts_it(name: str) -> None:
    fleet_up(name)
    again, _ = fleet_up(name)
    assert isinstance(again.exception, CwdpError)
    assert "fleet is up already" in again.exception.message
    with pytest.raises(CwdpError, match="fleet is up already"), Fleet(Lab.open(name)):
        pass
    assert len(alive(name)) == 4
    invoke("fleet", "down", "--name", name)
    with Fleet(Lab.open(name)):
        beside, _ = fleet_up(name)
        assert isinstance(beside.exception, CwdpError)
        assert "fleet is up already" in beside.exception.message


def test_what_a_killed_keeper_leaves_is_told_of_and_goes(name: str) -> None:
    fleet_up(name)
    os.kill(state.require(name).parts[FLEET].keeper.pid, signal.SIGKILL)
    until(lambda: not status(name)[FLEET]["is_kept"])
    assert "left behind" in invoke("status", "--name", name).output
    assert "is gone" in invoke("fleet", "down", "--name", name).output
    assert not alive(name)


def test_a_pid_that_went_to_somebody_else_is_let_be(name: str) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        with state.locked(name):
            known = state.require(name)
            recorded = process.record("", stranger.pid, ["python"], FLEET)
            earlier = state.Process("", stranger.pid, recorded.start_ticks - 1, recorded.argv, FLEET)
            known.parts[FLEET] = state.Part(earlier, "")
            known.processes.append(earlier)
            state.save(known)
        assert "nothing to do" in invoke("fleet", "down", "--name", name).output
        assert stranger.poll() is None
        stranger.kill()


def test_a_fleet_that_is_not_waited_for_is_taken_away(name: str) -> None:
    starting = command("fleet", "up", "--name", name, "--page", f"127.0.0.1:{free_port()}")
    until(lambda: FLEET in state.require(name).parts)
    starting.send_signal(signal.SIGINT)
    starting.communicate()
    assert starting.returncode != 0
    until(lambda: not alive(name))


def test_a_fleet_that_cannot_come_up_says_why_and_leaves_nothing(name: str) -> None:
    taken = f"127.0.0.1:{free_port()}"
    host, _, port = taken.rpartition(":")
    with socket_on(host, int(port)):
        failed = command("fleet", "up", "--name", name, "--page", taken)
        errors = failed.communicate()[1]
    assert failed.returncode == 1
    assert f"nobody can listen on {taken}" in errors
    assert not alive(name)


def socket_on(host: str, port: int) -> "socket.socket":
    listener = socket.socket()
    listener.bind((host, port))
    listener.listen()
    return listener


def test_no_fleet_without_a_lab() -> None:
    missing = lab_name("missing")
    for arguments in (("fleet", "up"), ("fleet", "down"), ("job", "up", "A"), ("job", "down", "A")):
        refused = invoke(*arguments, "--name", missing)
        assert isinstance(refused.exception, CwdpError)
        assert f"the lab {missing!r} is not up" in refused.exception.message


def test_a_job_sends_over_the_spine_that_was_asked_for_until_it_is_stopped(name: str) -> None:
    up = invoke("job", "up", "C", "--name", name, "--load", "30%", "--over", "s2")
    assert up.exit_code == 0, up.output
    assert "2 queue pairs between h1, h2" in up.output
    before = sent(name)
    until(lambda: sent(name)["l1>s2"] - before["l1>s2"] > 2**20)
    assert sent(name)["l1>s1"] - before["l1>s1"] < 2**17
    assert status(name)["job-C"]["processes"] == 2
    again = invoke("job", "up", "C", "--name", name)
    assert isinstance(again.exception, CwdpError)
    assert "is gone" in invoke("job", "down", "C", "--name", name).output
    assert not alive(name)


def sent(name: str) -> dict[str, int]:
    told = json.loads(invoke("status", "--name", name, "--json").output)
    return {
        direction: end["tx_bytes"]
        for link in told["links"]
        for direction, end in zip(link["directions"], link["ends"], strict=True)
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("a b",), "not a name for a job"),
        (("C", "--hosts", "h1"), "a job of h1"),
        (("C", "--hosts", "h1,h1"), "a job of h1, h1"),
        (("C", "--hosts", "h1,h9"), "h9"),
        (("C", "--over", "l1"), "'l1' is no spine"),
    ],
)
def test_jobs_that_cannot_be_are_refused(name: str, arguments: tuple[str, ...], complaint: str) -> None:
    refused = invoke("job", "up", *arguments, "--name", name)
    assert isinstance(refused.exception, CwdpError)
    assert complaint in refused.exception.message


def test_all_goes_with_the_lab() -> None:
    name = lab_name("whole")
    lifecycle.up(LabSpec(name=name, spines=1, hosts_per_leaf=1, rate_bps=20_000_000))
    try:
        fleet_up(name)
        invoke("job", "up", "A", "--name", name)
        pids = alive(name)
        assert len(pids) == 4 + 3
    finally:
        lifecycle.down(name)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
