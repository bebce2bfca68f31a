"""Queue pairs of a program without anything of ours, as uprobes see them and as the kernel lists them."""

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from cwdp.errors import LabError
from cwdp.rdma import netlink
from tools.rdma.scenarios.scenario import Bench
from tools.rdma.testbed.programs import Transfer, started
from tools.uprobes import TracingProcess, cgroup, unified

TRANSFER = Transfer("ib_write_bw", 4, messages=2_000, size=4_096, queue_pairs=4)
NAME = "cwdp-rdma-uprobes"
_TIMEOUT_S = 120.0


def run(_hosts: object, bench: Bench) -> dict[str, Any]:
    """A transfer within a named cgroup and one outside: what was seen, and what the kernel lists of the former."""
    with unified() as mount, cgroup(mount, NAME) as own, TracingProcess(f"/{NAME}") as process:
        _move(own)
        try:
            began_s = time.monotonic()
            process.until(lambda: process.count("libraries") or process.word.trouble)
            record = {"trouble": process.word.trouble, "ready_s": time.monotonic() - began_s}
            listed = _transfer(bench)
        finally:
            _move(mount)
        process.until(lambda: process.count("libraries") == 0 or process.word.trouble)
        named = len(process.queue_pairs)
        _transfer(bench)
        process.listen()
        return record | {
            "listed": msgspec.to_builtins(listed),
            "seen": [seen._asdict() | {"dgid": (seen.dgid or b"").hex()} for seen, _ in process.queue_pairs],
            "unnamed": len(process.queue_pairs) - named,
            "counters": process.word.counters,
        }


def _move(folder: Path) -> None:
    """Put this process in a cgroup, and so all that it starts."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def _transfer(bench: Bench) -> list[netlink.QueuePair]:
    """The queue pairs of a transfer that runs, once all are connected; it has ended then."""
    wanted = 2 * TRANSFER.queue_pairs
    with started(TRANSFER, bench.source, bench.target) as running:
        end_s = time.monotonic() + _TIMEOUT_S
        while True:
            listed = [qp for qp in netlink.queue_pairs() if qp.type == "RC" and qp.state in ("RTR", "RTS")]
            if len(listed) >= wanted:
                break
            if time.monotonic() > end_s:
                raise LabError(f"{len(listed)} of {wanted} queue pairs were connected within the time")
        running.finish()
        return listed
