"""The virtual machine in which real RDMA programs run over Soft-RoCE: Debian's stock kernel."""

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tools.collective import PROGRAM
from tools.rdma import outside
from tools.rdma.outside import Outside
from tools.rdma.testbed import shimmed
from tools.vm import machine
from tools.vm.machine import CHECKOUT, MachineError, StoodStillError

KERNEL_FOLDER = CHECKOUT / "build/rdma/kernel"
TIMEOUT_S = 2400.0

_PROGRAMS = ("ib_write_bw", "ibv_rc_pingpong", "rdma")
_BUILT = (shimmed.SHIM, shimmed.PLUGIN, shimmed.AS_NCCL, PROGRAM)
_PREPARE = "Run `tools/rdma/provision.sh programs` and `tools/rdma/provision.sh vm build/rdma/kernel`, and `make setup`."


def lacking() -> list[str]:
    """Return what the machine needs and is not installed here."""
    built = [str(path.relative_to(CHECKOUT)) for path in _BUILT if not path.exists()]
    return machine.lacking(_PROGRAMS, KERNEL_FOLDER) + built


def run(timeout_s: float = TIMEOUT_S, beginning: str = "") -> dict[str, Any]:
    """Boot the machine, run every scenario in it whose name begins so, and return what happened, by scenario.

    What the machine prints is passed on to standard error as it comes.

    Raises:
        MachineError: the machine cannot run here, or ended without results.
    """
    kernel = machine.require(_PROGRAMS, KERNEL_FOLDER, _PREPARE)
    with tempfile.TemporaryDirectory(dir=KERNEL_FOLDER.parent, prefix="run-") as folder:
        results = Path(folder) / "results.json"
        guest = [str(CHECKOUT / "tools/rdma/guest.sh"), str(results), beginning]
        with Outside(results.parent):
            boot = partial(
                machine.boot,
                kernel,
                guest,
                results.parent,
                timeout_s,
                devices=outside.DEVICE,
                begun=results,
            )
            try:
                status = boot()
            except StoodStillError as error:
                sys.stderr.write(f"{error}; it is booted once more\n")
                status = boot()
        report: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
        if not report:
            raise MachineError(
                f"the virtual machine ended with status {status} and without results", "See above."
            )
    return report
