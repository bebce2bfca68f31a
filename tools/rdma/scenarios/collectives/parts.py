"""Collectives over real verbs, with the verbs shim and the plug-in for NCCL: what is told of them beside what they were.

A rank on each of the four hosts. Their rings are read as agents read them, and put together as a manager does.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.collective import PROGRAM, Collective, Rank, Truth, running
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.rings import nccl_socket, reading
from tools.rdma.testbed.shimmed import PLUGIN, SHIM
from tools.waiting import wait_for

CHUNK = 4_096
ALL_REDUCE = Collective("all-reduce", bytes=64 * CHUNK, chunk_bytes=CHUNK, iterations=6)
SLOW_RANK, STILL_RANK = 2, 1

PLAIN, SHIM_ALONE, BARE = "all-reduce", "all-reduce, shim alone", "all-reduce, neither shim nor plug-in"
ALL_TO_ALL, SEVERAL = "all-to-all", "all-reduce, several queue pairs"
SLOW, STILL = "a slow rank", "a rank that stands still"
PARTS: Mapping[str, Collective] = {
    PLAIN: ALL_REDUCE,
    SHIM_ALONE: ALL_REDUCE,
    BARE: ALL_REDUCE,
    ALL_TO_ALL: Collective("all-to-all", bytes=8 * CHUNK, chunk_bytes=CHUNK, iterations=4),
    SEVERAL: Collective(
        bytes=64 * CHUNK,
        chunk_bytes=4 * CHUNK,
        iterations=2,
        more=("--channels", "2", "--qps", "2", "--split", "--adaptive-routing"),
    ),
    SLOW: Collective(
        bytes=16 * CHUNK,
        chunk_bytes=CHUNK,
        iterations=5,
        more=("--compute-ms", "1000", "--slow-rank", str(SLOW_RANK), "--slow", "100%"),
    ),
    STILL: Collective(
        "send",
        bytes=64 * CHUNK,
        chunk_bytes=CHUNK,
        iterations=8,
        more=("--stall-rank", str(STILL_RANK), "--stall-ms", "1000", "--stall-every-ms", "2000"),
    ),
}
"""What is done, one after the other."""

JOB = "slurm:17"
"""As the environment of all ranks says."""


class Loaded(NamedTuple):
    """What programs load."""

    shim: Path | None = SHIM
    plugin: Path | None = PLUGIN


BOTH = Loaded()
LOADED = {SHIM_ALONE: Loaded(plugin=None), BARE: Loaded(None, None)}
"""By parts, where that is not both."""

_RENDEZVOUS = "127.0.0.1:29500"
_RUN_S, _TOLD_S = 120.0, 60.0
_POLL_S = 0.5

Told = Callable[[], list[dict[str, Any]]]


def run(hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Go through PARTS; what came of each, as far as it went.

    Each has readers of its own: of the first call that one knows it tells the chunks.
    """
    with recorded(bench) as record:
        for part, what in PARTS.items():
            with (
                tempfile.TemporaryDirectory() as name,
                recorded(bench) as record[part],
                reading([host.name for host in hosts], Path(name)) as rings,
            ):
                record[part].update(ran(what, hosts, Path(name), rings.told, LOADED.get(part, BOTH)))
                record[part]["counters"] = rings.counters()
    return record


def ran(
    what: Collective,
    hosts: Sequence[RdmaHost],
    folder: Path,
    told: Told,
    loaded: Loaded = BOTH,
) -> dict[str, Any]:
    """What ranks say, one on each host, and what is told of their calls, once it is of all or after a while."""
    ranks = [Rank(host.device, host.gid_index(4), _environment(host, folder, loaded)) for host in hosts]
    with running(PROGRAM, what, ranks, _RENDEZVOUS, folder) as job:
        truths = job.finish(_RUN_S)
    print(f"  {what.function}: {[truth.status for truth in truths]}", flush=True)
    found = _of(truths, told) if loaded.plugin else []
    return {"truth": [truth._asdict() for truth in truths], "told": found}


def _environment(host: RdmaHost, folder: Path, loaded: Loaded) -> dict[str, str]:
    libraries = {"NCCL_IBVERBS_LIB": loaded.shim, "NCCL_PROFILER_PLUGIN": loaded.plugin}
    sockets = {"CWDP_NCCL": nccl_socket(folder, host.name), "CWDP_VERBS": folder / "no-agent"}
    found = {name: str(path) for name, path in (libraries | sockets).items() if path}
    return found | {"SLURM_JOB_ID": JOB.partition(":")[2]}


def _of(truths: Sequence[Truth], told: Told) -> list[dict[str, Any]]:
    """The calls of these ranks' communicator."""
    comm_id = f"{truths[0].begin.get('comm_id', 0):016x}"
    calls = sum(len(truth.calls) for truth in truths)
    found: list[dict[str, Any]] = []

    def are_all() -> bool:
        found[:] = [call for call in told() if call["comm_id"] == comm_id]
        ranks_told: int = sum(call["ranks_told"] for call in found)
        return ranks_told >= calls

    wait_for(are_all, _TOLD_S, poll_s=_POLL_S)
    return found
