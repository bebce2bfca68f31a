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
        ("#/iterations?name=nothing", "no job is called nothing"),
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


def test_the_address_holds_what_is_unfolded_the_zoom_and_the_span_of_the_slider(
    browser: Browser, server: PageServer
) -> None:
    browser.open(server.url, shows=".heatmap canvas")
    browser.click("section[aria-label='Leaf by leaf'] summary")
    browser.until(lambda: "unfolded=worst" in browser.address, "what is unfolded in the address")
    browser.click("button[aria-label='smaller cells']")
    browser.until(lambda: "zoom=" in browser.address, "the zoom in the address")
    browser.js(
        "const field = document.querySelector('.replay select'); field.value = '24h';"
        "field.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    browser.until(lambda: "range=24h" in browser.address, "the span in the address")
    size = "return document.querySelector('.heatmap .room').style.width"
    before = browser.js(size)
    browser.open(browser.address, shows=".heatmap canvas")
    assert browser.js(size) == before
    browser.until(lambda: browser.all("section[aria-label='Leaf by leaf'] td"), "what was unfolded")
    browser.click("section[aria-label='Leaf by leaf'] summary")
    browser.until(lambda: "unfolded" not in browser.address, "what is folded away again")
    browser.press("m")
    browser.until_text("tier 1", "main")
    assert "range=24h" in browser.address
    assert browser.js("return document.querySelector('.replay select').value") == "24h"


@pytest.mark.parametrize(("ago_s", "span"), [(600, "1h"), (7200, "24h"), (500_000, "14d")])
def test_the_slider_spans_the_instant_that_is_shown(
    ago_s: int, span: str, browser: Browser, server: PageServer
) -> None:
    browser.open(f"{server.url}#/map?at=-{ago_s}", shows=".slider input")
    assert browser.js("return document.querySelector('.replay select').value") == span
    shown = browser.js("return Number(document.querySelector('.slider input').value)")
    assert abs(time.time() - ago_s - shown) < 90


def test_charts_are_of_the_instant_that_is_shown(browser: Browser, server: PageServer) -> None:
    at = int(time.time()) // 10 * 10 - 400
    link = f"{server.url}#/link?a=10.254.1.2&b=10.254.2.2&span=15m"
    clock = browser.js("return new Date(1000 * arguments[0]).toTimeString().slice(0, 8)", at)
    browser.open(f"{link}&at={at}", shows=".chart canvas")
    times = "return [...document.querySelectorAll('.values strong')].map((each) => each.innerText.slice(-8))"
    browser.until(lambda: browser.js(times) == [clock] * 3, "the values of then")
    browser.press("[")
    browser.until(lambda: clock not in browser.js(times), "those of a minute earlier")
