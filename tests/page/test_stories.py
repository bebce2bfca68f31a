"""From "my job is slow" to its cause, by clicks, on a lab that carries real packets, with the command to act."""

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import need
import pytest
from browser import Browser

from tools.experiments.play import STORIES, Play, Story, playing
from tools.roce.process import PROGRAM

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs(PROGRAM)]

FOUND_S, OVER_S = 90.0, 120.0
CLICKS = 4
FOLLOW = """
const found = [...document.querySelectorAll(".finding")].find((each) => new RegExp(arguments[0]).test(each.innerText));
const text = found?.innerText ?? "";
found?.querySelector(".title a").click();
return text;
"""
"""Finds and clicks at once: the page is drawn anew every second."""


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    need.root("a lab is made of network namespaces")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with playing(f"t{port}", page=f"127.0.0.1:{port}") as up:
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
    """What is made wrong, where, and what is said of it."""

    story: Story
    where: tuple[str, ...]
    words: str


LINKS = {
    "silent": Bad(STORIES[0], ("l1", "s2"), "drops everything"),
    "lossy": Bad(STORIES[1], ("l2", "s3"), r"drops [\d.]+ %"),
    "slow": Bad(STORIES[2], ("l1", "s1"), "carries less than its like"),
}
HOSTS = {
    "sender": Bad(STORIES[3], ("h3",), "sends slowly"),
    "receiver": Bad(STORIES[4], ("h6",), "takes packets slowly"),
}


@pytest.mark.parametrize("bad", LINKS.values(), ids=LINKS)
def test_a_bad_link(bad: Bad, browser: Browser, play: Play, pictures: Path) -> None:
    ends = {_address_of(play, switch) for switch in bad.where}
    with told(bad.story, play):
        viewer = Clicks(browser, play)
        said = viewer.finding(bad.words)
        assert all(end in said for end in ends)
        browser.until(lambda: browser.all("main .steps li"), "what to do")
        assert all(end in browser.address for end in ends)
        browser.picture(pictures / f"story-{'-'.join(bad.where)}.png")
    assert viewer.count <= CLICKS


@pytest.mark.parametrize("bad", HOSTS.values(), ids=HOSTS)
def test_a_slow_host(bad: Bad, browser: Browser, play: Play, pictures: Path) -> None:
    (host,) = bad.where
    with told(bad.story, play):
        viewer = Clicks(browser, play)
        said = viewer.finding(bad.words)
        assert re.search(rf"\b{host}\b", said)
        assert f"cwdp host {host}" in said
        viewer.follow("main a[href*='#/qp?']")
        browser.until_text(f"{host}/nic0 > ", "main")
        browser.picture(pictures / f"story-{host}.png")
    assert viewer.count <= CLICKS


def test_two_jobs_that_collide(browser: Browser, play: Play, pictures: Path) -> None:
    with told(STORIES[6], play):
        viewer = Clicks(browser, play)
        said = viewer.finding("jobs share")
        assert "cwdp steer set" in said
        viewer.follow("main a[href*='#/qp?']")
        browser.until_text("cwdp steer set", "main")
        browser.picture(pictures / "story-jobs.png")
    assert viewer.count <= CLICKS


def test_all_is_well_again_and_the_past_is_still_there(browser: Browser, play: Play) -> None:
    browser.open(play.url)
    browser.until(lambda: not browser.all(".finding"), "the end of all findings", wait_s=OVER_S)
    browser.open(f"{play.url}#/events")
    browser.until_text("link silent", "main")
