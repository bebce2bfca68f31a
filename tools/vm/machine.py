"""A virtual machine: one of Debian's kernels under QEMU over this machine's own file system (virtme-ng)."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from cwdp.errors import CwdpError

CHECKOUT = Path(__file__).parents[2]

_VNG = Path(sys.executable).with_name("vng")
_PROGRAMS = ("qemu-system-x86_64", "busybox", "modprobe")
_CACHED = "cached"  # tag of the second export of the file system
_STOP_TIMEOUT_S = 5.0
_PRINT_S = 0.2
_STILL_S = 120.0
_MOVING_BYTES = 1 << 20
_LOOK_S = 1.0


class MachineError(CwdpError):
    """The machine cannot run here, or it did not come to its end."""


class StoodStillError(MachineError):
    """The machine stands still before its command has begun, as an emulated kernel does now and then."""


def lacking(programs: Sequence[str], kernel_folder: Path) -> list[str]:
    """Return what a machine with these programs and a kernel of that folder needs and is not installed here."""
    lacks = [program for program in (*_PROGRAMS, *programs) if shutil.which(program) is None]
    if not _VNG.exists():
        lacks.append("virtme-ng")
    if not _kernels(kernel_folder):
        lacks.append(f"a kernel in {kernel_folder.relative_to(CHECKOUT)}")
    return lacks


def require(programs: Sequence[str], kernel_folder: Path, prepare: str) -> Path:
    """Return the kernel to boot.

    Raises:
        MachineError: something that the machine needs is missing here; `prepare` says what to do about it.
    """
    if os.geteuid() != 0:
        raise MachineError("the virtual machine reads the whole file system", "Run it as root.")
    if lacks := lacking(programs, kernel_folder):
        raise MachineError(f"not installed: {', '.join(lacks)}", prepare)
    return _kernels(kernel_folder)[-1]


def boot(
    kernel: Path,
    command: Sequence[str],
    shared: Path,
    timeout_s: float,
    *,
    devices: str = "",
    begun: Path | None = None,
) -> int:
    """Boot the machine, run a command in it, and return its exit status; nothing of the machine is left behind.

    What the machine prints is passed on to standard error as it comes.

    Args:
        kernel: to boot.
        command: run as root in the checkout, after what `guest.sh` prepares.
        shared: a folder that the machine may write to.
        timeout_s: for all of it.
        devices: QEMU's options for more devices.
        begun: a file that the command makes once it has begun with its work.

    Raises:
        MachineError: it was not done in time.
        StoodStillError: it had not begun and read nothing any more.
    """
    with (shared / "console").open("wb") as console:
        return _run(_command(kernel, command, shared, devices), console, timeout_s, begun)


def _kernels(folder: Path) -> list[Path]:
    return sorted(folder.glob("boot/vmlinuz-*"))


def _command(kernel: Path, command: Sequence[str], shared: Path, devices: str) -> list[str]:
    """Return the command of the machine: emulated, as hardware virtualisation is often there and yet unusable."""
    guest = [str(CHECKOUT / "tools/vm/guest.sh"), _CACHED, str(CHECKOUT), *command]
    export = (
        f"-fsdev local,id={_CACHED},path=/,security_model=none,readonly=on,multidevs=remap "
        f"-device virtio-9p-pci,fsdev={_CACHED},mount_tag={_CACHED} {devices}"
    )
    return [
        *(str(_VNG), "--run", str(kernel), "--disable-kvm", "--force-9p", "--cpus", "2", "--memory", "2G"),
        *("--append", "mitigations=off"),
        *(f"--rwdir={shared}", f"--qemu-opts={export}", "--", shlex.join(guest)),
    ]


def _run(command: list[str], console: BinaryIO, timeout_s: float, begun: Path | None) -> int:
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
        if begun is not None:
            _await(begun, machine)
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


def _await(begun: Path, machine: "subprocess.Popen[bytes]") -> None:
    """Wait until it has begun: as long as it reads, if it only does so slowly, since a disk can be slow."""
    moved_s, moved_bytes = time.monotonic(), 0
    while machine.poll() is None and not begun.exists():
        read_bytes, now_s = _read_bytes(machine.pid), time.monotonic()
        if abs(read_bytes - moved_bytes) >= _MOVING_BYTES:
            moved_s, moved_bytes = now_s, read_bytes
        if now_s - moved_s > _STILL_S:
            raise StoodStillError(
                f"the virtual machine has not begun and has stood still for {_STILL_S:.0f} s", "Try again."
            )
        time.sleep(_LOOK_S)


def _read_bytes(session: int) -> int:
    """Return how much the living processes of a session have read, from wherever (proc(5), `rchar`)."""
    read_bytes = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if os.getsid(int(process.name)) == session:
                read_bytes += int((process / "io").read_text().split()[1])
    return read_bytes


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
