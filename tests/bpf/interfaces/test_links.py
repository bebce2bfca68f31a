"""Interfaces followed by netlink while more happens than the socket can hold."""

import asyncio
import subprocess

import pytest
from waiting import WAIT_S

from cwdp.agent.links import LinkTable

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("namespace")]

CHANGES = 3_000


def ip(*commands: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def test_an_overflow_tells_what_changed_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    changed = asyncio.Event()

    def tell(ifname: str) -> None:
        told.append(ifname)
        changed.set()

    table = LinkTable(tell)

    async def until_known(address: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while (link := table.get("far0")) is None or address not in link.addresses:
                changed.clear()
                await changed.wait()

    async def story() -> None:
        following = asyncio.create_task(table.follow())
        ip("addr add 10.0.0.1/24 dev roce0", "addr add 10.0.0.2/24 dev far0")
        await until_known("10.0.0.2")
        told.clear()
        # the loop does not run meanwhile
        ip(
            *["addr add 10.0.1.9/24 dev lo", "addr del 10.0.1.9/24 dev lo"] * CHANGES,
            "addr add 10.0.0.3/24 dev far0",
        )
        await until_known("10.0.0.3")
        following.cancel()

    asyncio.run(story())
    assert "reading everything anew" in caplog.text
    assert "roce0" not in told
    assert told[-1] == "far0"
