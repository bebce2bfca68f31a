"""The lab to play with: it comes up, its commands work as printed, and it leaves nothing behind."""

import json
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import free_port, lab_name
from waiting import until

from tools.experiments.play import LOOK, STORIES
from tools.lab import lifecycle, process, state, status
from tools.roce.process import PROGRAM

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300), pytest.mark.needs(PROGRAM)]

INDENT = "    "


@pytest.fixture
def name() -> Iterator[str]:
    name = lab_name("play")
    yield name
    lifecycle.down(name)


def start(name: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "cwdp", "lab", "run", "play"]
    argv += ["--name", name, "--page", f"127.0.0.1:{free_port()}"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def printed(play: "subprocess.Popen[str]") -> list[str]:
    """All that it says until it is up."""
    assert play.stdout is not None
    lines = []
    for line in play.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("ctrl-c"):
            return lines
    assert play.stderr is not None
    raise AssertionError(play.stderr.read())


def run(command: str) -> "subprocess.CompletedProcess[str]":
    program, *arguments = shlex.split(command.replace("--watch", ""))
    assert program == "cwdp"
    argv = [sys.executable, "-m", "cwdp", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def pids_of(name: str) -> list[int]:
    known = state.require(name)
    processes = [*known.processes, *(part.keeper for part in known.parts.values())]
    return [one.pid for one in processes if process.is_alive(one)]


def nothing_is_left(name: str, pids: list[int]) -> bool:
    namespaces = list(Path("/run/netns").glob(f"cw-{name}-*"))
    return not (
        namespaces or (state.RUN_ROOT / name).exists() or any(Path(f"/proc/{pid}").exists() for pid in pids)
    )


def test_it_comes_up_its_commands_work_and_ctrl_c_takes_all_away(name: str) -> None:
    with start(name) as play:
        lines = printed(play)
        (url,) = [line.rpartition(" ")[2] for line in lines if "http://" in line]
        with urllib.request.urlopen(f"{url}v1/fleet") as answer:
            told = json.load(answer)
        assert told["hosts"] == {"up": 8, "lost": 0}
        until(lambda: jobs(url) == [4, 4], "two jobs of four hosts each")

        beside = run(f"cwdp lab run play --name {name}")
        assert beside.returncode == 1
        assert f"the lab {name!r} is up already, with fleet, job-A, job-B, background" in beside.stderr

        commands = [line.removeprefix(INDENT) for line in lines if line.startswith(INDENT)]
        assert len(commands) == len(LOOK) + sum(len(story.make) + len(story.undo) for story in STORIES)
        for command in commands:
            done = run(command)
            assert (done.returncode, done.stderr) == (0, ""), command
        healed = status.collect(name)
        assert {part["name"] for part in healed["standing"]} == {"fleet", "job-A", "job-B", "background"}
        states = {way["state"] for link in healed["links"] for way in link["directions"].values()}
        assert states == {"up"}

        pids = pids_of(name)
        assert len(pids) > 8
        play.send_signal(signal.SIGINT)
        assert play.wait(60) == 0
    until(lambda: nothing_is_left(name, pids), "nothing left")


def jobs(url: str) -> list[int]:
    with urllib.request.urlopen(f"{url}v1/fleet") as answer:
        return [job["hosts"] for job in json.load(answer)["jobs"]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_half_up_it_goes_too(name: str, number: signal.Signals) -> None:
    with start(name) as play:
        until(lambda: (known := state.load(name)) and known.parts, "a fleet that starts")
        pids = pids_of(name)
        play.send_signal(number)
        assert play.wait(60) == 0
    until(lambda: nothing_is_left(name, pids), "nothing left")


def test_it_ends_where_somebody_takes_its_lab(name: str) -> None:
    with start(name) as play:
        printed(play)
        assert run(f"cwdp lab down --name {name}").returncode == 0
        assert play.wait(60) == 1
        assert play.stderr is not None
        assert f"the lab {name!r} was taken away" in play.stderr.read()
