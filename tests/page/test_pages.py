"""Every page, in both colours and both widths: it says what it is for, harms nobody, and asks nobody else."""

from pathlib import Path
from urllib.parse import urlencode

import pytest
from page_server import PageServer
from synthetic import HOSTILE_HOST, HOSTILE_JOB

from tools.browser import Browser

LEAF, SPINE = "10.254.1.2", "10.254.2.2"
PAGES = {
    "fleet": (
        "fleet",
        {},
        ["Findings", "Leaf by leaf", "What happened", "Worst links", "Slowest queue pairs"],
    ),
    "map": (
        "map",
        {"by": "load"},
        ["tier 1, leaves", "silent", "does not answer", "Wiring", "its rail is elsewhere"],
    ),
    "leaf": ("leaf", {"name": LEAF}, ["NIC by leaf", "Uplinks", "NICs", "8 of 61 queue pairs"]),
    "leaf-pair": ("leaf", {"name": LEAF, "peer": "10.254.1.5"}, ["NIC by NIC", "84.0 µs", "0.04 %"]),
    "link": (
        "link",
        {"a": LEAF, "b": SPINE},
        ["silent", "queue pairs are kept off it", "Load against capacity"],
    ),
    "qp": (
        "qp",
        {"host": "h1", "nic": "nic0", "dst_addr": "10.0.0.1", "qpn": 4000},
        ["Backup, source port 51000", "right within 260 ns", "rerouted", "paced to"],
    ),
    "jobs": ("jobs", {}, ["h1 +15", "inferred", HOSTILE_JOB, "Jobs that send in bursts", "79.6 ms"]),
    "job": (
        "job",
        {"name": HOSTILE_JOB},
        ["Throughput over delay", "Members", HOSTILE_HOST, "rerouted", "shares with"],
    ),
    "iterations": (
        "iterations",
        {"name": "h1"},
        ["sure to 91 %", "How long iterations take", "Throughput", "One-way delay", "from 402 ms to 530 ms"],
    ),
    "clocks": (
        "clocks",
        {},
        ["set aside", "its clock runs 40 ppm faster than it says", "+0.697580731 s", "steady"],
    ),
    "events": ("events", {}, ["160 events", "link silent", "clock changed"]),
    "audit": (
        "audit",
        {},
        ["Audit 7", "nic-carrier", HOSTILE_HOST, "did not answer", "What has changed", "Kept audits"],
    ),
    "host": ("host", {"name": HOSTILE_HOST}, [HOSTILE_HOST, "10.1.0.1", "agent.nic0.pairs_sent", "audit 7"]),
}


def address(server: PageServer, page: str, names: dict[str, object]) -> str:
    return f"{server.url}#/{page}?{urlencode(names)}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_both_colours_and_widths(
    name: str, browser: Browser, server: PageServer, pictures: Path
) -> None:
    page, names, words = PAGES[name]
    browser.open(address(server, page, names))
    for each in words:
        browser.until_text(each, "main")
    browser.until_text("2 of them critical", ".verdict")
    for colours in ("dark", "light"):
        browser.colours(colours)
        assert browser.violations() == []
        assert browser.overflow() <= 0
        browser.picture(pictures / f"{name}-{colours}-1280.png")
    browser.resize(390, 844)
    assert browser.overflow() <= 0
    browser.picture(pictures / f"{name}-light-390.png")
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith((server.url, "about:", "data:"))] == []


def test_names_are_data_and_never_markup(browser: Browser, server: PageServer) -> None:
    for page, names in (
        ("fleet", {}),
        ("job", {"name": HOSTILE_JOB}),
        ("iterations", {"name": "h1"}),
        ("audit", {}),
        ("host", {"name": HOSTILE_HOST}),
    ):
        browser.open(address(server, page, names))
        browser.until_text(HOSTILE_HOST, "main")
        assert browser.all("main img, main script") == []
        assert "owned" not in browser.js("return document.title").replace(HOSTILE_HOST, "").replace(
            HOSTILE_JOB, ""
        )


def test_a_narrow_page_is_free_of_barriers_too(browser: Browser, server: PageServer) -> None:
    browser.resize(390, 844)
    browser.open(server.url)
    browser.until_text("Leaf by leaf")
    assert browser.violations() == []


def test_the_first_load_is_small(browser: Browser, server: PageServer) -> None:
    browser.open(server.url, shows=".heatmap canvas")
    entries = browser.js(
        "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".filter((each) => !each.name.includes('/v1/')).map((each) => [each.name, each.encodedBodySize])"
    )
    assert len(entries) > 20
    assert all(size for _, size in entries)
    assert sum(size for _, size in entries) < 200_000


def test_a_step_is_told_once_and_its_command_is_copied_whole(browser: Browser, server: PageServer) -> None:
    browser.resize(390, 844)
    browser.open(address(server, *PAGES["link"][:2]))
    assert browser.text("main").count("See it in a terminal:") == 1
    assert [code.text.replace("\n", " ") for code in browser.all(".command code")] == [
        "cwdp link --limit 10 # 10.254.1.2",
        "cwdp fabric --links",
    ]
    assert browser.overflow() <= 0
