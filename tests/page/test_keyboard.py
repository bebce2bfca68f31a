"""Everything can be done by keys alone, and what has the focus can be seen."""

from page_keys import focused, tab_to
from page_server import PageServer
from synthetic import HOSTILE_HOST

from tools.browser import Browser


def test_from_the_verdict_to_the_queue_pair_by_keys(browser: Browser, server: PageServer) -> None:
    browser.open(server.url)
    tab_to(browser, "10.254.1.2 > 10.254.2.2 is silent")
    assert browser.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("ENTER")
    browser.until_text("Load against capacity", "main")
    tab_to(browser, "h1/nic0 > h4/nic0", most=150)
    browser.press("ARROW_DOWN", "ARROW_DOWN", "ARROW_DOWN", "ARROW_UP", "ARROW_DOWN")
    assert focused(browser).startswith("h3/nic0")
    browser.press("ENTER")
    browser.until_text("Delay of its data packets", "main")
    browser.press("ESCAPE")
    browser.until_text("Leaf by leaf", "main")


def test_the_heat_map_by_keys(browser: Browser, server: PageServer) -> None:
    browser.open(server.url, shows=".heatmap canvas")
    tab_to(browser, "Leaf by leaf: arrow keys move")
    browser.press("ARROW_RIGHT", "ARROW_DOWN", "END")
    browser.until_text("10.254.1.2 > 10.254.1.12:", ".heatmap output")
    browser.press("ARROW_LEFT", "-", "+", "ENTER")
    browser.until_text("NIC by NIC", "main")
    assert "name=10.254.1.2&peer=10.254.1.11" in browser.address
    browser.press("ESCAPE")
    browser.until_text("NIC by leaf", "main")


def test_search_by_keys(browser: Browser, server: PageServer) -> None:
    browser.open(server.url)
    browser.press("/", *"onerror")
    browser.until_text(HOSTILE_HOST, "#found")
    assert browser.violations() == []
    browser.press("ENTER")
    browser.until_text("agent.nic0.pairs_sent", "main")
    browser.press("/", *"10.254.1.1")
    browser.until_text("10.254.1.12", "#found")
    browser.press("ARROW_DOWN", "ENTER")
    browser.until_text("NIC by leaf", "main")
    assert "name=10.254.1.10" in browser.address
    browser.press("/", *"nothing such")
    browser.until_text("nothing is called so", ".search")


def test_help_and_pages_by_keys(browser: Browser, server: PageServer) -> None:
    browser.open(server.url)
    browser.press("?")
    browser.until_text("Page up, Page down", "dialog[open]")
    assert browser.violations() == []
    browser.press("ESCAPE")
    browser.until(lambda: not browser.all("dialog[open]"), "the dialog's end")
    for key, words in (
        ("m", "tier 1"),
        ("c", "timeline 16de597c"),
        ("j", "inferred"),
        ("e", "160 events"),
        ("a", "Kept audits"),
    ):
        browser.press(key)
        browser.until_text(words, "main")
    browser.press("[")
    browser.until_text("As it was", ".replay")
    browser.press("l")
    browser.until_text("live", ".replay")
    tab_to(browser, "Skip to the page", most=40)


def test_a_chart_by_keys_moves_the_cursor_of_all(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/link?a=10.254.1.1&b=10.254.2.1", shows=".chart canvas")
    browser.js("document.querySelector('.chart').focus()")
    browser.press("ARROW_LEFT", "PAGE_UP")
    times = "return [...document.querySelectorAll('.values strong')].map((each) => each.innerText)"
    browser.until(lambda: "t=" in browser.address, "the cursor in the address")
    shown = browser.js(times)
    assert len(shown) == 3
    assert len(set(shown)) == 1
    browser.open(browser.address, shows=".chart canvas")
    browser.until(lambda: browser.js(times) == shown, "the cursor where it was")


def test_events_are_found(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/events")
    browser.until_text("160 events", "main")
    browser.click("input[placeholder='link_silent, path_down']")
    browser.press(*"path_down,path_up")
    browser.until(lambda: "kind=path_down" in browser.address, "the kinds in the address")
    browser.until(
        lambda: browser.text("main [role=status]").startswith(("45", "46")), "those of the two kinds"
    )
    browser.click("input[placeholder='in what it says']")
    browser.press(*"port 50001")
    browser.until_text("1 event", "main [role=status]")
