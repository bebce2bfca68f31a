"""A viewer who looks for the cause of a fault by clicks, on a lab that carries real packets."""

import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import need

from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from tools.browser import Browser
from tools.experiments.play import Play, Story, playing

FOUND_S = 90.0
CLICKS = 4
RING_S = 10.0
"""So much time a row of history's rings is about: one that begins before it, or ends after it, tells of losses as well."""

QUIET, LOSING = 0.004, 0.011
"""Of probes, less than which may be lost where all is well."""

FOLLOW = """
const found = [...document.querySelectorAll(".finding")].find((each) => new RegExp(arguments[0]).test(each.innerText));
const text = found?.innerText ?? "";
found?.querySelector(".title a").click();
return text;
"""
"""Finds and clicks at once: the page is drawn anew every second."""


@contextmanager
def lab(*, planner: bool) -> Iterator[Play]:
    """The lab to play with, under a name and at a port that nobody else has."""
    need.root("a lab is made of network namespaces")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with playing(f"t{port}", page=f"127.0.0.1:{port}", planner=planner) as up:
        yield up


@contextmanager
def told(story: Story, play: Play) -> Iterator[None]:
    """As long as something is wrong."""
    try:
        for command in story.make:
            _run(command, play)
        yield
    finally:
        for command in story.undo:
            _run(command, play)


def _run(command: str, play: Play) -> None:
    argv = [sys.executable, "-m", "cwdp", *shlex.split(command), "--name", play.lab.name]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)


class Clicks:
    """A viewer who began at the Fleet page, and how often they have clicked."""

    def __init__(self, browser: Browser, play: Play) -> None:
        self.browser, self.count = browser, 0
        browser.open(play.url)

    def finding(self, words: str) -> str:
        """Wait for a finding, click it, and give its commands."""
        text = str(self.browser.until(lambda: self.browser.js(FOLLOW, words), words, wait_s=FOUND_S))
        self.count += 1
        return text

    def follow(self, css: str) -> None:
        """Click the first of its kind."""
        self.browser.click(css)
        self.count += 1


def _address_of(play: Play, switch: str) -> str:
    return str(play.lab.topology.router_addresses(switch)[0])


@dataclass(frozen=True)
class Bad:
    """What is made wrong, and what is said of it."""

    story: Story
    words: str

    @property
    def where(self) -> list[str]:
        """The two ends of the link that is made so: a host, or a leaf, comes first."""
        return self.story.make[0].split()[2].split("-")


def find_link(bad: Bad, browser: Browser, play: Play, pictures: Path) -> None:
    """Make a link bad, find it, see what to do."""
    ends = {_address_of(play, switch) for switch in bad.where}
    with told(bad.story, play):
        viewer = Clicks(browser, play)
        said = viewer.finding(bad.words)
        assert all(end in said for end in ends)
        browser.until(lambda: browser.all("main .steps li"), "what to do")
        assert all(end in browser.address for end in ends)
        browser.picture(pictures / f"story-{'-'.join(bad.where)}.png")
    assert viewer.count <= CLICKS


@dataclass(frozen=True)
class Past:
    """A link that dropped everything for a while, and a queue pair that crossed it before.

    Attributes:
        a, b: the link's ends.
        before_s, within_s, after_s: seconds since 1970.
        queue_pair: what names it in the page's address.
    """

    a: str
    b: str
    before_s: float
    within_s: float
    after_s: float
    queue_pair: dict[str, str]


def silence(play: Play) -> Past:
    """Cut a link silently until history tells of it and of a queue pair that went round it, and heal it."""
    story = Story("a link that no other story breaks", ("lab cut l3-s4 --silent",), ("lab heal l3-s4",))
    client = ManagerClient(f"unix://{play.socket}")
    a, b = (_address_of(play, switch) for switch in story.make[0].split()[2].split("-"))

    def lost_from(at: str) -> float:
        worst = client.get("/v1/matrix", {"at": at, "metric": "loss"})["worst"]
        if not worst:
            raise ManagerError("nothing is kept of that time yet")
        return float(max((pair["value"] for pair in worst if a in (pair["src"], pair["dst"])), default=0.0))

    def well(at: str) -> bool:
        return not client.get("/v1/fleet", {"at": at})["findings"] and lost_from(at) < QUIET

    def crossing(at: str) -> Any:
        return client.get("/v1/link-view", {"a": a, "b": b, "at": at})["queue_pairs"] if well(at) else []

    def way_round(at: str) -> bool:
        there = client.get("/v1/link-view", {"a": a, "b": b, "at": at})["there"]
        if there["state"] != "silent" or lost_from(at) < LOSING:
            return False
        path = client.get("/v1/qp-view", {**queue_pair, "at": at})["path"]
        return path["is_known"] and [a, b] not in [[hop["a"], hop["b"]] for hop in path["hops"]]

    before_s, found = _when(crossing, "a queue pair that crosses it")
    row = found[0]
    names = {"host": row["host"], "nic": row["nic"], "dst_addr": row["peer_addr"], "qpn": row["qpn"]}
    queue_pair = {key: str(value) for key, value in names.items()}
    time.sleep(2 * RING_S)
    with told(story, play):
        within_s, _ = _when(way_round, "its way round")
    _when(well, "the end of it")
    time.sleep(2 * RING_S)
    after_s, _ = _when(well, "a while after it")
    return Past(a, b, before_s, within_s, after_s, queue_pair)


def _when(wanted: Callable[[str], Any], what: str) -> tuple[float, Any]:
    """The first instant of which history tells what is wanted, and that."""
    deadline = time.monotonic() + FOUND_S
    while time.monotonic() < deadline:
        time_s = time.time()
        with suppress(ManagerError):
            if found := wanted(f"{time_s:.1f}"):
                return round(time_s, 1), found
        time.sleep(0.5)
    raise AssertionError(f"waited for {what}")
