"""`python -m tools.kernels [TEST...]`: run the kernel tests on Debian's kernels, each in a virtual machine.

All are run, or those given as pytest names them. A table at the end says what each kernel made of them. An emulated
machine takes some fifty times as long as this one.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console

from tools.errors import exit_on_error
from tools.processes import ended_processor_s
from tools.run_tests.results import Results
from tools.run_tests.table import Tier, report
from tools.vm import machine
from tools.vm.machine import CHECKOUT

KERNELS = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}
"""Debian's packages, by the version of the kernel."""

FOLDER = CHECKOUT / "build/kernels"
TIMEOUT_S = 4 * 3600.0

_PROVISION = CHECKOUT / "tools/rdma/provision.sh"


def main() -> int:
    """Run the tests on each kernel; the exit status."""
    tests = sys.argv[1:] or ["tests/bpf"]
    with exit_on_error():
        tiers = [run(version, package, tests) for version, package in KERNELS.items()]
    return report(tiers, Console(markup=False, emoji=False), ci=True)


def run(version: str, package: str, tests: list[str]) -> Tier:
    """Run tests on one kernel, which is fetched where it is not there yet.

    Raises:
        MachineError: the machine cannot run here, or was not done in time.
    """
    kernel_folder = FOLDER / version
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run((_PROVISION, "vm", kernel_folder, package), check=True)
    kernel = machine.require((), kernel_folder, f"Run `{_PROVISION.relative_to(CHECKOUT)} vm ...`.")
    print(f"== {kernel.name}", flush=True)
    began, used = time.monotonic(), ended_processor_s()
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="run-") as folder:
        results = Path(folder) / "results.json"
        command = [str(CHECKOUT / "tools/kernels/guest.sh"), f"--results={results}", *tests]
        status = machine.boot(kernel, command, results.parent, TIMEOUT_S)
        found = msgspec.json.decode(results.read_bytes(), type=Results) if results.exists() else None
    return Tier(version, status, time.monotonic() - began, ended_processor_s() - used, found)


if __name__ == "__main__":
    os.chdir(CHECKOUT)
    sys.exit(main())
