"""`python -m tools.packages.machine.run WHERE`: boot Debian 12, have it show the packages, print what was found.

In `namespaces` systemd is the init of a container on this machine's kernel; in `vm` of a virtual machine with Debian's.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tools.errors import exit_on_error
from tools.packages.checkout import CHECKOUT, OUTPUT, PackageError, fresh_log, require, run
from tools.packages.machine import older

FOLDER = OUTPUT / "machine"
TIMEOUT_S = {"namespaces": 600.0, "vm": 3600.0}

_HERE = Path(__file__).parent
_SYSTEM_SH = CHECKOUT / "tools/packages/system.sh"
_PROGRAMS = ("mmdebstrap", "mke2fs", "qemu-system-x86_64", "tar")
_NEEDED = (
    "iproute2",
    "libbpf1",
    "libstdc++6",
    "procps",
    "python3",
    "python3-cryptography",
    "python3-nacl",
    "python3-prometheus-client",
    "python3-rich",
)
_BOOTED = ("initramfs-tools", "kmod", "linux-image-cloud-amd64", "systemd-sysv", "udev")
_SYSTEM, _SYSTEM_MIB, _SHOW_MIB = FOLDER / "system", 3000, 400
_KERNEL_LINE = "root=/dev/vda rw console=ttyS0 mitigations=off systemd.default_timeout_start_sec=900"


def show(debs: Iterable[Path], where: str) -> dict[str, Any]:
    """What was found after each step of `guest.py`, by step.

    Args:
        debs: the packages.
        where: a key of `TIMEOUT_S`.

    Raises:
        PackageError: the machine cannot run here, or did not come to its end.
    """
    require(*_PROGRAMS)
    if os.geteuid() != 0:
        raise PackageError("Debian's file system is root's", "Run it as root.")
    log = fresh_log(FOLDER, "machine")
    if not _SYSTEM.exists():
        _make_system(log)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="run-") as folder:
        files, console = Path(folder) / "show", FOLDER / f"{where}.console"
        _collect(debs, files, log)
        boot: Callable[[Path, Path, Path], tuple[list[str], Path]] = {"namespaces": _namespaces, "vm": _vm}[
            where
        ]
        command, results = boot(files, console, log)
        _boot(command, console, TIMEOUT_S[where])
        lines = [json.loads(line) for line in results.read_text().splitlines() if line.strip()]
    if not lines:
        raise PackageError("the machine ended without results", f"See {console}.")
    return {line["step"]: line["found"] | {"step_s": line["took_s"]} for line in lines}


def _make_system(log: Path) -> None:
    """Debian's file system in a folder; made once."""
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="system-") as folder:
        root, archive = Path(folder) / "root", Path(folder) / "system.tar"
        run([_SYSTEM_SH, archive, _HERE / "show.service", *_NEEDED, *_BOOTED], FOLDER, log)
        root.mkdir()
        run(["tar", "-xf", archive, "-C", root], FOLDER, log)
        root.rename(_SYSTEM)


def _collect(debs: Iterable[Path], into: Path, log: Path) -> None:
    """The packages of both versions, and what is done with them."""
    (into / "after").mkdir(parents=True)
    older.make(debs, into / "before")
    for deb in debs:
        run(["cp", deb, into / "after"], FOLDER, log)
    shutil.copy(_HERE / "guest.py", into)


def _namespaces(files: Path, _console: Path, _log: Path) -> tuple[list[str], Path]:
    scratch = files.parent / "scratch"
    scratch.mkdir()
    return [str(_HERE / "container.sh"), str(_SYSTEM), str(files), str(scratch)], files / "results"


def _vm(files: Path, console: Path, log: Path) -> tuple[list[str], Path]:
    """Emulated, as hardware virtualisation is often there and yet unusable."""
    disks = {
        files.parent / "system.ext4": (_SYSTEM, _SYSTEM_MIB),
        files.parent / "show.ext4": (files, _SHOW_MIB),
    }
    for disk, (content, size_mib) in disks.items():
        run(["mke2fs", "-q", "-t", "ext4", "-d", content, disk, f"{size_mib}M"], FOLDER, log)
    kernel, initrd = (next((_SYSTEM / "boot").glob(f"{name}-*")) for name in ("vmlinuz", "initrd.img"))
    results = files.parent / "results"
    command = [
        *(
            "qemu-system-x86_64",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "2G",
            "-no-reboot",
        ),
        *("-display", "none", "-nic", "none", "-kernel", str(kernel), "-initrd", str(initrd)),
        *("-append", _KERNEL_LINE, "-serial", f"file:{console}", "-serial", f"file:{results}"),
        *(part for disk in disks for part in ("-drive", f"file={disk},format=raw,if=virtio,cache=unsafe")),
    ]
    return command, results


def _boot(command: list[str], console: Path, timeout_s: float) -> None:
    with console.open("w") as said:
        try:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise PackageError(
                f"the machine was not done after {timeout_s:.0f} s", f"See {console}."
            ) from error


if __name__ == "__main__":
    with exit_on_error():
        json.dump(show(sorted(OUTPUT.glob("*.deb")), sys.argv[1]), sys.stdout, indent=1)
