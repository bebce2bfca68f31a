"""What tests start again and again stays in memory, also where the kernel reclaims pages that were not used for a while.

On a slow disk a process of Python otherwise takes up to a minute to start, and tests fail that wait for it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.vm.machine import CHECKOUT

FOLDERS = (
    *(CHECKOUT / name for name in ("cwdp", "manager", "tools", "tests")),
    Path(sys.prefix),
    *(Path("/usr/lib") / name for name in ("python3", "python3.11", "x86_64-linux-gnu", "gcc", "llvm-16")),
    *(Path("/usr") / name for name in ("bin", "sbin", "share/qemu", "lib/chromium")),
    CHECKOUT / "build",
)
"""In the order in which tests come to need them."""
LEAST_BYTES = 12 << 30
"""Of the machine's memory: these folders take some 4 GiB, and tests need room beside them."""


@contextmanager
def held_in_memory() -> Iterator[None]:
    """Hold the programs of tests in memory meanwhile: as root, by vmtouch (a Debian package), where there is enough."""
    if os.geteuid() != 0 or shutil.which("vmtouch") is None or _memory_bytes() < LEAST_BYTES:
        yield
        return
    folders = [folder for folder in FOLDERS if folder.exists()]
    holder = subprocess.Popen(["vmtouch", "-l", "-q", "-f", *folders], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        holder.terminate()
        holder.wait()


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
