"""Addresses that lead nowhere say so and lead back; those that lead somewhere hold all that is seen."""

import time

import pytest
from page_server import PageServer

from tools.browser import Browser


@pytest.mark.parametrize(
    ("hash_", "words"),
    [
        ("#/nowhere", "There is no page “nowhere”."),
        ("#/link?a=10.254.1.2", "b is missing"),
        ("#/leaf", "name is missing"),
        ("#/%E0%A4%A", "There is no page"),
        ("#/constructor", "There is no page “constructor”."),
        ("#/fleet?at=yesterday", "“yesterday” is no time."),
        ("#/fleet?at=1e300", "“1e300” is no time."),
        ("#/fleet?at=1000", "it spans 2 weeks"),
        ("#/map?at=9999999999", "it spans 2 weeks"),
        ("#/host?name=nobody", "no host is called nobody"),
        ("#/leaf?name=nobody", "no leaf is called nobody"),
        ("#/link?a=x&b=y", "no link x > y is known"),
        ("#/job?name=nothing", "no job is called nothing"),
        ("#/qp?host=h1&nic=nic0&dst_addr=10.0.0.1&qpn=99", "no such queue pair is known"),
    ],
)
def test_a_broken_address_says_so_and_leads_back(
    hash_: str, words: str, browser: Browser, server: PageServer
) -> None:
    browser.open(f"{server.url}{hash_}", shows=".trouble")
    browser.until(lambda: words.lower() in browser.text("main").lower(), words)
    browser.click(".trouble a")
    browser.until_text("Leaf by leaf", "main")
    assert "at=" not in browser.address


def test_a_page_of_trouble_is_free_of_barriers(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/host?name=nobody", shows=".trouble")
    assert browser.violations() == []


def test_the_address_holds_metric_sort_order_and_selection(browser: Browser, server: PageServer) -> None:
    browser.open(server.url, shows=".heatmap canvas")
    browser.click("nav[aria-label='What the heat map shows'] a:nth-child(3)")
    browser.until_text("Loss: share of probes lost", ".heatmap output")
    browser.js("document.querySelector('.map').focus()")
    browser.press("ARROW_DOWN", "ARROW_DOWN", "ARROW_RIGHT")
    browser.until(lambda: "src=10.254.1.2&dst=10.254.1.2" in browser.address, "the selection in the address")
    head = "section[aria-label='Worst links'] th:nth-child(4) button"
    browser.click(head)
    browser.until(lambda: "sort-links=-p99" in browser.address, "the sort order in the address")
    seen = browser.text("section[aria-label='Worst links'] tbody tr td")
    browser.open(browser.address, shows=".heatmap canvas")
    browser.until_text("10.254.1.2 > 10.254.1.2:", ".heatmap output")
    assert browser.text("section[aria-label='Worst links'] tbody tr td") == seen
    assert browser.one(f"{head} span").text.strip() == "↓"


def test_back_and_forward_go_through_what_was_seen(browser: Browser, server: PageServer) -> None:
    browser.open(server.url)
    browser.click(".finding a")
    browser.until_text("Load against capacity", "main")
    browser.click(".bar nav a:nth-child(5)")
    browser.until_text("160 events", "main")
    browser.js("history.back()")
    browser.until_text("Load against capacity", "main")
    browser.js("history.back()")
    browser.until_text("Leaf by leaf", "main")
    browser.js("history.forward()")
    browser.until_text("Load against capacity", "main")


def test_the_past_is_shown_and_stays_from_page_to_page(browser: Browser, server: PageServer) -> None:
    browser.open(server.url)
    browser.js(
        "const slider = document.querySelector('.slider input'); slider.value = Number(slider.max) - 1800;"
        "slider.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    browser.until_text("As it was", ".replay")
    browser.until_text("then: All well then.", ".verdict")
    at = browser.address.partition("at=")[2]
    assert abs(time.time() - 1800 - float(at)) < 30
    browser.click(".bar nav a:nth-child(2)")
    browser.until_text("tier 1", "main")
    assert f"at={at}" in browser.address
    assert any(path.startswith("/v1/map?at=") for path in server.world.asked)
    browser.open(f"{server.url}#/leaf?name=10.254.1.2&at={at}")
    browser.until_text("not kept of the past", "main")
    browser.click(".live")
    browser.until_text("live", ".replay")
    browser.until(lambda: browser.all(".heatmap canvas"), "the heat map of now")
    assert "at=" not in browser.address


def test_a_time_before_now_becomes_an_instant(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/fleet?at=-600")
    assert abs(time.time() - 600 - float(browser.address.partition("at=")[2])) < 30
