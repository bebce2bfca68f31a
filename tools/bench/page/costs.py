"""What the page costs the manager, over a simulated fleet of 10,016 NICs."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import aiohttp

from tools.bench.figures import Figure, figure
from tools.browser import Browser
from tools.processes import processor_s

LISTEN = "127.0.0.1:9468"
LEAVES, SPINES, HOSTS = 313, 32, 32
VIEWERS = 20
SETTLES_S, WATCHED_S = 5.0, 20.0
MOST_S = 600.0
VIEWERS_TARGET = 0.10
UPDATES = 10
PAINT_TARGET_MS, UPDATE_TARGET_MS, LOAD_TARGET_BYTES = 1_000.0, 100.0, 200_000.0
CHECKOUT = Path(__file__).resolve().parents[3]


MEASURED_JS = """
window.updates = [];
const after = (frames, then) => frames ? requestAnimationFrame(() => after(frames - 1, then)) : then();
new PerformanceObserver((list) => list.getEntries().forEach(({name, responseEnd}) => {
  if (/matrix/.test(name)) after(2, () => window.updates.push(performance.now() - responseEnd));
})).observe({type: "resource"});
"""
"""From when a changed heat map has come to the second frame after it."""


def figures() -> Iterator[Figure]:
    """Three minutes."""
    with served() as (process, url):
        time.sleep(SETTLES_S)
        alone = core_share(process.pid, WATCHED_S)
        watched, ticks = asyncio.run(_watch(process.pid, url))
    reference = {
        "nics": LEAVES * HOSTS,
        "without_viewers": round(alone, 4),
        "ticks_per_viewer": ticks / VIEWERS,
    }
    yield figure("page.20_viewers", watched - alone, "of one core", reference, VIEWERS_TARGET)
    yield from browser_figures()


def browser_figures() -> Iterator[Figure]:
    """What a viewer waits for, with nothing in the browser's cache, once somebody has looked before."""
    with served() as (_, url), Browser() as browser:
        browser.open(url, shows="canvas", wait_s=MOST_S)
        browser.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        browser.open(url, shows="canvas", wait_s=MOST_S)
        paints = browser.js("return performance.getEntriesByType('paint').map((each) => each.startTime)")
        kinds = "['navigation', 'resource'].flatMap((each) => performance.getEntriesByType(each))"
        loaded = browser.js(f"return {kinds}.reduce((sum, each) => sum + each.transferSize, 0)")
        browser.js(MEASURED_JS)
        updates = browser.until(
            lambda: browser.js(f"return updates.length >= {UPDATES} && updates"), "updates", wait_s=MOST_S
        )
    yield figure("page.first_paint", max(paints), "ms", None, PAINT_TARGET_MS)
    yield figure("page.first_load", loaded, "bytes", None, LOAD_TARGET_BYTES)
    yield figure("page.update", median(updates), "ms", {"longest": round(max(updates), 1)}, UPDATE_TARGET_MS)


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The page over a simulated fleet, in a process of its own."""
    size = ["--leaves", str(LEAVES), "--spines", str(SPINES), "--hosts", str(HOSTS)]
    argv = [sys.executable, "-m", "tools.sim", "page", *size, "--listen", LISTEN, "--seconds", str(MOST_S)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def core_share(pid: int, seconds: float) -> float:
    """Of a core that a process takes."""
    before = processor_s(pid)
    time.sleep(seconds)
    return (processor_s(pid) - before) / seconds


async def _watch(pid: int, url: str) -> tuple[float, int]:
    """The server's share of a core while all look, and how many ticks they saw."""
    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
        viewers = [asyncio.create_task(view(session)) for _ in range(VIEWERS)]
        await asyncio.sleep(SETTLES_S)
        share = await asyncio.to_thread(core_share, pid, WATCHED_S)
        for viewer in viewers:
            viewer.cancel()
        ticks = await asyncio.gather(*viewers)
    return share, sum(ticks)


async def view(session: aiohttp.ClientSession) -> int:
    """As a browser that shows the Fleet page does: the stream, and with each tick the page and what changed on the map."""
    ticks, version = 0, ""
    try:
        async with session.get("/v1/stream", timeout=aiohttp.ClientTimeout(None)) as stream:
            async for line in stream.content:
                if not line.startswith(b"data: "):
                    continue
                ticks += 1
                async with session.get("/v1/fleet") as answer:
                    await answer.read()
                async with session.get(f"/v1/matrix?metric=spread{version}") as answer:
                    version = f"&from={(await answer.json())['version']}"
    except asyncio.CancelledError:
        pass
    return ticks
