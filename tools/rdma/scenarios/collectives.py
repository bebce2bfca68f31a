"""Collectives over real verbs with the verbs shim and the plug-in for NCCL."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.collective import PROGRAM, Collective, Rank, running
from tools.nccl import FakeAgent
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.shimmed import SHIM
from tools.vm.machine import CHECKOUT

PLUGIN = CHECKOUT / "build/nccl/libcwdp_nccl.so"


def run(hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp())
    agents = [FakeAgent(folder / f"{i}.sock") for i in range(2)]
    with recorded(bench) as record:
        ranks = [
            Rank(host.device, host.gid_index(4), {
                "NCCL_IBVERBS_LIB": str(SHIM), "NCCL_PROFILER_PLUGIN": str(PLUGIN),
                "CWDP_VERBS": "/nowhere/a", "CWDP_NCCL": str(folder / f"{i}.sock")})
            for i, host in enumerate((bench.source, bench.target))
        ]
        what = Collective(bytes=4 * 65536, chunk_bytes=16384, iterations=2)
        with running(PROGRAM, what, ranks, "127.0.0.1:29500", folder) as job:
            rings = [agent.accept(120) for agent in agents]
            truths = job.finish(120)
        record["truth"] = [t._asdict() for t in truths]
        record["told"] = [[{n: r[n].tolist() for n in r.dtype.names} for r in ring.read()] for ring in rings]
    return record
