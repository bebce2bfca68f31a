"""A job's iterations: charts on one axis with their markers, who is late, and what is said where little is known."""

import time

import pytest
from answers import ANSWERS
from page_keys import focused, tab_to
from page_server import PageServer
from synthetic import HOSTILE_HOST, HOSTILE_JOB, Synthetic

from tools.browser import Browser


def test_from_the_list_to_a_job_and_its_members_by_keys(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/jobs")
    browser.until_text("Jobs that send in bursts", "main")
    tab_to(browser, "waits for")
    browser.press("ARROW_DOWN", "ENTER")
    browser.until_text("Members by lateness", "main")
    assert "name=h1" in browser.address
    browser.until_text("▲ 79.6 ms", "svg.bars")
    assert HOSTILE_HOST in browser.one("svg.bars").text
    for _ in range(4):
        tab_to(browser, "as a table")
    browser.press("SPACE")
    browser.until_text("▲ yes", "main")
    tab_to(browser, "others wait for it")
    browser.press("ARROW_DOWN")
    assert focused(browser) == f"{HOSTILE_HOST}/nic0"
    browser.press("ESCAPE")
    browser.until_text("Jobs that send in bursts", "main")


def test_charts_have_one_axis_and_one_cursor(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/iterations?name=h1", shows=".chart canvas")
    browser.until(lambda: len(browser.all(".chart canvas")) == 3, "three charts")
    lefts = "return [...document.querySelectorAll('.chart .u-over')].map((each) => [each.getBoundingClientRect().left, each.getBoundingClientRect().width])"
    assert len({tuple(each) for each in browser.js(lefts)}) == 1
    tops = [chart.location["y"] for chart in browser.all(".chart canvas")]
    assert tops == sorted(tops)
    browser.js("document.querySelectorAll('.chart')[1].focus()")
    browser.press("ARROW_LEFT", "PAGE_UP")
    browser.until(lambda: "t=" in browser.address, "the cursor in the address")
    crossed = "return [...document.querySelectorAll('.u-cursor-x')].map((each) => Math.round(new DOMMatrix(getComputedStyle(each).transform).e))"
    browser.until(lambda: len(set(browser.js(crossed))) == 1, "one cursor")
    assert browser.js(crossed)[0] > 0


def test_causes_are_told_beside_changes(browser: Browser, world: Synthetic, server: PageServer) -> None:
    cause = {"kind": "compute", "subject": "h2/nic0", "costs_ns": 60_000_000, "evidence": ["it begins late"]}
    world.causes = [cause | {"start_s": time.time() - 11, "end_s": None}]
    browser.open(f"{server.url}#/iterations?name=h1")
    browser.until_text("compute", "main")
    browser.until_text("h2/nic0; costs 60.0 ms an iteration; it begins late", "main")
    browser.until_text("from 402 ms to 530 ms", "main")


def test_a_manager_that_knows_no_causes_shows_the_rest(
    browser: Browser, server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(ANSWERS, "causes")
    browser.open(f"{server.url}#/iterations?name=h1")
    browser.until_text("from 402 ms to 530 ms", "main")


def test_a_job_without_a_rhythm(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/jobs")
    browser.until_text("told", "main")
    browser.click("section[aria-label='Jobs that send in bursts'] tbody tr:nth-child(2) a")
    browser.until_text("It has no rhythm that could be told", "main")
    browser.until_text("How late each is cannot be told", "main")
    assert HOSTILE_JOB in browser.text("main h2")
    assert browser.all("main script") == []
    assert browser.violations() == []


def test_where_no_job_sends_in_bursts(browser: Browser, world: Synthetic, server: PageServer) -> None:
    world.in_bursts = []
    browser.open(f"{server.url}#/jobs")
    browser.until_text("No job sends in bursts.", "main")
    assert browser.violations() == []


def test_of_the_past_it_says_that_this_is_now(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/iterations?name=h1&at=-600")
    browser.until_text("This is the job as it is now", "main")
