"""From "my job is slow" to a bad link or a slow host, by clicks, with the command to act."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from stories import CLICKS, Bad, Clicks, find_link, lab, told

from tools.browser import Browser
from tools.experiments.play import STORIES, Play
from tools.roce.process import PROGRAM

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs(PROGRAM)]

OVER_S = 120.0

LINKS = {
    "silent": Bad(STORIES[0], "drops everything"),
    "lossy": Bad(STORIES[1], r"drops [\d.]+ %"),
}
HOSTS = {
    "sender": Bad(STORIES[3], r"h3\b.* (sends slowly|carries less than its like)"),
    "receiver": Bad(STORIES[4], r"h6\b.* (takes packets slowly|carries less than its like)"),
}


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with lab(planner=True) as up:
        yield up


@pytest.mark.parametrize("bad", LINKS.values(), ids=LINKS)
def test_a_bad_link(bad: Bad, browser: Browser, play: Play, pictures: Path) -> None:
    find_link(bad, browser, play, pictures)


@pytest.mark.parametrize("bad", HOSTS.values(), ids=HOSTS)
def test_a_slow_host(bad: Bad, browser: Browser, play: Play, pictures: Path) -> None:
    """Found as a host, or as its link where that carries just enough to be compared with its like."""
    host, _ = bad.where
    with told(bad.story, play):
        viewer = Clicks(browser, play)
        said = viewer.finding(bad.words)
        assert re.search(rf"\b{host}\b", said)
        viewer.follow("main a[href*='#/qp?']")
        browser.until_text("/nic0 > ", "main")
        browser.until(lambda: browser.all("main .steps li"), "what to do")
        browser.picture(pictures / f"story-{host}.png")
    assert viewer.count <= CLICKS


def test_all_is_well_again_and_the_past_is_still_there(browser: Browser, play: Play) -> None:
    browser.open(play.url)
    browser.until(lambda: not browser.all(".finding"), "the end of all findings", wait_s=OVER_S)
    browser.open(f"{play.url}#/events")
    browser.until_text("link silent", "main")
