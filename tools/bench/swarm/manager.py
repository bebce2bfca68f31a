"""A manager of a pod as a process, and what it tells of itself."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from manager.identity.authority import Authority
from tools.swarm import slow_motion

CHECKOUT = Path(__file__).resolve().parents[3]
GLANCE_S = 0.05
MOST_EVENTS = 10_000


class PodManager:
    """A manager that can be started, killed and started again.

    Args:
        pod: the name of its pod.
        directory: where its files are; made.
        bus: the URL of the fleet's bus.
        authority: the fleet's.
        slowed: in whose seconds it lives: how often one of ours is in one of its own, and since when.
    """

    def __init__(
        self, pod: str, directory: Path, bus: str, authority: Authority, slowed: tuple[float, float]
    ) -> None:
        self.pod, self._directory, self._slowed = pod, directory, slowed
        authority.save(directory / "state" / "authority")
        (directory / "manager.toml").write_text(f'pod = "{pod}"\nname = "{pod}"\n')
        self._args = ["manager", "run", "--config", str(directory / "manager.toml"), "--nats", bus]
        self._args += ["--page", "", "--socket", str(self._socket), "--state-dir", str(directory / "state")]
        self.pid = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run it meanwhile."""
        argv = [sys.executable, "-m", "cwdp", *self._args]
        if self._slowed[0] != 1:
            argv = slow_motion.command(*self._slowed, *self._args)
        with (
            (self._directory / "log").open("ab") as log,
            subprocess.Popen(argv, stderr=log, cwd=CHECKOUT) as process,
        ):
            self.pid = process.pid
            try:
                yield process
            finally:
                process.terminate()

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until it says so of itself."""
        while True:
            with contextlib.suppress(aiohttp.ClientError):  # not there yet
                if condition(json.loads(await self._get("/v1/manager"))):
                    return
            await asyncio.sleep(GLANCE_S)

    async def root(self) -> str | None:
        """The pod whose leader it takes for the root."""
        told: str | None = json.loads(await self._get("/v1/manager"))["root"]
        return told

    async def events(self, since_s: float, query: str) -> list[dict[str, Any]] | None:
        """All that happened since a time, as far as `query` asks for it; None where its history does not have all."""
        told = json.loads(await self._get(f"/v1/events?since={since_s}&limit={MOST_EVENTS}&{query}"))
        return None if told["more"] else told["events"]

    async def metrics(self) -> dict[str, float]:
        """Processor time of each `duty ...`, the longest `lag` of its loop and `wait` of messages, and those that were `lost`."""
        found: defaultdict[str, float] = defaultdict(float, lag=0.0, wait=0.0, lost=0.0)
        for family in text_string_to_metric_families(await self._get("/metrics")):
            for sample in family.samples:
                if sample.name == "cwdp_manager_duty_seconds_total":
                    found[f"duty {sample.labels['duty']}"] += sample.value
                elif sample.name == "cwdp_manager_loop_lag_seconds":
                    found["lag"] = sample.value
                elif sample.name == "cwdp_manager_backlog_seconds":
                    found["wait"] = sample.value
                elif sample.labels.get("reason") == "lost_on_the_way":
                    found["lost"] += sample.value
        return dict(found)

    @property
    def _socket(self) -> Path:
        return self._directory / "socket"

    async def _get(self, what: str) -> str:
        connector = aiohttp.UnixConnector(path=str(self._socket))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://manager{what}") as answer,
        ):
            return await answer.text()
