"""A manager and two agents whose NICs probe by UD queue pairs: paths are reported, and those of a cut spine lost.

Each agent has a clock of its own, seconds apart from the other's.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cwdp.errors import CwdpError, LabError
from cwdp.shared.testclock import TestClock
from tools.rdma.scenarios.scenario import Bench
from tools.rdma.testbed import services
from tools.rdma.testbed.fabric import RdmaHost, silent
from tools.rdma.testbed.services import Services
from tools.waiting import wait_for

AHEAD_NS = (0, 3_000_000_000)
DRIFT_PPB = (0.0, 20_000.0)
LOST = 0.3
_PROBED_S, _CUT_S = 90.0, 30.0
_POLL_S = 0.5


def run(_hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Tell what the manager says of the paths before a spine is cut, and after."""
    began_s = time.monotonic()
    hosts = [bench.source, bench.target]
    clocks = [
        TestClock.constant(time.monotonic_ns(), ahead_ns, drift_ppb)
        for ahead_ns, drift_ppb in zip(AHEAD_NS, DRIFT_PPB, strict=True)
    ]
    record: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cwdp = stack.enter_context(services.stopped(hosts, folder, bench.way_out, ud_clocks=clocks))
        try:
            cwdp.start()
            record["started_s"] = time.monotonic() - began_s
            record["before"] = _paths(cwdp, _are_answered, _PROBED_S)
            record["probed_s"] = time.monotonic() - began_s
            record["cut"] = link = f"l1-{_busiest(bench)}"
            with silent(link):
                record["after"] = _paths(cwdp, _are_some_lost, _CUT_S)
            record["clock"] = cwdp.ask("/v1/clock")["hosts"]
            record["local_ns"] = _read(clocks)
            record["nics"] = [nic for host in cwdp.ask("/v1/host")["hosts"] for nic in host["nics"]]
        except CwdpError as error:
            record["error"] = str(error)
        finally:
            record["seconds"] = time.monotonic() - began_s
            record["logs"] = cwdp.logs()
    return record


def _read(clocks: list[TestClock]) -> list[int]:
    """What each host's local time is now: its CLOCK_MONOTONIC_RAW, as it has no dataplane."""
    now_ns, raw_ns = time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    return [one.raw_ns(now_ns, raw_ns) for one in clocks]


def _paths(
    cwdp: Services, enough: Callable[[list[dict[str, Any]]], bool], timeout_s: float
) -> list[dict[str, Any]]:
    """All paths, once there is enough to see.

    Raises:
        LabError: it took too long.
    """
    paths: list[dict[str, Any]] = []

    def are_enough() -> bool:
        paths[:] = cwdp.ask("/v1/owd")["paths"]
        return enough(paths)

    if not wait_for(are_enough, timeout_s, poll_s=_POLL_S):
        raise LabError(f"the agents did not report what was waited for; the last was: {paths}")
    return paths


def _are_answered(paths: list[dict[str, Any]]) -> bool:
    sources = {
        path["src"] for path in paths if path["sent"] > path["lost"] and path["fwd_min_ns"] is not None
    }
    return len(sources) == len(AHEAD_NS)


def _are_some_lost(paths: list[dict[str, Any]]) -> bool:
    return len({path["src"] for path in paths if path["loss"] is not None and path["loss"] > LOST}) == len(
        AHEAD_NS
    )


def _busiest(bench: Bench) -> str:
    """A spine that carries probes."""
    before = bench.counters.sent_to("l2")
    time.sleep(_POLL_S)
    now = bench.counters.sent_to("l2")
    return max(now, key=lambda spine: now[spine] - before[spine])
