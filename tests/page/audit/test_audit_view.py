"""Audits on the page: alike findings in one row, by keys, by filters in the address, of fleets of any size."""

import time
from pathlib import Path

import pytest
from audit.audited import finished, large_audit
from page_keys import focused, tab_to
from page_server import PageServer
from synthetic import HOSTILE_HOST

from manager.audit.service.service import Progress
from tools.browser import Browser

FINDINGS = "[aria-label='Findings'] > table > tbody > tr:not(.below)"


def rows(browser: Browser, css: str = FINDINGS) -> list[str]:
    """What the rows of a table say."""
    texts = browser.js("return [...document.querySelectorAll(arguments[0])].map((row) => row.innerText)", css)
    return [" ".join(text.split()) for text in texts]


def until_rows(browser: Browser, *words: str) -> None:
    """Wait until there are so many rows, each with these words."""
    browser.until(
        lambda: (
            len(found := rows(browser)) == len(words)
            and all(word in row for word, row in zip(words, found, strict=True))
        ),
        f"rows {words}",
    )


def test_the_gravest_come_first_and_what_all_lack_is_folded_away(
    browser: Browser, server: PageServer
) -> None:
    browser.open(f"{server.url}#/audit", shows=FINDINGS)
    found = rows(browser)
    assert [row.split()[1] for row in found] == [
        *["fail"] * 2,
        *["outlier"] * 3,
        "not",
        *["warn"] * 3,
    ]
    assert "v100-[003,010] bp0 2 no expected yes" in found[0]
    assert "4 fail, 5 outlier" in browser.text("main .about")
    assert "operator of <b>nights</b>" in browser.text("main .panel header")
    browser.click("main details summary")
    browser.until_text(
        "the kernel governs no frequency", "[aria-label='What all hosts of a group cannot tell']"
    )
    browser.until(lambda: "unfolded=shared" in browser.address, "what is unfolded in the address")
    assert browser.violations() == []


def test_by_keys_from_a_finding_to_its_hosts(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/audit", shows=FINDINGS)
    tab_to(browser, "nic-carrier")
    browser.press("ARROW_DOWN")
    assert "nic-carrier" in focused(browser)
    assert browser.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("ENTER")
    browser.until_text("the cable, the transceiver or the switch's port is dead", "main")
    browser.until_text("v100-003", ".unfolded")
    assert browser.violations() == []
    assert "row=" in browser.address
    browser.press("ARROW_DOWN", "ARROW_DOWN")
    assert focused(browser) == "v100-003"
    browser.press("ARROW_DOWN", "ARROW_DOWN")
    assert "pcie-width" in focused(browser)
    browser.press("ARROW_UP", "ENTER")
    browser.until_text("No host is called v100-010", "main")
    browser.js("history.back()")
    browser.until_text("v100-003", ".unfolded")
    tab_to(browser, "nic-carrier")
    browser.press("ARROW_DOWN", "ENTER")
    browser.until(lambda: not browser.all(".unfolded"), "what is folded again")
    browser.press("ESCAPE")
    browser.until_text("Leaf by leaf", "main")


def test_what_to_do_can_be_copied(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/audit?q=mtu-alike", shows=FINDINGS)
    browser.click(f"{FINDINGS} button")
    browser.until_text("ip link set NIC mtu N", ".unfolded .command code")
    assert browser.one(".unfolded .command button").text == "copy"


def test_filters_are_in_the_address(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/audit", shows=FINDINGS)
    tab_to(browser, "outlier")
    browser.press("ENTER")
    until_rows(browser, *["outlier"] * 3)
    assert "verdict=outlier" in browser.address
    assert "outlier" in focused(browser)
    assert browser.one(".chips [aria-pressed=true]").text.split() == ["◆", "outlier", "5"]
    browser.click("input[placeholder='check, host or part']")
    browser.press(*"MTU")
    until_rows(browser, "mtu-alike")
    browser.open(browser.address, shows=FINDINGS)
    until_rows(browser, "mtu-alike")
    assert browser.one("input[type=search]").get_attribute("value") == "MTU"
    browser.click(".chips [aria-pressed=true]")
    until_rows(browser, "mtu-alike", "mtu-for-roce")
    browser.click(".filters a")
    browser.until(lambda: len(rows(browser)) == 9, "all rows")
    browser.click("input[placeholder='name, or gpu1*']")
    browser.press(*"v100-01*")
    browser.until(lambda: "host=v100-01" in browser.address, "the host in the address")
    browser.until(lambda: all("v100-" in row for row in rows(browser)), "rows of these hosts")
    browser.press(*"nothing")
    browser.until_text("No finding is like that.", "main")
    assert browser.violations() == []


def test_from_a_host_to_its_findings(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/host?name=%3Cimg%20src%3Dx%20onerror%3Ddocument.title%3D'owned'%3E")
    browser.until_text("1 outlier", "main")
    browser.click("main .about a[href*='#/audit?']")
    until_rows(browser, "kernel-alike")
    assert HOSTILE_HOST in rows(browser)[0]
    assert browser.all("main img, main script") == []
    browser.click(f"{FINDINGS} td a")
    browser.until_text("agent.nic0.pairs_sent", "main")


def test_another_audit_and_what_has_changed(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/audit", shows=FINDINGS)
    changes = "[aria-label='What has changed'] tbody tr"
    browser.until(lambda: len(rows(browser, changes)) >= 3, "changes")
    kinds = [row.split()[0] for row in rows(browser, changes)]
    assert kinds == sorted(kinds, key=["new", "changed", "gone"].index)
    assert set(kinds) >= {"new", "gone"}
    browser.click("[aria-label='Kept audits'] tbody tr:nth-child(2) a")
    browser.until_text("Audit 6", "main h2")
    assert "number=6" in browser.address
    assert browser.all("section[aria-label='What has changed']") == []
    assert browser.text("[aria-label='Kept audits'] a[aria-current]") == "6"


def test_of_the_past_the_audit_of_then_is_shown(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/audit?at={time.time() - 3600:.0f}", shows=FINDINGS)
    browser.until_text("Audit 6", "main h2")
    browser.open(f"{server.url}#/audit?at={time.time() - 86400:.0f}")
    browser.until_text("Of that time no audit is kept.", "main")


def test_where_there_is_none_and_one_is_under_way(
    browser: Browser, server: PageServer, pictures: Path
) -> None:
    latest, server.audits.kept = server.audits.latest, []
    browser.open(f"{server.url}#/audit")
    browser.until_text("No audit has been made.", "main")
    assert browser.text("main .command code").replace("\n", " ") == "cwdp audit run"
    server.audits.under_way = Progress(
        number=1, level="network", stage="walks", answered=312, hosts=400, left_s=12.0
    )
    browser.until_text("312 of 400 hosts told their walks; 12 s left at most.", "main")
    assert browser.violations() == []
    browser.picture(pictures / "audit-under-way.png")
    server.audits.under_way = Progress(
        number=1,
        level="throughput",
        stage="flows",
        answered=400,
        hosts=400,
        left_s=50.0,
        rounds=3,
        most_rounds=23,
    )
    browser.until_text("3 of at most 23 rounds of flows are over; 50 s left at most.", "main")
    server.audits.kept, server.audits.under_way = [latest], None
    browser.until_text("nic-carrier", "main")
    assert "is under way" not in browser.text("main")
    assert browser.complaints() == []


@pytest.mark.parametrize(
    ("query", "words"),
    [("number=99", "there is no audit 99 here"), ("number=x", "is no number"), ("verdict=x", "some of fail")],
)
def test_what_is_not_there_is_said(query: str, words: str, browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/audit?{query}")
    browser.until_text(words, "main")
    browser.until_text("Kept audits", "main")
    assert browser.violations() == []


def test_a_large_fleet_with_findings_for_each_host(
    browser: Browser, server: PageServer, pictures: Path
) -> None:
    large = large_audit(10_000, 6)
    server.audits.kept[:] = [finished(large, 1, ended_s=time.time() - 900), finished(large, 2)]
    browser.open(f"{server.url}#/audit", shows=FINDINGS)
    assert len(rows(browser)) == 6
    assert "gpu[00000-09999]" in rows(browser)[0]
    browser.click(f"{FINDINGS} button")
    browser.until_text("1 000 of 10 000".replace(" 0", "\u202f0"), ".unfolded")
    browser.picture(pictures / "audit-large.png")
    browser.resize(390, 844)
    assert browser.overflow() <= 0
    browser.js("document.querySelector('.unfolded').scrollIntoView({block: 'center'})")
    browser.picture(pictures / "audit-large-390.png")
    assert browser.violations() == []
