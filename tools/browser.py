"""Debian's Chromium, driven by selenium, that reaches loopback only and leaves nothing behind."""

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
AXE = Path(__file__).parents[1] / "tests/page/vendor/axe.min.js"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--disable-component-update",
    "--no-first-run",
)
WAIT_S = 30.0


class Browser:
    """One window; ends with the block that it is in."""

    def __init__(self) -> None:
        self._home = tempfile.mkdtemp(prefix="cwdp-browser-")

    def __enter__(self) -> Self:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        for flag in (*FLAGS, f"--user-data-dir={self._home}/profile"):
            options.add_argument(flag)
        names = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
        home = dict.fromkeys(names, self._home)
        service = Service(str(DRIVER), env={"PATH": "/usr/bin:/bin", "SE_OFFLINE": "true", **home})
        with contextlib.ExitStack() as ends:
            ends.callback(shutil.rmtree, self._home, ignore_errors=True)
            self.driver = webdriver.Chrome(options=options, service=service)
            ends.callback(self.driver.quit)
            self.resize(1280)
            self._ends = ends.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._ends.close()

    def start_over(self) -> None:
        """Be as at the start: nothing open, wide, dark, no complaint."""
        for tab in self.driver.window_handles[1:]:
            self.driver.switch_to.window(tab)
            self.driver.close()
        self.driver.switch_to.window(self.driver.window_handles[0])
        self.driver.get("about:blank")
        self.resize(1280)
        self.colours("dark")
        self.complaints()
        self.requests()

    # Where it is.

    def open(self, url: str, *, shows: str = "main .panel", wait_s: float = WAIT_S) -> None:
        """Load a page anew, until it shows something."""
        self.driver.get("about:blank")
        self.driver.get(url)
        self.until(lambda: self.all(shows), f"{shows} of {url}", wait_s=wait_s)

    @property
    def address(self) -> str:
        """Where it is."""
        return str(self.driver.current_url)

    def resize(self, width: int, height: int = 900) -> None:
        """Make the window so many pixels wide."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def colours(self, scheme: str) -> None:
        """What the system is said to prefer: `dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    # What it shows.

    def all(self, css: str) -> list[Any]:
        """All that is there of a kind."""
        found: list[Any] = self.driver.find_elements(By.CSS_SELECTOR, css)
        return found

    def one(self, css: str) -> Any:
        """The first of a kind, once there is one."""
        return self.until(lambda: self.all(css), css)[0]

    def text(self, css: str = "body") -> str:
        """What is read there."""
        return str(
            self.js(
                "return (({innerText, textContent}) => innerText ?? textContent)(document.querySelector(arguments[0]) ?? {}) ?? ''",
                css,
            )
        )

    def js(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def until(self, wanted: Callable[[], Any], what: str, *, wait_s: float = WAIT_S) -> Any:
        """Wait until something is so, and return it."""
        deadline = time.monotonic() + wait_s
        while not (found := wanted()):
            assert time.monotonic() < deadline, f"waited for {what}; the page says: {self.text()[:600]}"
            time.sleep(0.03)
        return found

    def until_text(self, words: str, css: str = "body", *, wait_s: float = WAIT_S) -> None:
        """Wait until words are read there."""
        self.until(lambda: words in self.text(css), f"“{words}” in {css}", wait_s=wait_s)

    # What it does.

    def press(self, *keys: str) -> None:
        """Press keys where the focus is; names such as ENTER are those of selenium."""
        actions = ActionChains(self.driver, duration=0)
        for key in keys:
            actions.send_keys(getattr(Keys, key, key))
        actions.perform()

    def click(self, css: str) -> None:
        """Click the first of a kind."""
        self.js("arguments[0].scrollIntoView({block: 'center'})", self.one(css))
        self.one(css).click()

    # What is to be said of it.

    def complaints(self) -> list[str]:
        """What it wrote to its console as a warning or an error, since it was asked last."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """The addresses that it asked for, since it was asked last."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]  # type: ignore[no-untyped-call]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def violations(self) -> list[str]:
        """What axe finds wrong with how the page can be used by whoever sees or moves differently."""
        if not self.js("return Boolean(window.axe)"):
            self.js(AXE.read_text())
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run(document, {resultTypes: ['violations']}).then(done)"
        )
        return [
            f"{each['id']}: {node['target']} {node.get('failureSummary', '')}"
            for each in found["violations"]
            for node in each["nodes"][:3]
        ]

    def overflow(self) -> int:
        """How many pixels the page is wider than the window."""
        return int(
            self.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )

    def picture(self, path: Path) -> None:
        """Keep what it shows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))
