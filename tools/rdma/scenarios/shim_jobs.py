"""Two jobs below the verbs shim whose queue pairs the table spreads as they are connected, and the same jobs by plain ECMP."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tools.rdma.scenarios.closed_loop import slow_spines
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.scenarios.shim_agents import serve
from tools.rdma.testbed.fabric import LAB, RdmaHost
from tools.rdma.testbed.programs import Transfer, started
from tools.rdma.testbed.shimmed import Environment, bare
from tools.rdma.testbed.verbs_agents import ports_by_spine, spread

QUEUE_PAIRS = 4
JOBS = tuple(
    Transfer("ib_write_bw", 4, messages=20_000, size=8_192, port=port, queue_pairs=QUEUE_PAIRS, depth=2)
    for port in (18_515, 18_516)
)
"""They are stopped before they end."""

SPINE_BPS = 1_000_000
BEST_BPS = SPINE_BPS * LAB.spines

_BEGUN_S, _WINDOW_S = 3.0, 10.0
_BEGIN_S = 180.0


def run(hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """What arrives at each job's target, without the shim and with it, over spines whose links carry SPINE_BPS."""
    pairs = list(zip(hosts[:2], hosts[2:], strict=True))
    with serve(hosts, bench) as served:
        for source, target in pairs:
            for one, other, leaf in ((source, target, "l2"), (target, source, "l1")):
                ports = ports_by_spine(bench.counters, one, other, leaf)
                served.agents[one.name].spread([spread(one, other, list(ports.values()))])
        with recorded(bench) as record, slow_spines(SPINE_BPS):
            record["ecmp"] = _rates(pairs, bare, bench)
            record["shim"] = _rates(pairs, served.shim(JOBS[0].program), bench)
    return record


def _rates(
    pairs: Sequence[tuple[RdmaHost, RdmaHost]], environment: Environment, bench: Bench
) -> dict[str, Any]:
    """What arrives once all send, and how much of it came over each spine."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(started(job, *pair, environment))
            for job, pair in zip(JOBS, pairs, strict=True)
        ]
        targets = [target for _, target in pairs]
        _await_arrivals(targets)
        spines, before, began_s = bench.counters.sent_to("l2"), _received(targets), time.monotonic()
        time.sleep(_WINDOW_S)
        after, took_s = _received(targets), time.monotonic() - began_s
        packets = {spine: n - spines[spine] for spine, n in bench.counters.sent_to("l2").items()}
        return {
            "bps": [(b - a) * 8 / took_s for a, b in zip(before, after, strict=True)],
            "spines": packets,
            "running": [one.is_running() for one in running],
        }


def _await_arrivals(targets: Sequence[RdmaHost]) -> None:
    """Wait until data has arrived at all of them for a moment."""
    least = [n + SPINE_BPS // 8 for n in _received(targets)]
    deadline_s = time.monotonic() + _BEGIN_S
    while (
        any(a < b for a, b in zip(_received(targets), least, strict=True)) and time.monotonic() < deadline_s
    ):
        time.sleep(1.0)
    time.sleep(_BEGUN_S)


def _received(targets: Sequence[RdmaHost]) -> list[int]:
    """Bytes of frames that have arrived at each NIC."""
    return [
        int(Path("/sys/class/net", target.ifname, "statistics/rx_bytes").read_text()) for target in targets
    ]
