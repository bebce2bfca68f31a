"""The same where nobody moves queue pairs but who looks at the page: nothing is mended before."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stories import CLICKS, Bad, Clicks, find_link, lab, told

from tools.browser import Browser
from tools.experiments.play import STORIES, Play
from tools.roce.process import PROGRAM

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs(PROGRAM)]

SLOW = Bad(STORIES[2], "carries less than its like")


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with lab(planner=False) as up:
        yield up


def test_a_slow_link(browser: Browser, play: Play, pictures: Path) -> None:
    find_link(SLOW, browser, play, pictures)


def test_two_jobs_that_collide(browser: Browser, play: Play, pictures: Path) -> None:
    with told(STORIES[6], play):
        viewer = Clicks(browser, play)
        said = viewer.finding("jobs share")
        assert "cwdp steer set" in said
        viewer.follow("main a[href*='#/qp?']")
        browser.until_text("cwdp steer set", "main")
        browser.picture(pictures / "story-jobs.png")
    assert viewer.count <= CLICKS
