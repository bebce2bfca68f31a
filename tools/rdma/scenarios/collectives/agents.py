"""A collective over real verbs of two hosts with agents and a manager: what `/v1/collectives` and `/v1/causes` say of it.

The agents probe by UD queue pairs, as beside hardware that takes RoCEv2: no host sees a packet of the job, and what is known of it its
ranks tell. It leaves the emulated machine more time than a dataplane does, too. Each has a clock of its own.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from cwdp.cli.jobs.collective import collective
from cwdp.errors import CwdpError, LabError
from cwdp.shared.testclock import TestClock
from tools.collective import Collective
from tools.rdma.scenarios.collectives.parts import CHUNK, JOB, ran
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.testbed import services
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.services import Services
from tools.waiting import wait_for

SLOW_RANK = 1
WHAT = Collective(
    bytes=32 * CHUNK,
    chunk_bytes=CHUNK,
    iterations=14,
    more=("--compute-ms", "1500", "--slow-rank", str(SLOW_RANK), "--slow", "100%", "--timeout-s", "90"),
)
AHEAD_NS = (0, 3_000_000_000)
_SYNCED_S, _EXPLAINED_S = 240.0, 30.0
_POLL_S = 1.0


def run(_hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Run it once the hosts have a common timeline."""
    hosts = [bench.source, bench.target]
    clocks = [TestClock.constant(time.monotonic_ns(), ahead_ns, 0.0) for ahead_ns in AHEAD_NS]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        record = stack.enter_context(recorded(bench))
        cwdp = stack.enter_context(services.stopped(hosts, folder, bench.way_out, clocks, has_plugin=True))
        try:
            began_s = time.monotonic()
            cwdp.start()
            _await_timeline(cwdp, len(hosts))
            record["ready_s"] = time.monotonic() - began_s
            record.update(ran(WHAT, hosts, folder, lambda: _told(cwdp)))
            record["causes"] = _causes(cwdp)
            record["shown"] = _shown(bench.way_out.manager_url)
        except CwdpError as error:
            record["error"] = str(error)
        finally:
            record["logs"] = cwdp.logs()
    return record


def _told(cwdp: Services) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cwdp.ask("/v1/collectives", job=JOB, sort="slowest", limit=0)["collectives"]
    return found


def _causes(cwdp: Services) -> list[dict[str, Any]]:
    """Why it is slow, now or before; once there is any, or after a while."""
    found: list[dict[str, Any]] = []

    def is_explained() -> bool:
        found[:] = cwdp.ask("/v1/causes")["causes"]
        return bool(found)

    wait_for(is_explained, _EXPLAINED_S, poll_s=_POLL_S)
    return found


def _shown(manager_url: str) -> str:
    """What `cwdp collective` prints."""
    return CliRunner().invoke(collective, ["--job", JOB, "--slowest", "--manager", manager_url]).output


def _await_timeline(cwdp: Services, hosts: int) -> None:
    def are_synced() -> bool:
        states = [host["state"] for host in cwdp.ask("/v1/clock")["hosts"]]
        return states == ["synced"] * hosts

    if not wait_for(are_synced, _SYNCED_S, poll_s=_POLL_S):
        raise LabError("the hosts have no common timeline", str(cwdp.ask("/v1/clock")))
