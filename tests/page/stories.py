"""A viewer who looks for the cause of a fault by clicks, on a lab that carries real packets."""

import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import need

from tools.browser import Browser
from tools.experiments.play import Play, Story, playing

FOUND_S = 90.0
CLICKS = 4
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
