"""From "my job is slow" to a bad link or a slow host, by clicks or by keys, with the command to act; and all of it again later."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from page_keys import focused, tab_to
from stories import CLICKS, FOUND_S, Bad, Clicks, Past, find_link, lab, silence, told

from tools.browser import Browser
from tools.experiments.play import STORIES, Play
from tools.roce.process import PROGRAM

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs(PROGRAM)]

OVER_S = 240.0
"""A slow link is tried again after half a minute, queue pair by queue pair."""

MOVED = """
const events = document.querySelector("details [aria-label=Events]");
if (!events) return null;
events.closest("details").open = true;
const row = [...events.querySelectorAll("tbody tr")].find((each) => each.innerText.includes("qp moved"));
row?.querySelector("a[href*='#/link?']").click();
return row?.innerText;
"""

LINKS = {
    "silent": Bad(STORIES[0], "drops everything"),
    "lossy": Bad(STORIES[1], r"drops [\d.]+ %"),
}
SLOW = Bad(STORIES[2], "carries less than its like")
HOSTS = {
    "sender": Bad(STORIES[3], r"h3\b.* (sends slowly|carries less than its like)"),
    "receiver": Bad(STORIES[4], r"h6\b.* (takes packets slowly|carries less than its like)"),
}


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with lab(planner=True) as up:
        yield up


@pytest.fixture(scope="module")
def past(play: Play) -> Past:
    return silence(play)


@pytest.mark.parametrize("instant", ["before", "within", "after"])
def test_what_was_is_seen_again(
    instant: str, past: Past, browser: Browser, play: Play, pictures: Path
) -> None:
    at = {"before": past.before_s, "within": past.within_s, "after": past.after_s}[instant]
    is_cut = instant == "within"
    browser.open(
        f"{play.url}#/fleet?at={at}&metric=loss&unfolded=worst", shows="section[aria-label='Leaf by leaf'] td"
    )
    browser.until_text("then: ", ".verdict")
    assert ("drops everything" in browser.text(".verdict")) == is_cut
    assert len(browser.all(".finding")) == is_cut
    assert "As it was" in browser.text(".replay")
    rows = browser.js(
        "return [...document.querySelectorAll(\"section[aria-label='Leaf by leaf'] tbody tr\")].map((row) => row.innerText)"
    )
    lost = [re.search(r"([\d.]+) %$", row) for row in rows if past.a in row]
    assert any(each is not None and float(each[1]) >= 1.0 for each in lost) == is_cut
    browser.picture(pictures / f"replay-{instant}.png")
    browser.open(f"{play.url}#/map?at={at}", shows="svg.tiers .line")
    states = browser.js(
        "return [...document.querySelectorAll('svg.tiers .line')].map((line) => line.ariaLabel)"
    )
    assert [past.a in each and past.b in each for each in states if "silent" in each] == [True] * is_cut
    browser.picture(pictures / f"replay-{instant}-map.png")
    named = "&".join(f"{key}={value}" for key, value in past.queue_pair.items())
    browser.open(f"{play.url}#/qp?{named}&at={at}", shows=".hops")
    if instant != "after":
        assert (f"{past.a} > {past.b}" in browser.text("[aria-label=Hops]")) != is_cut
    browser.picture(pictures / f"replay-{instant}-qp.png")
    assert browser.overflow() == 0


def test_time_is_gone_through_by_keys(past: Past, browser: Browser, play: Play) -> None:
    browser.open(f"{play.url}#/map?at={past.after_s}", shows="svg.tiers .line")
    tab_to(browser, "Time shown", most=80)

    def back() -> bool:
        before = browser.address
        browser.press("ARROW_LEFT")
        browser.until(lambda: browser.address != before, "the time that is shown in the address")
        browser.until(lambda: not browser.all(".old"), "the answers for that time")
        return "drops everything" in browser.text(".verdict")

    browser.until(back, "the cut, some steps of the slider back")
    browser.until_text("silent", "svg.tiers")
    shown_s = float(re.search(r"at=([\d.]+)", browser.address)[1])  # type: ignore[index]
    assert past.before_s < shown_s < past.after_s
    browser.press("f")
    browser.until_text("drops everything", ".finding")
    assert f"at={shown_s:.0f}" in browser.address
    browser.press("[")
    browser.until(lambda: f"at={shown_s - 60:.0f}" in browser.address, "a minute earlier")
    browser.press("l")
    browser.until_text("live", ".replay")
    assert "at=" not in browser.address
    browser.until(lambda: "then" not in browser.text(".verdict"), "the verdict of now")


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


def test_jobs_that_collided_were_moved_apart_and_it_says_why(
    browser: Browser, play: Play, pictures: Path
) -> None:
    """There is nothing to do any more: what was done can be read of the link."""
    with told(STORIES[6], play):
        browser.open(play.url)
        said = str(browser.until(lambda: browser.js(MOVED), "moves", wait_s=FOUND_S))
        assert "was wanted for" in said
        browser.until_text("qp moved", "main")
        assert all(end in said for end in parse_qs(urlsplit(browser.address).fragment.partition("?")[2])["a"])
        browser.until_text("Jobs that cross it", "main")
        browser.picture(pictures / "story-moved-apart.png")


def test_a_silent_link_by_keys_alone(browser: Browser, play: Play, pictures: Path) -> None:
    bad = LINKS["silent"]
    a, b = (str(play.lab.topology.router_addresses(switch)[0]) for switch in bad.where)
    with told(bad.story, play):
        browser.open(play.url)
        browser.until(lambda: re.search(bad.words, browser.text("main")), bad.words, wait_s=FOUND_S)
        browser.press("?")
        browser.until_text("move in a heat map", "dialog[open]")
        browser.press("ESCAPE")
        tab_to(browser, "drops everything")
        browser.press("ENTER")
        browser.until_text("Probes over it lost", "main")
        assert all(end in browser.address for end in (a, b))
        browser.until_text("cwdp ", "main .steps li code")
        browser.picture(pictures / "story-by-keys.png")
        browser.press("ESCAPE")
        browser.until_text("tier 1, leaves", "main")
        browser.press("/", *a)
        browser.until_text(a, "#found [aria-selected=true]")
        browser.press("ENTER")
        browser.until_text("Uplinks", "main")
        tab_to(browser, "Uplinks", most=40)
        for _ in range(2 * play.lab.spec.spines):
            browser.press("ARROW_DOWN")
            if focused(browser) == f"{a} > {b}":
                break
        browser.press("ENTER")
        browser.until(lambda: "#/link?" in browser.address and b in browser.address, "the link's page")
        browser.until_text("silent", "main .about")
        browser.until_text("cwdp ", "main .steps li code")


@pytest.mark.usefixtures("past")
def test_all_is_well_again_and_the_past_is_still_there(browser: Browser, play: Play) -> None:
    browser.open(play.url)
    browser.until(lambda: not browser.all(".finding"), "the end of all findings", wait_s=OVER_S)
    browser.open(f"{play.url}#/events")
    browser.until_text("link silent", "main")
    assert not browser.all("main a[href*='name=fabric'], main a[href*='name=fleet']")


def test_a_slow_link_though_it_is_emptied_at_once(browser: Browser, play: Play, pictures: Path) -> None:
    """The last one: it is told of until it is seen to carry more, which may take minutes."""
    find_link(SLOW, browser, play, pictures)
