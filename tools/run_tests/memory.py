"""What tests start and write again and again stays in memory, whatever the disk is like.

Some kernels reclaim pages that were not used for a while, also where memory is plenty. On a slow disk a process of Python then
takes up to a minute to start, a removed file some seconds where freed blocks are discarded, and tests fail that wait for it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tools.lab.state import RUN_ROOT
from tools.vm.machine import CHECKOUT

MODULES = (
    *(CHECKOUT / name for name in ("cwdp", "manager", "tools", "tests")),
    Path(sys.prefix),
    *(Path("/usr/lib") / name for name in ("python3", "python3.11")),
)
PROGRAMS = (
    *(Path("/usr/lib") / name for name in ("x86_64-linux-gnu", "gcc", "llvm-16", "chromium")),
    *(Path("/usr") / name for name in ("bin", "sbin", "share/qemu", "share/perl", "share/perl5")),
    CHECKOUT / "build",
)
LEAST_BYTES = 12 << 30
"""Of the machine's memory: these folders take some 4 GiB, and tests need room beside them."""

LEAST_ROOM_BYTES = 4 << 30
"""For temporary files."""

LIST_EVERY_S = 5.0
MEMORY = Path("/dev") / "shm"


@contextmanager
def kept_in_memory() -> Iterator[None]:
    """Have tests work in memory meanwhile, as far as there is enough of it and this user may."""
    with ExitStack() as stack:
        if _memory_bytes() >= LEAST_BYTES:
            stack.enter_context(_temporary_files())
            if os.geteuid() == 0:
                stack.enter_context(_labs())
                stack.enter_context(held([*MODULES, *PROGRAMS]))
                stack.enter_context(listed(MODULES))
        yield


@contextmanager
def held(folders: Sequence[Path]) -> Iterator[None]:
    """Hold the files of folders in memory meanwhile, by vmtouch, which is a Debian package."""
    if shutil.which("vmtouch") is None:
        yield
        return
    there = [folder for folder in folders if folder.exists()]
    holder = subprocess.Popen(["vmtouch", "-l", "-q", "-f", *there], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        holder.terminate()
        holder.wait()


@contextmanager
def listed(folders: Sequence[Path]) -> Iterator[None]:
    """List folders again and again meanwhile: Python does so when it looks for a module, and they cannot be held."""
    ended = threading.Event()

    def walk() -> None:
        while not ended.wait(LIST_EVERY_S):
            for folder in folders:
                for _ in os.walk(folder):
                    if ended.is_set():
                        return

    thread = threading.Thread(target=walk)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _temporary_files() -> Iterator[None]:
    """Have temporary files in memory; the folder's name is short, as sockets' paths may not be long (unix(7))."""
    if not _is_memory(MEMORY) or not _has_room(MEMORY):
        yield
        return
    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="t", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        Path(folder).chmod(0o1777)  # as that for temporary files itself: tests act as other users
        try:
            yield
        finally:
            tempfile.tempdir = None
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before


@contextmanager
def _labs() -> Iterator[None]:
    """Have what labs write in memory, where /run is on a disk, and there is neither a lab nor a service whose socket would hide."""
    folder = RUN_ROOT.parent
    folder.mkdir(parents=True, exist_ok=True)
    if _is_memory(folder) or any(path.parent != folder or not path.is_dir() for path in folder.rglob("*")):
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "cwdp-tests", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def _is_memory(folder: Path) -> bool:
    """Whether a folder's files are in memory (tmpfs(5))."""
    asked = ["stat", "--file-system", "--format=%T", str(folder)]
    told = subprocess.run(asked, check=False, capture_output=True, text=True)
    return bool(told.stdout.strip() == "tmpfs")


def _has_room(folder: Path) -> bool:
    """Whether tests can write there, and start the programs that they have built there."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize >= LEAST_ROOM_BYTES and not status.f_flag & os.ST_NOEXEC


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
