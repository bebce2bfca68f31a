"""Run tiers one after the other, but for one that leaves others enough of the machine."""

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from tools.run_tests.table import Tier
from tools.run_tests.tiers import Running

LONG, PATIENT = "rdma", ("unit", "kernel", "page")
"""The virtual machine takes little more than one processor, for half an hour; the others need no more than the other one. Those of
labs need the machine for themselves."""

NICENESS = 19
"""What runs in the virtual machine is timed, so others give way."""

GLANCE_S = 0.5


def run_all(names: Sequence[str]) -> list[Tier]:
    """Run tiers and checks to their ends, in their order.

    Those of `PATIENT` are run beside `LONG` where that is named; what it prints is shown from when they have ended.
    """
    found: dict[str, Tier] = {}
    beside = [name for name in names if name in PATIENT] if LONG in names else []
    for name in names:
        if name in beside and name not in found:
            found |= _beside_each_other(beside)
        elif name not in found:
            found[name] = Running(name).run()
    return [found[name] for name in names]


def _beside_each_other(patient: Sequence[str]) -> dict[str, Tier]:
    with tempfile.TemporaryFile(buffering=0) as said, ThreadPoolExecutor(1) as executor:
        long = Running(LONG, said=said)
        ended = executor.submit(long.run)
        try:
            tiers = {name: Running(name, niceness=NICENESS).run() for name in patient}
            _show(said, ended)
        except BaseException:
            long.end()
            raise
        return tiers | {LONG: ended.result()}


def _show(said: BinaryIO, ended: "Future[Tier]") -> None:
    """Pass on what a tier prints until it has ended."""
    with Path(f"/proc/self/fd/{said.fileno()}").open(
        "rb"
    ) as reader:  # with a place of its own to read on from
        while True:
            is_over = ended.done()
            shutil.copyfileobj(reader, sys.stdout.buffer)
            sys.stdout.flush()
            if is_over:
                return
            time.sleep(GLANCE_S)
