"""Collectives over real verbs with the verbs shim and the plug-in for NCCL: what the manager tells of them beside what they were."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cwdp.errors import CwdpError, LabError
from tools.collective import PROGRAM, Collective, Rank, running
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.testbed import services
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.services import Services, nccl_socket
from tools.rdma.testbed.shimmed import PLUGIN, SHIM
from tools.waiting import wait_for

CHUNK = 4_096
ALL_REDUCE = Collective("all-reduce", bytes=16 * CHUNK, chunk_bytes=CHUNK, iterations=6)
SLOW_RANK, STILL_RANK = 2, 1

PLAIN, BARE = "all-reduce", "all-reduce, neither plug-in nor shim"
ALL_TO_ALL, SEVERAL = "all-to-all", "all-reduce, several queue pairs"
SLOW, STILL = "a slow rank", "a rank that stands still"
PARTS: Mapping[str, Collective] = {
    PLAIN: ALL_REDUCE,
    BARE: ALL_REDUCE,
    ALL_TO_ALL: Collective("all-to-all", bytes=4 * CHUNK, chunk_bytes=CHUNK, iterations=4),
    SEVERAL: Collective(
        bytes=32 * CHUNK,
        chunk_bytes=4 * CHUNK,
        iterations=2,
        more=("--channels", "2", "--qps", "2", "--split", "--adaptive-routing"),
    ),
    SLOW: Collective(
        bytes=8 * CHUNK,
        chunk_bytes=CHUNK,
        iterations=5,
        more=("--compute-ms", "2000", "--slow-rank", str(SLOW_RANK), "--slow", "100%"),
    ),
    STILL: Collective(
        bytes=16 * CHUNK,
        chunk_bytes=CHUNK,
        iterations=6,
        more=("--stall-rank", str(STILL_RANK), "--stall-ms", "1500", "--stall-every-ms", "3000"),
    ),
}
"""What is done, one after the other, as a job each."""

_RENDEZVOUS = "127.0.0.1:29500"
_SYNCED_S, _RUN_S, _TOLD_S = 240.0, 180.0, 40.0
_POLL_S = 1.0


def run(hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Go through PARTS with a rank on each host; what came of it is recorded as far as it went."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        record = stack.enter_context(recorded(bench))
        cwdp = stack.enter_context(services.stopped(hosts, folder, bench.way_out, has_plugin=True))
        try:
            began_s = time.monotonic()
            cwdp.start()
            _await_timeline(cwdp)
            record["ready_s"] = time.monotonic() - began_s
            for name, what in PARTS.items():
                record[name] = _part(name, what, hosts, cwdp, folder)
            record["job"] = cwdp.ask("/v1/job")
        except CwdpError as error:
            record["error"] = str(error)
        finally:
            record["logs"] = cwdp.logs()
    return record


def _await_timeline(cwdp: Services) -> None:
    def are_synced() -> bool:
        return all(host["state"] == "synced" for host in cwdp.ask("/v1/clock")["hosts"])

    if not wait_for(are_synced, _SYNCED_S, poll_s=_POLL_S):
        raise LabError("the hosts have no common timeline", str(cwdp.ask("/v1/clock")))


def _part(
    name: str, what: Collective, hosts: Sequence[RdmaHost], cwdp: Services, folder: Path
) -> dict[str, Any]:
    """What the ranks say, and what the manager tells of their calls once it knows of all."""
    ranks = [
        Rank(host.device, host.gid_index(4), {} if name == BARE else _environment(name, host, folder))
        for host in hosts
    ]
    with running(PROGRAM, what, ranks, _RENDEZVOUS, folder) as job:
        truths = job.finish(_RUN_S)
    calls = 0 if name == BARE else sum(len(truth.calls) for truth in truths)
    found = {"truth": [truth._asdict() for truth in truths], "told": _told(cwdp, truths[0].begin, calls)}
    print(f"  {name}: {[truth.status for truth in truths]}", flush=True)
    return found


def _environment(name: str, host: RdmaHost, folder: Path) -> dict[str, str]:
    return {
        "NCCL_IBVERBS_LIB": str(SHIM),
        "NCCL_PROFILER_PLUGIN": str(PLUGIN),
        "CWDP_NCCL": str(nccl_socket(folder, host.name)),
        "SLURM_JOB_ID": str(list(PARTS).index(name)),
    }


def _told(cwdp: Services, begin: dict[str, Any], calls: int) -> list[dict[str, Any]]:
    """The calls of a communicator, once so many parts of ranks are told, or after a while."""
    comm_id = f"{begin.get('comm_id', 0):016x}"
    found: list[dict[str, Any]] = []

    def are_all() -> bool:
        found[:] = [
            call
            for call in cwdp.ask("/v1/collectives", sort="slowest", limit=0)["collectives"]
            if call["comm_id"] == comm_id
        ]
        told: int = sum(call["ranks_told"] for call in found)
        return told >= calls

    wait_for(are_all, _TOLD_S, poll_s=_POLL_S)
    return found
