"""The virtual machine: Debian's stock kernel under QEMU over this machine's own file system (virtme-ng)."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from cwdp.errors import CwdpError
from tools.rdma import outside
from tools.rdma.outside import Outside

CHECKOUT = Path(__file__).parents[2]
KERNEL_FOLDER = CHECKOUT / "build/rdma/kernel"
TIMEOUT_S = 1800.0

_VNG = Path(sys.executable).with_name("vng")
_PROGRAMS = ("qemu-system-x86_64", "ib_write_bw", "ibv_rc_pingpong", "rdma", "busybox", "modprobe")
_CACHED = "cached"  # tag of the second export of the file system
_STOP_TIMEOUT_S = 5.0
_PRINT_S = 0.2
_PREPARE = "Run `tools/rdma/provision.sh programs` and `tools/rdma/provision.sh vm build/rdma/kernel`."


class MachineError(CwdpError):
    """The machine cannot run here, or it did not come to its end."""


def lacking() -> list[str]:
    """Return what the machine needs and is not installed here."""
    lacks = [program for program in _PROGRAMS if shutil.which(program) is None]
    if not _VNG.exists():
        lacks.append("virtme-ng")
    if not _kernels():
        lacks.append(f"a kernel in {KERNEL_FOLDER.relative_to(CHECKOUT)}")
    return lacks


def require() -> Path:
    """Return the kernel to boot.

    Raises:
        MachineError: something that the machine needs is missing here.
    """
    if os.geteuid() != 0:
        raise MachineError("the virtual machine reads the whole file system", "Run it as root.")
    if lacks := lacking():
        raise MachineError(f"not installed: {', '.join(lacks)}", _PREPARE)
    return _kernels()[-1]


def run(timeout_s: float = TIMEOUT_S, beginning: str = "") -> dict[str, Any]:
    """Boot the machine, run every scenario in it whose name begins so, and return what happened, by scenario.

    What the machine prints is passed on to standard error as it comes.

    Raises:
        MachineError: the machine cannot run here, or ended without results.
    """
    kernel = require()
    with tempfile.TemporaryDirectory(dir=KERNEL_FOLDER.parent, prefix="run-") as folder:
        results = Path(folder) / "results.json"
        with Outside(results.parent), (results.parent / "console").open("wb") as console:
            status = _boot(_command(kernel, results, beginning), console, timeout_s)
        if not results.exists():
            raise MachineError(
                f"the virtual machine ended with status {status} and without results", "See above."
            )
        report: dict[str, Any] = json.loads(results.read_text())
    return report


def _kernels() -> list[Path]:
    return sorted(KERNEL_FOLDER.glob("boot/vmlinuz-*"))


def _command(kernel: Path, results: Path, beginning: str) -> list[str]:
    """Return the command of the machine: emulated, as hardware virtualisation is often there and yet unusable."""
    guest = [str(CHECKOUT / "tools/rdma/guest.sh"), _CACHED, str(CHECKOUT), str(results), beginning]
    export = (
        f"-fsdev local,id={_CACHED},path=/,security_model=none,readonly=on,multidevs=remap "
        f"-device virtio-9p-pci,fsdev={_CACHED},mount_tag={_CACHED} {outside.DEVICE}"
    )
    return [
        *(str(_VNG), "--run", str(kernel), "--disable-kvm", "--force-9p", "--cpus", "2", "--memory", "2G"),
        *("--append", "mitigations=off"),
        *(f"--rwdir={results.parent}", f"--qemu-opts={export}", "--", shlex.join(guest)),
    ]


def _boot(command: list[str], console: BinaryIO, timeout_s: float) -> int:
    """Run the machine to its end or to the end of its time, and leave nothing of it behind; its exit status.

    It writes to a file of its own: QEMU opens what it is given anew, and would empty what others have written there.
    """
    path = f"{_VNG.parent}:{os.environ['PATH']}"  # vng starts its other half by name
    before = signal.signal(signal.SIGTERM, _exit)
    machine = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=console,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PATH": path},
        start_new_session=True,
    )
    ended = threading.Event()
    printer = threading.Thread(target=_pass_on, args=(Path(console.name), ended), daemon=True)
    printer.start()
    try:
        return machine.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"the virtual machine was not done after {timeout_s:.0f} s", "See above."
        ) from error
    finally:
        _end_session(machine)
        ended.set()
        printer.join()
        signal.signal(signal.SIGTERM, before)


def _pass_on(console: Path, ended: threading.Event) -> None:
    """Print what the machine prints, as it comes."""
    with console.open("rb") as said:
        while True:
            is_last = ended.wait(_PRINT_S)
            os.write(sys.stderr.fileno(), said.read())
            if is_last:
                return


def _exit(number: int, _frame: FrameType | None) -> None:
    """Unwind on SIGTERM too, so that the machine does not outlive this process."""
    sys.exit(128 + number)


def _end_session(machine: "subprocess.Popen[bytes]") -> None:
    """End QEMU and whatever else runs in the machine's session, which nobody else's process belongs to."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(machine.pid, number)
            machine.wait(_STOP_TIMEOUT_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
