"""A manager that wants a token: the page asks for it once, and shows what the address names."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from manager.access.grants import Grants, digest, granted, new_token
from manager.access.listeners import Listener
from manager.access.roles import RoleName
from tools.browser import Browser
from tools.sim.fleet.known import KnownFleet, known_state
from tools.sim.fleet.served import page_of

WIDTHS = (360, 1280)


class Served:
    """The manager's own listener over a fleet that never was, for who has a token."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self._grants, self._port = Grants(None), port
        self._loop, self._ends, self._is_up = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        state = known_state(KnownFleet(leaves=4, spines=2))
        async with page_of(state, Listener("127.0.0.1", self._port), self._grants) as page:
            assert page.url == self.url
            self._is_up.set()
            await self._ends.wait()

    def token(self, name: str, role: RoleName = "viewer") -> str:
        """One that counts from now on."""
        token = new_token()
        self._grants.add(granted(name, role, "token", digest(token.encode()), days=1, by="root"))
        return token

    def revoke(self, name: str) -> None:
        """Let one count no more."""
        self._grants.drop(name)


@pytest.fixture
def served() -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Served(port) as running:
        yield running


def _show(browser: Browser, token: str) -> None:
    browser.one("#token").clear()
    browser.click("#token")
    browser.press(token, "ENTER")


def test_a_token_is_asked_for_once_and_the_address_stays(
    browser: Browser, served: Served, pictures: Path
) -> None:
    address = f"{served.url}#/leaf?name=l2&peer=l3&range=3600"
    browser.open(address, shows="#token")
    assert browser.driver.title == "Sign in · cwdp"
    assert browser.js("return document.activeElement.id") == "token"
    for width in WIDTHS:
        for colours in ("dark", "light"):
            browser.resize(width)
            browser.colours(colours)
            assert browser.violations() == []
            assert browser.overflow() <= 0
            browser.picture(pictures / f"sign-in-{width}-{colours}.png")
    for token, words in (
        (new_token(), "does not count here"),
        (served.token("prometheus", "metrics"), "prometheus (token) has the role metrics"),
    ):
        _show(browser, token)
        browser.until_text(words, "[role=alert]")
    assert browser.address == address
    browser.requests()
    token = served.token("alice")
    _show(browser, token)
    browser.until(lambda: browser.all("main .heatmap, main .panel h2"), "the leaf")
    browser.until_text("l2", "main")
    assert browser.address == address
    assert browser.js("return document.cookie") == ""
    assert not [url for url in browser.requests() if token in url]
    browser.until_text("live", ".replay")
    browser.open(address)
    browser.until_text("live", ".replay")
    browser.picture(pictures / "signed-in.png")
    assert browser.violations() == []
    browser.press("?")
    assert len(browser.all("dialog[open]")) == 1
    browser.press("ESCAPE")
    served.revoke("alice")
    browser.until(lambda: browser.all("#token"), "the end of the session")
    assert browser.address == address
    _show(browser, served.token("bob"))
    browser.until_text("live", ".replay")
    browser.click(".bar button[title]")
    browser.until(lambda: browser.all("#token"), "the end of the session")
    browser.open(address, shows="#token")
