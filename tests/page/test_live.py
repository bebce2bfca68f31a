"""The page lives: it follows the manager, says when it cannot, and asks for no more than has changed."""

from page_server import PageServer

from tools.browser import Browser

CELL = 3
"""From the first leaf to the fourth."""


def test_a_new_verdict_is_told_at_once(browser: Browser, server: PageServer) -> None:
    browser.open(server.url)
    browser.until_text("2 of them critical", ".verdict")
    server.world.notices = [
        {"state": "standby", "severity": "info", "text": "This manager stands by; m2 leads."}
    ]
    browser.until_text("This manager stands by; m2 leads.", "[data-state=standby]")


def test_a_notice_that_the_verdict_tells_is_not_told_twice(browser: Browser, server: PageServer) -> None:
    server.world.notices = [
        {"state": "no_agents", "severity": "unknown", "text": "10.254.1.2 > 10.254.2.2 is silent"}
    ]
    browser.open(server.url)
    browser.until_text("2 of them critical", ".verdict")
    assert browser.all(".notice") == []


def test_a_stream_that_says_nothing_is_stale(browser: Browser, server: PageServer) -> None:
    browser.open(server.url)
    browser.until_text("live", ".replay")
    server.ticks_s = None
    browser.until_text("no word from the manager for 5 s", "[data-state=stale]")
    assert browser.violations() == []
    server.ticks_s = 0.25
    browser.until(lambda: not browser.all("[data-state=stale]"), "the end of stale")


def test_a_broken_stream_is_told_and_taken_up_again(browser: Browser, server: PageServer) -> None:
    browser.open(server.url, shows=".heatmap canvas")
    server.answers = False
    browser.until_text("No manager", "[data-state=no_manager]")
    assert "Leaf by leaf" in browser.text("main")
    server.answers = True
    browser.until(lambda: not browser.all("[data-state=no_manager]"), "the manager's return")
    browser.until_text("live", ".replay")


def test_a_question_that_is_never_answered_is_asked_again(browser: Browser, server: PageServer) -> None:
    browser.open(server.url, shows=".heatmap canvas")
    server.stands = True
    browser.open(f"{server.url}#/jobs")
    browser.until(lambda: any(path.startswith("/v1/job") for path in server.world.asked), "the question")
    server.stands = False
    browser.until(lambda: browser.all("main table tbody tr"), "the answer")


def test_only_changed_cells_of_the_matrix_travel(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/fleet?src=10.254.1.1&dst=10.254.1.4", shows=".heatmap canvas")
    browser.until_text("10.254.1.1 > 10.254.1.4:", ".heatmap output")
    for code, words in ((2, "1.00 µs"), (62, "101 µs"), (1, "0 ns")):
        server.world.change([CELL], code=code)
        browser.until_text(f"10.254.1.1 > 10.254.1.4: {words}", ".heatmap output")
    asked = [path for path in server.world.asked if path.startswith("/v1/matrix")]
    assert sum("from=" not in path for path in asked) == 1
    assert [path for path in asked if path.endswith(f"from={server.world.version - 1}")]


def test_an_unknown_version_brings_the_whole_matrix(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/fleet?src=10.254.1.1&dst=10.254.1.4", shows=".heatmap canvas")
    browser.until_text("10.254.1.1 > 10.254.1.4:", ".heatmap output")
    server.world.version += 100
    server.world.changes.clear()
    server.world.change([CELL], code=62)
    del server.world.changes[server.world.version]
    browser.until_text("10.254.1.1 > 10.254.1.4: 101 µs", ".heatmap output")


def test_tabs_that_nobody_sees_hold_no_stream(browser: Browser, server: PageServer) -> None:
    """A browser has six connections for a manager: the seventh tab must not wait for the first to be closed."""
    for _ in range(7):
        browser.driver.switch_to.new_window("tab")
        browser.open(f"{server.url}#/jobs")
        browser.until_text("live", ".replay")
    browser.until(lambda: server.streams == 1, "one stream, of the tab that is seen")
    browser.driver.switch_to.window(browser.driver.window_handles[1])
    browser.until_text("live", ".replay")


def test_the_past_is_asked_for_once(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}#/map?at={server.world.started_s - 600:.0f}")
    browser.until_text("tier 1", "main")
    server.world.notices = [{"state": "standby", "severity": "info", "text": "Ticks go on."}]
    browser.until_text("Ticks go on.")
    assert sum(path.startswith("/v1/map") for path in server.world.asked) == 1
